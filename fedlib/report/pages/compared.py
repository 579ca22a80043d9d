"""Two folders of results as one table: what was asked for, with which code, and what came out.

Numbers are those of the last evaluation. A run is in both folders if its paper, its federation, its
label and some seed are; its numbers are over the seeds that both have, and the difference is taken
seed by seed, which takes out what a seed does to both alike.
"""

import json
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pandas as pd

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report.metrics import INTERVAL_SEEDS, METRICS, over_seeds
from fedlib.report.pages.compared_clients import DECIMALS, interval_text, over_clients
from fedlib.report.pages.folders import RUN, Results, Run
from fedlib.report.pages.origin import FACT_TITLES, FACTS, attributes
from fedlib.report.tables.render import ABSENT, Block, Cell, Column, Sheet, points, with_spread
from fedlib.spec.exhibits import OF_PREDICTIONS

KEY = [*RUN, "group", "protocol", "split", "metric"]
SPREAD = ["mean", "std", "ci95", "low", "high", "seeds"]
FRACTIONS = {*(m.__name__ for m in METRICS), *OF_PREDICTIONS} - {"loss", "brier"}
NUMBERED = r"_\d+(?:_\d+)*$"  # ends the names of metrics of one expert, client or cell
CODE = ("code of training", "code of evaluation")
SHARDS = "shards"
DATA = "data."  # begins the names of what the shards are cut by


def sheet(first: Results, second: Results, words: Collection[str] = ()) -> Sheet:
    """The table of two folders: the second beside the first.

    Args:
      words: that must be in the rows of numbers that people are shown, in upper or lower case.

    Returns:
      The sheet, whose numbers have every metric of every run that is in both; the blocks for
      people leave out what is the same in both, and metrics of one expert, client or cell.

    Raises:
      DataError: if no run is in both, or a history or evaluation is damaged.
    """
    has, other = first.seeds(), second.seeds()
    both = {run: sorted({*has[run]} & {*other[run]}) for run in has if run in other}
    pairs = {run: seeds for run, seeds in both.items() if seeds}
    if not pairs:
        raise DataError(
            f"results/{first.name} and results/{second.name} have no run and seed in common: the "
            f"one has {_example(has)}, the other {_example(other)}"
        )
    asked, made, unknown = _differences(first, second, pairs)
    others = {run for (name, *_), runs in asked.items() if name == SHARDS for run in runs}
    table = numbers(first, second, pairs)
    table = table.merge(over_clients(first, second, pairs, others, KEY), on=KEY, how="left")
    names = (first.name, second.name)
    blocks = [
        *_texts("What was asked for", asked, names, pairs),
        *_texts("Code and machine", made, names, pairs),
        *_numbers(table, names, words),
    ]
    notes = [*_alike(asked, made, len(pairs) - len(unknown)), *_left_out(table)]
    if unknown:
        notes.append(
            f"Specification and code are not kept, so not compared: {_named(unknown, pairs)}."
        )
    return Sheet(
        label=f"compare-{first.name}-{second.name}",
        title=f"{first.name} and {second.name}",
        caption=f"Numbers are those of the last evaluation, means over the seeds that both have, "
        f"and the difference is {second.name} minus {first.name}, seed by seed. After ± is the "
        f"95 % interval of a mean, from {INTERVAL_SEEDS} seeds on, and in brackets the lowest and "
        "highest of two; a difference is bold where its interval leaves out zero. Over clients: "
        "the 95 % interval of the difference, client by client, and p of none.",
        blocks=blocks,
        notes=[*notes, *_only(first.name, has, other), *_only(second.name, other, has)],
        numbers=table,
    )


# --- Numbers --------------------------------------------------------------------------------------


def numbers(first: Results, second: Results, pairs: Mapping[Run, list[int]]) -> pd.DataFrame:
    """Every metric of the runs of `pairs`, each with the seeds that both folders have.

    Returns:
      `KEY`, then a_*, b_* and difference_*, with * each of `SPREAD`, see `over_seeds`.
    """
    a, b = (_chosen(results, pairs) for results in (first, second))
    both = a.merge(b, on=[*KEY, "seed"], suffixes=("_a", "_b"), validate="one_to_one")
    both = both.assign(value=both["value_b"] - both["value_a"])
    table = pd.concat([a[KEY], b[KEY]]).drop_duplicates()
    place = {run: number for number, run in enumerate(pairs)}
    table = table.iloc[np.argsort([place[*run] for run in table[RUN].to_numpy()], kind="stable")]
    for name, values in (("a", a), ("b", b), ("difference", both)):
        found = over_seeds(values, KEY)[[*KEY, *SPREAD]]
        table = table.merge(
            found.rename(columns={x: f"{name}_{x}" for x in SPREAD}), on=KEY, how="left"
        )
        table[f"{name}_seeds"] = table[f"{name}_seeds"].fillna(0).astype(int)
    return table


