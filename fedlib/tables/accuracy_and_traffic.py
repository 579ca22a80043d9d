"""Accuracy of the clients' predictors, and what was sent for it: published beside reproduced.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, table 1; specification
section 8 has the rule by which its traffic was counted.
"""

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.exhibits import published as printed
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import PRIMARY, TRAFFIC, over_seeds
from fedlib.exhibits.traffic import UNITS, readable
from fedlib.tables import notes
from fedlib.tables.render import (
    ABSENT,
    Block,
    Cell,
    Column,
    Sheet,
    best_cells,
    percent,
    percents,
    points,
)
from fedlib.tables.summary import STATISTICS, identity

METRICS = {
    "accuracy_client_mean": "mean accuracy of the clients",
    "accuracy": "accuracy over the examples of all clients",
}
SPLITS = {"test": "test", "val": "validation"}
LENGTHS = ("evaluations", "rounds")


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    averaged: dict[str, dict] | None = None,
    metric: str = "accuracy_client_mean",
    split: str = PRIMARY.split,
) -> Sheet:
    """The table; its numbers have one row per federation and run.

    What is published is found by the exhibit's `published` and the labels of the runs: the metrics
    "accuracy_client_mean" (or whichever is asked for), "rounds", and "gb", of 2^30 bytes.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      averaged: over which evaluations the accuracy is a mean, by federation: {"evaluations": the
        last so many} or {"rounds": those in the last so many rounds}; the last one alone for a
        federation that is not named.
      metric: "accuracy_client_mean" or "accuracy"; split: "test" or "val".

    Raises:
      ConfigError: for another metric, split, or federation, or a length that is not one of these.
      DataError: if a run was not evaluated on the split.
    """
    _check(exhibit, averaged or {}, metric, split)
    numbers = _numbers(
        exhibit,
        exhibits.select(exhibit, metrics),
        published,
        averaged or {},
        {"metric": metric, "split": split},
    )
    compared = bool(numbers["published"].notna().any())
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            *notes.measured(exhibit),
            f"Accuracy: {METRICS[metric]}, on the {SPLITS[split]} examples of the clients that "
            f"train, {_averaged_text(exhibit, averaged or {})}. Bold: highest of the column.",
            "Sent: both ways, all clients of the run together, four bytes per number; 1 GB is 2^30 "
            "bytes, 1 MB 10^6. Message: numbers that a client receives or sends in a round, on "
            "average.",
            *(_compared_notes(exhibit) if compared else []),
            *exhibits.published_note(exhibit, shown=compared),
            *notes.particulars(exhibit),
        ],
        numbers=numbers,
    )


def comm_gib(numbers: float, clients: float, rounds: float) -> float:
    """GB (2^30 bytes) that `rounds` rounds send: `numbers` floats down and up per client.

    Args:
      numbers: floats in a message; clients: that take part in a round.
    """
    return 2 * 4 * numbers * clients * rounds / UNITS["GB"]


def _check(exhibit: dict, averaged: dict[str, dict], metric: str, split: str) -> None:
    if metric not in METRICS:
        raise ConfigError(f"metric must be {' or '.join(METRICS)}, got {metric!r}")
    if split not in SPLITS:
        raise ConfigError(f"split must be {' or '.join(SPLITS)}, got {split!r}")
    names = [federation["name"] for federation in exhibit["federations"]]
    for federation, over in averaged.items():
        if federation not in names:
            raise ConfigError(
                f"averaged is about {federation}, which {exhibit['name']} does not show; it shows "
                f"{', '.join(names)}"
            )
        if len(over) != 1 or not over.keys() <= {*LENGTHS} or min(over.values()) < 1:
            raise ConfigError(
                f"averaged must have {' or '.join(LENGTHS)}, at least 1, got {over} for "
                f"{federation}"
            )


def _numbers(
    exhibit: dict,
    metrics: pd.DataFrame,
    published: pd.DataFrame | None,
    averaged: dict[str, dict],
    which: dict[str, str],
) -> pd.DataFrame:
    """Everything the table shows -> one row per federation and run."""
    where = PRIMARY._asdict() | {"at": "round"} | which
    curves = exhibits.pick(metrics, **where)
    traffic = exhibits.pick(metrics, at="last", **TRAFFIC._asdict())
    paper = {
        name: printed.fractions(published, exhibit["published"], name)
        for name in (which["metric"], "rounds", "gb")
    }
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            about = {"federation": federation["name"], "label": run["label"]}
            curve = exhibits.pick(curves, **about)
            if curve.empty:
                raise DataError(
                    f"{run['federation']}/{run['label']} was not evaluated on {which['split']} "
                    "examples during training"
                )
            rows.append(
                {
                    **identity(federation, run),
                    **_accuracy(curve, averaged.get(federation["name"], {"evaluations": 1})),
                    **_traffic(exhibits.pick(traffic, **about)),
                    **_printed(paper, which["metric"], (federation["dataset"], run["label"])),
                    "seeds": len(exhibit["seeds"]),
                }
            )
    numbers = pd.DataFrame(rows)
    pairs = zip(numbers["mean"], numbers["published"], strict=True)
    numbers["difference"] = [printed.off(*pair) for pair in pairs]
    numbers["gb_by_rule"] = comm_gib(
        numbers["message"], numbers["cohort"], numbers["published_rounds"]
    )
    numbers["gb_ratio"] = numbers["gb_by_rule"] / numbers["published_gb"]
    return notes.with_scale(exhibit, numbers.assign(**which))


