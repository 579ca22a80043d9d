"""The claims of a paper's text: as printed, from its own tables, and from our runs.

A claim is arithmetic on two cells. A cell is the mean accuracy over trials, or its standard
deviation, of one federation, run and protocol. Claims are declared as data.
"""

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits, printed
from fedlib.report.metrics import INTERVAL_SEEDS
from fedlib.report.tables.render import Block, Cell, Column, Sheet, percent, points
from fedlib.report.tables.sheets import TableInputs, is_compared
from fedlib.spec.exhibits import one_of

DECIMALS = 2
FORMULAS = {  # of the first and the second cell
    "difference": (
        lambda a, b: printed.difference(a, b, DECIMALS),
        "first minus second, in percentage points",
    ),
    "reduction": (lambda a, b: 1 - b / a if a else np.nan, "1 - second / first, in percent"),
}
CELL = ("federation", "label", "protocol", "statistic")
COLUMNS = (
    *("claim", "formula", "dataset", *(f"first_{name}" for name in CELL)),
    *(f"second_{name}" for name in CELL),
    *("published", "published_first", "published_second", "from_published"),
    *("first", "second", "reproduced", "seeds"),
)
STATISTICS = {"mean": "accuracy", "std": "accuracy_std"}  # and their names in published numbers


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per claim.

    The exhibit's `published` holds the claims as printed. A claim about runs that are not in the
    exhibit is left out, and a note says so.

    Raises:
      ConfigError: for a claim with another formula, protocol or statistic.
      DataError: see `fedlib.report.comparisons.accuracies`.
    """
    exhibit, kind = given.exhibit, given.kind
    shown = {protocol.name: protocol for protocol in comparisons.declared(kind.formed("protocols"))}
    for claim in kind.claims:
        _check(claim, shown)
    missing = [claim["title"] for claim in kind.claims if not _covers(exhibit, claim)]
    claims = [claim for claim in kind.claims if claim["title"] not in missing]
    trials = comparisons.over_trials(comparisons.accuracies(given, list(shown.values())))
    table = comparisons.Printed(given.published, kind.cells)
    federations = {federation["name"]: federation for federation in exhibit["federations"]}
    rows = []
    for claim in claims:
        theirs = [_published(cell, federations, shown, table) for cell in claim["cells"]]
        ours = [_reproduced(cell, trials) for cell in claim["cells"]]
        dataset = federations[claim["cells"][0]["federation"]]["dataset"]
        said = _claimed(given, claim, dataset)
        rows.append({"dataset": dataset, "published": said, **_computed(claim, theirs, ours)})
    numbers = pd.DataFrame(rows, columns=COLUMNS).assign(seeds=len(exhibit["seeds"]))
    return given.sheet(
        numbers,
        [_block(exhibit, claims, numbers, shown)],
        *_notes(exhibit, claims, numbers),
        f"Left out, as their runs are not here: {', '.join(missing)}." if missing else "",
    )


def _check(claim: dict, shown: dict[str, comparisons.Protocol]) -> None:
    """Raise ConfigError unless the claim is well formed."""
    name = f"claim {claim['title']!r}"
    if len(claim["cells"]) != 2:
        raise ConfigError(f"{name} must have two cells, got {claim['cells']}")
    one_of(FORMULAS, claim["formula"], f"{name}: formula")
    for cell in claim["cells"]:
        one_of(shown, cell["protocol"], f"{name}: protocol")
        one_of(STATISTICS, cell["statistic"], f"{name}: statistic")


def _covers(exhibit: dict, claim: dict) -> bool:
    """Whether the exhibit has the claim's runs."""
    runs = {(run["federation"], run["label"]) for run in exhibit["runs"]}
    return all((cell["federation"], cell["label"]) in runs for cell in claim["cells"])


def _published(cell: dict, federations: dict, shown: dict, table: comparisons.Printed) -> float:
    federation, key = federations[cell["federation"]], shown[cell["protocol"]].key
    return table.value(federation, cell["label"], key, STATISTICS[cell["statistic"]])