def _chosen(results: Results, pairs: Mapping[Run, list[int]]) -> pd.DataFrame:
    """`KEY`, seed and value of the common seeds of runs."""
    kept = [(*run, seed) for run, seeds in pairs.items() for seed in seeds]
    chosen = results.last.merge(pd.DataFrame(kept, columns=[*RUN, "seed"]), on=[*RUN, "seed"])
    return chosen[[*KEY, "seed", "value"]]


def _same(table: pd.DataFrame) -> pd.Series:
    """Whether every seed has the same number in both."""
    complete = (table["a_seeds"] == table["b_seeds"]) & (table["difference_seeds"] > 0)
    return complete & (table["difference_low"] == 0) & (table["difference_high"] == 0)


def _numbered(table: pd.DataFrame) -> pd.Series:
    return table["metric"].str.contains(NUMBERED)


def _numbers(
    table: pd.DataFrame, names: tuple[str, str], words: Collection[str]
) -> Iterator[Block]:
    """A block for each paper that has such rows."""
    columns = ["run", "of", "metric", *names, "difference", "[over clients]", "seeds"]
    for paper, rows in table[~_same(table) & ~_numbered(table)].groupby("paper", sort=False):
        cells = [_row(row) for row in rows.to_dict("records")]
        cells = [row for row in cells if _has(words, paper, *(cell.text for cell in row[:3]))]
        if cells:
            yield Block(paper, [Column(title) for title in columns], cells, num_keys=3)


def _has(words: Collection[str], *texts: str) -> bool:
    found = " ".join(texts).lower()
    return all(word.lower() in found for word in words)


def _row(row: dict) -> list[Cell]:
    percent = row["metric"] in FRACTIONS
    a, b, change = ({x: row[f"{name}_{x}"] for x in SPREAD} for name in ("a", "b", "difference"))
    plain, signed = (_percent, _points) if percent else (_plain, _signed)
    leaves_out_zero = abs(change["mean"]) > change["ci95"]  # False without an interval
    return [
        Cell(f"{row['federation']}/{row['label']}"),
        Cell(" ".join(row[name] for name in ("group", "protocol", "split") if row[name])),
        Cell(row["metric"] + ", %" * percent),
        Cell(with_spread(a, "ci95", plain)),
        Cell(with_spread(b, "ci95", plain)),
        Cell(with_spread(change, "ci95", signed, plain), bold=leaves_out_zero),
        Cell(interval_text(row)),
        Cell(str(change["seeds"] or ABSENT)),
    ]


def _percent(value: float) -> str:
    return f"{100 * value:.{DECIMALS}f}"


def _points(value: float) -> str:
    return points(value, DECIMALS)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return sign + _plain(abs(value))


# --- Specification and code -----------------------------------------------------------------------

# Runs by what differs in them: its name, and its values in the one and in the other folder.
Differences = dict[tuple[str, str, str], list[Run]]


def _differences(
    first: Results, second: Results, pairs: Mapping[Run, list[int]]
) -> tuple[Differences, Differences, list[Run]]:
    """What differs in specification, and in code and machine; and runs of which nobody knows."""
    asked: Differences = {}
    made: Differences = {}
    unknown = []
    for run, seed in ((run, seed) for run, seeds in pairs.items() for seed in seeds):
        a, b = (_kept(results, run, seed) for results in (first, second))
        if a is None or b is None:
            unknown += [run] if run not in unknown else []
            continue
        if not (_has_data(a) and _has_data(b)):  # shards of one are deleted: digests remain
            a, b = _without_data(a), _without_data(b)
        for found, what in ((asked, "asked"), (made, "made")):
            for difference in _different(a[what], b[what]):
                runs = found.setdefault(difference, [])
                runs += [run] if run not in runs else []
    return asked, made, unknown


def _kept(results: Results, run: Run, seed: int) -> dict | None:
    """What was asked for and how it was made, of a run and seed, flat; None if it is not kept.

    Raises:
      DataError: if a file is damaged.
    """
    files = [results.path(name, run, seed) for name in ("history", "evaluation")]
    if not all(file.exists() for file in files):
        return None
    (provenance, spec), (evaluated, _) = map(attributes, files)
    spec.pop("data", None)  # a digest; what it stands for is in the manifest
    asked = _flat(spec) | {SHARDS: provenance.get("manifest_sha256")}
    for replicate in (f"/seed{seed}", ""):
        manifest = results.path("manifest", run, seed, replicate=replicate)
        if manifest.exists():
            asked |= _flat(seals.read_json(manifest, has=("spec",))["spec"], DATA)
            break
    made = {FACT_TITLES.get(name, name): provenance.get(name) for name in FACTS}
    codes = dict(zip(CODE, (provenance.get("code"), evaluated.get("code")), strict=True))
    return {"asked": asked, "made": codes | made}