def _accuracy(curve: pd.DataFrame, over: dict[str, int]) -> dict[str, float]:
    """Mean over the evaluations of each seed, then statistics over seeds."""
    if "rounds" in over:
        kept = curve[
            curve["round"] > curve.groupby("seed")["round"].transform("max") - over["rounds"]
        ]
    else:
        kept = curve.sort_values("round").groupby("seed").tail(over["evaluations"])
    by_seed = kept.groupby("seed")["value"].mean().reset_index()
    (found,) = over_seeds(by_seed.assign(run=0), ["run"]).to_dict("records")
    evaluations = int(kept.groupby("seed")["round"].count().max())
    return {**{name: found[name] for name in STATISTICS}, "evaluations": evaluations}


def _traffic(rows: pd.DataFrame) -> dict[str, float]:
    """Rounds done, what they sent, and message and cohort, means over seeds."""
    means = rows.groupby("metric")["value"].mean()
    rounds = float(exhibits.pick(rows, metric="bytes")["round"].mean())
    messages = 2 * means["client_rounds"]
    return {
        "rounds": rounds,
        "gb": means["bytes"] / UNITS["GB"],
        "message": means["bytes"] / 4 / messages if messages else 0.0,
        "cohort": means["client_rounds"] / rounds if rounds else 0.0,
    }


def _printed(paper: dict[str, dict], metric: str, where: tuple[str, str]) -> dict[str, float]:
    names = {"published": metric, "published_rounds": "rounds", "published_gb": "gb"}
    return {ours: paper[theirs].get(where, np.nan) for ours, theirs in names.items()}


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    """A row per run; without a published number its own alone."""
    mine = exhibits.pick(numbers, federation=federation["name"])
    accuracy = best_cells(mine["mean"].tolist(), percents(mine))
    compared = bool(mine["published"].notna().any())
    unit = "GB" if compared else readable(mine["gb"].max())
    sent = [Cell(_quantity(value * UNITS["GB"] / UNITS[unit])) for value in mine["gb"]]
    rounds = [Cell(f"{value:.0f}") for value in mine["rounds"]]
    message = [Cell(f"{value:,.0f}".replace(",", " ")) for value in mine["message"]]
    if compared:
        theirs = best_cells(
            mine["published"].tolist(), [percent(v, decimals=2) for v in mine["published"]], 2
        )
        columns = [
            (Column("published", "Accuracy"), theirs),
            (Column("reproduced", "Accuracy"), accuracy),
            (Column("difference", "Accuracy"), [Cell(points(v)) for v in mine["difference"]]),
            (Column("published", "Rounds"), [Cell(_count(v)) for v in mine["published_rounds"]]),
            (Column("reproduced", "Rounds"), rounds),
            (Column("published", "Sent (GB)"), [Cell(_quantity(v)) for v in mine["published_gb"]]),
            (Column("by rule", "Sent (GB)"), [Cell(_quantity(v)) for v in mine["gb_by_rule"]]),
            (Column("reproduced", "Sent (GB)"), sent),
        ]
    else:
        columns = [(Column("Accuracy"), accuracy), (Column("Rounds"), rounds)]
        columns += [(Column(f"Sent ({unit})"), sent)]
    columns += [
        (Column("Message"), message),
        (Column("Seeds"), [Cell(str(s)) for s in mine["seeds"]]),
    ]
    cells = [list(map(Cell, mine["title"])), *(column for _, column in columns)]
    rows = [list(row) for row in zip(*cells, strict=True)]
    return Block(federation["title"], [Column("Method"), *(head for head, _ in columns)], rows)


def _quantity(value: float) -> str:
    return ABSENT if np.isnan(value) else f"{value:.5g}"


def _count(value: float) -> str:
    return ABSENT if np.isnan(value) else f"{value:.0f}"


def _averaged_text(exhibit: dict, averaged: dict[str, dict]) -> str:
    """Over which evaluations accuracies are means, "after the last round" where nothing is said."""
    named = []
    for federation in exhibit["federations"]:
        for length, number in averaged.get(federation["name"], {}).items():
            of = (
                f"last {number} evaluations"
                if length == "evaluations"
                else (f"evaluations in the last {number} rounds")
            )
            named.append(f"{federation['title']} the mean of the {of}")
    return "; ".join(["after the last round", *named])


def _compared_notes(exhibit: dict) -> list[str]:
    rule = (
        "Difference: reproduced minus published, in percentage points. By rule: 8 bytes × message "
        "× clients per round × published rounds, with message and clients of these runs."
    )
    if exhibit["scale"] == exhibits.PAPER_SCALE:
        return [rule]
    return [rule, f"At scale {exhibit['scale']} models and rounds may be smaller than the paper's."]