def _reproduced(cell: dict, trials: pd.DataFrame) -> float:
    """Our number of a cell; NaN for the deviation of too few trials, or without the protocol."""
    key = tuple(cell[name] for name in ("federation", "label", "protocol"))
    if key not in trials.index:
        return np.nan
    found = trials.loc[key]
    few = cell["statistic"] == "std" and found["seeds"] < INTERVAL_SEEDS
    return np.nan if few else float(found[cell["statistic"]])


def _claimed(given: TableInputs, claim: dict, dataset: str) -> float:
    """The claim as the text prints it, as a fraction; NaN if it has none for this data set."""
    if "published" not in claim:
        return np.nan
    found = given.printed(claim["published"]["metric"])
    return found.get((dataset, claim["published"]["label"]), np.nan)


def _computed(claim: dict, theirs: list[float], ours: list[float]) -> dict:
    """The claim's identity, and its formula of the paper's two cells and of our two."""
    formula = FORMULAS[claim["formula"]][0]
    return {
        "claim": claim["title"],
        "formula": claim["formula"],
        **_named("first", claim["cells"][0]),
        **_named("second", claim["cells"][1]),
        "published_first": theirs[0],
        "published_second": theirs[1],
        "from_published": formula(*theirs),
        "first": ours[0],
        "second": ours[1],
        "reproduced": formula(*ours),
    }


def _named(which: str, cell: dict) -> dict[str, str]:
    """Columns that identify the first or second cell."""
    return {f"{which}_{name}": cell[name] for name in CELL}


def _block(exhibit: dict, claims: list[dict], numbers: pd.DataFrame, shown: dict) -> Block:
    heads = ("Claim", "First", "Second", "printed", "from its table", "reproduced")
    groups = ("", "", "", "Paper", "Paper", "Here")
    rows = []
    for claim, row in zip(claims, numbers.to_dict("records"), strict=True):
        text = points if claim["formula"] == "difference" else _share
        cells = [_cell_text(exhibit, cell, shown) for cell in claim["cells"]]
        values = [row[name] for name in ("published", "from_published", "reproduced")]
        rows.append([Cell(t) for t in (claim["title"], *cells)])
        rows[-1] += [Cell(text(value, decimals=DECIMALS)) for value in values]
    columns = [Column(*both) for both in zip(heads, groups, strict=True)]
    return Block("", columns, rows, num_keys=3)


def _share(value: float, decimals: int) -> str:
    """A reduction as percent, "60.39 %"."""
    text = percent(value, decimals=decimals).replace("-", "−")
    return text if np.isnan(value) else f"{text} %"


def _cell_text(exhibit: dict, cell: dict, shown: dict[str, comparisons.Protocol]) -> str:
    """A cell in words, such as "σ of MoE, ε-greedy, CIFAR-10, p = 1"."""
    runs = exhibits.runs_of(exhibit, cell["federation"])
    run = next(run for run in runs if run["label"] == cell["label"])
    federations = {f["name"]: f["title"] for f in exhibit["federations"]}
    of = "σ of " if cell["statistic"] == "std" else ""
    where = f", {federations[cell['federation']]}" if len(federations) > 1 else ""
    return f"{of}{shown[cell['protocol']].title}, {run['title']}{where}"


def _notes(exhibit: dict, claims: list[dict], numbers: pd.DataFrame) -> list[str]:
    used = dict.fromkeys(claim["formula"] for claim in claims)
    trials = (
        ""
        if len(exhibit["seeds"]) >= INTERVAL_SEEDS
        else f" Fewer than {INTERVAL_SEEDS} trials have none to speak of, so claims about "
        "deviations cannot be reproduced."
    )
    return [
        f"Here: {comparisons.METRICS[comparisons.MEAN]}, on the test examples of the clients that "
        f"train, after the last round; {exhibits.seeds_text(exhibit)}. "
        f"{exhibits.rounds_text(exhibit)}",
        *comparisons.selection_note(exhibit),
        *(f"{name.capitalize()}: {FORMULAS[name][1]}." for name in used),
        f"σ: standard deviation over trials (n - 1), not over clients.{trials}",
        "From its table: the same arithmetic on the numbers that the paper's own table prints.",
        *(
            f"{claim['title']}: {claim['note'].rstrip('.')}."
            for claim in claims
            if claim.get("note")
        ),
        *exhibits.published_note(exhibit, shown=is_compared(numbers)),
    ]