def _has_data(kept: dict) -> bool:
    return any(name.startswith(DATA) for name in kept["asked"])


def _without_data(kept: dict) -> dict:
    return kept | {"asked": {k: v for k, v in kept["asked"].items() if not k.startswith(DATA)}}


def _flat(spec: Mapping, prefix: str = "") -> dict[str, object]:
    """{"local.lr": 0.1} of {"local": {"lr": 0.1}}"""
    found: dict[str, object] = {}
    for key, value in spec.items():
        nested = isinstance(value, Mapping) and value
        found |= _flat(value, f"{prefix}{key}.") if nested else {prefix + key: value}
    return found


def _different(a: Mapping, b: Mapping) -> Iterator[tuple[str, str, str]]:
    for key in {**a, **b}:
        if key not in a or key not in b or a[key] != b[key]:
            # Digests tell nobody anything but that they differ.
            digest = key in (*CODE, SHARDS)
            yield (key, "one", "another") if digest else (key, _value(a, key), _value(b, key))


def _value(values: Mapping, key: str) -> str:
    value = values.get(key)
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return ("no", "yes")[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts(
    heading: str, found: Differences, names: tuple[str, str], common: Collection[Run]
) -> Iterator[Block]:
    """The differences as a block, none if there is none; those of the same name come together."""
    places = list(dict.fromkeys(name for name, _, _ in found))
    rows = [
        [*map(Cell, difference), Cell(_named(found[difference], common))]
        for difference in sorted(found, key=lambda difference: places.index(difference[0]))
    ]
    if rows:
        titles = [Column(title) for title in ("what differs", *names, "runs")]
        yield Block(heading, titles, rows, num_keys=len(titles))


# --- Notes ----------------------------------------------------------------------------------------


def _alike(asked: Differences, made: Differences, number: int) -> Iterator[str]:
    """That something which a reader asks for does not differ in so many runs."""
    runs = f"{number} run{'s' * (number > 1)} in both"
    if number and not asked:
        yield f"What was asked for is the same: specification and data of {runs}."
    if number and not any(name in CODE for name, _, _ in made):
        yield f"The code is the same: no digest of training or evaluation differs in {runs}."


def _left_out(table: pd.DataFrame) -> Iterator[str]:
    """How many numbers the blocks for people leave out, and why."""
    numbered, same = _numbered(table), _same(table)
    if (same & ~numbered).any():
        yield f"{(same & ~numbered).sum()} numbers are the same in both and not shown."
    if numbered.any():
        yield (
            f"{numbered.sum()} numbers of one expert, client or cell are in the csv alone; "
            f"{(numbered & ~same).sum()} of them differ."
        )


def _only(name: str, has: Mapping[Run, list[int]], other: Mapping[Run, list[int]]) -> Iterator[str]:
    """What is in one folder alone: runs, and seeds of runs that are in both."""
    runs = [run for run in has if run not in other]
    if runs:
        yield f"Only in {name}: {_named(runs, has)}."
    more: dict[tuple[int, ...], list[Run]] = {}
    for run in has:
        alone = {*has[run]} - {*other.get(run, has[run])}
        if alone:
            more.setdefault(tuple(sorted(alone)), []).append(run)
    for seeds, runs in more.items():
        number = f"Seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        yield f"{number} only in {name}: {_named(runs, has)}."


def _named(runs: list[Run], every: Collection[Run]) -> str:
    """Runs by name; where all that a paper or federation has are among them, by its name."""
    names: dict[str, None] = {}
    for run in runs:
        for depth in (0, 1, 2, 3):
            of_it = [other for other in every if other[:depth] == run[:depth]]
            if depth == 3 or (len(of_it) > 1 and {*of_it} <= {*runs}):
                names["/".join(run) if depth == 3 else "all" + _of(run[:depth])] = None
                break
    return ", ".join(names)


def _of(names: tuple[str, ...]) -> str:
    return f" of {'/'.join(names)}" if names else ""


def _example(has: Mapping[Run, list[int]]) -> str:
    first, *more = has
    seeds = ", ".join(map(str, has[first]))
    return f"{'/'.join(first)} (seeds {seeds})" + (f" and {len(more)} more" if more else "")
