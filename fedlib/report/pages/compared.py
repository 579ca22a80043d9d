"""Two folders of results as one table: the numbers of all last evaluations, side by side.

A run is in both folders if they share its paper, federation, label and at least one seed. Its
numbers are over the common seeds. Differences are paired by seed, which cancels a seed's effect on
both.
"""

from collections.abc import Collection, Iterator
from functools import partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import frames
from fedlib.report.metrics import INTERVAL_SEEDS, METRICS, over_seeds
from fedlib.report.tables.render import ABSENT, Block, Cell, Column, Sheet, points, with_spread
from fedlib.spec.exhibits import OF_PREDICTIONS

RUN = ["paper", "federation", "label"]
KEY = [*RUN, "group", "protocol", "split", "metric"]
SPREAD = ["mean", "std", "ci95", "low", "high", "seeds"]
FRACTIONS = {*(m.__name__ for m in METRICS), *OF_PREDICTIONS} - {"loss", "brier"}
NUMBERED = r"_\d+(?:_\d+)*$"  # end of the names of metrics of one expert, client or cell
DECIMALS = 2  # of percent


class Results(NamedTuple):
    """A folder of results: its name below results/, and its metrics at the last evaluation."""

    name: str
    last: pd.DataFrame

    def runs(self) -> pd.DataFrame:
        """Its runs, a row for each seed."""
        return self.last[[*RUN, "seed"]].drop_duplicates()


def read(results: Path, name: str) -> Results:
    """The folder of that name in the folder `results`.

    Raises:
      ConfigError: if there is no such folder.
      DataError: if its metrics are missing or damaged.
    """
    beside = sorted(path.parent.name for path in results.glob("*/metrics"))
    if name not in beside and name not in (path.name for path in results.glob("*/")):
        there = ", ".join(beside) or "none yet"
        raise ConfigError(f"there are no results named {name!r}; in results/ there are {there}")
    files = sorted((results / name).glob("metrics/*.parquet"))
    found = [frames.read_parquet(file) for file in files if file.suffixes[-2:-1] != [".clients"]]
    if not found:
        raise DataError(f"results/{name} has no metrics yet; the workflow makes them")
    last = [metrics[metrics["at"] == "last"] for metrics in found]
    return Results(name, pd.concat(last, ignore_index=True))


def sheet(first: Results, second: Results, words: Collection[str] = ()) -> Sheet:
    """The table of two folders: the second beside the first.

    Args:
      words: must all be in the rows shown to people, in upper or lower case.

    Returns:
      The sheet, whose numbers have every metric of every common run; the blocks for people leave
      out equal numbers, and metrics of one expert, client or cell.

    Raises:
      DataError: if no run is in both.
    """
    table, names = numbers(first, second), (first.name, second.name)
    if table.empty:
        raise DataError(
            f"results/{first.name} and results/{second.name} have no run and seed in common: the "
            f"one has {_some(first.runs())}, the other {_some(second.runs())}"
        )
    return Sheet(
        label=f"compare-{first.name}-{second.name}",
        title=f"{first.name} and {second.name}",
        caption=f"Numbers are those of the last evaluation, means over the seeds that both have, "
        f"and the difference is {second.name} minus {first.name}, seed by seed. After ± is the "
        f"95 % interval of a mean, from {INTERVAL_SEEDS} seeds on, and in brackets the lowest and "
        "highest of two; a difference is bold where its interval leaves out zero.",
        blocks=[*_blocks(table, names, words)],
        notes=[*_left_out(table), *_only(first, second), *_only(second, first)],
        numbers=table,
    )


def numbers(first: Results, second: Results) -> pd.DataFrame:
    """Every metric of the common runs, over the common seeds.

    Returns:
      `KEY`, then a_*, b_* and difference_*, with * each of `SPREAD`, see `over_seeds`.
    """
    common = first.runs().merge(second.runs())
    a, b = (results.last.merge(common)[[*KEY, "seed", "value"]] for results in (first, second))
    both = a.merge(b, on=[*KEY, "seed"], suffixes=("_a", "_b"), validate="one_to_one")
    both = both.assign(value=both["value_b"] - both["value_a"])
    table = pd.concat([a[KEY], b[KEY]]).drop_duplicates()
    for name, values in (("a", a), ("b", b), ("difference", both)):
        found = over_seeds(values, KEY)[[*KEY, *SPREAD]]
        table = table.merge(
            found.rename(columns={x: f"{name}_{x}" for x in SPREAD}), on=KEY, how="left"
        )
        table[f"{name}_seeds"] = table[f"{name}_seeds"].fillna(0).astype(int)
    return table


def _same(table: pd.DataFrame) -> pd.Series:
    """Whether every seed has equal numbers in both folders."""
    complete = (table["a_seeds"] == table["b_seeds"]) & (table["difference_seeds"] > 0)
    return complete & (table["difference_low"] == 0) & (table["difference_high"] == 0)


def _numbered(table: pd.DataFrame) -> pd.Series:
    return table["metric"].str.contains(NUMBERED)


def _blocks(table: pd.DataFrame, names: tuple[str, str], words: Collection[str]) -> Iterator[Block]:
    """A block for each paper with rows to show."""
    columns = [*map(Column, ("run", "of", "metric", *names, "difference", "seeds"))]
    for paper, rows in table[~_same(table) & ~_numbered(table)].groupby("paper", sort=False):
        cells = [_row(row) for row in rows.to_dict("records")]
        texts = [" ".join([paper, *(cell.text for cell in row[:3])]).lower() for row in cells]
        wanted = [all(word.lower() in text for word in words) for text in texts]
        if any(wanted):
            yield Block(paper, columns, [*compress(cells, wanted)], num_keys=3)


def _row(row: dict) -> list[Cell]:
    percent = row["metric"] in FRACTIONS
    a, b, change = ({x: row[f"{name}_{x}"] for x in SPREAD} for name in ("a", "b", "difference"))
    plain, signed = (_percent, partial(points, decimals=DECIMALS)) if percent else (_plain, _signed)
    leaves_out_zero = abs(change["mean"]) > change["ci95"]  # False without an interval
    return [
        Cell(f"{row['federation']}/{row['label']}"),
        Cell(" ".join(row[name] for name in ("group", "protocol", "split") if row[name])),
        Cell(row["metric"] + ", %" * percent),
        Cell(with_spread(a, "ci95", plain)),
        Cell(with_spread(b, "ci95", plain)),
        Cell(with_spread(change, "ci95", signed, plain), bold=leaves_out_zero),
        Cell(str(change["seeds"] or ABSENT)),
    ]


def _percent(value: float) -> str:
    return f"{100 * value:.{DECIMALS}f}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return sign + _plain(abs(value))


def _left_out(table: pd.DataFrame) -> Iterator[str]:
    """Sentences on the numbers that the blocks for people leave out."""
    numbered, same = _numbered(table), _same(table)
    if (same & ~numbered).any():
        yield f"{(same & ~numbered).sum()} numbers are the same in both and not shown."
    if numbered.any():
        yield (
            f"{numbered.sum()} numbers of one expert, client or cell are in the csv alone; "
            f"{(numbered & ~same).sum()} of them differ."
        )


def _only(results: Results, other: Results) -> Iterator[str]:
    """A sentence with the runs and seeds that only `results` has, if there are any."""
    runs = results.runs().merge(other.runs(), how="left", indicator="where")
    if len(alone := runs[runs["where"] == "left_only"]):
        yield f"Only in {results.name}: {_named(alone)}."


def _named(runs: pd.DataFrame) -> str:
    """Runs with their seeds."""
    seeds = runs.groupby(RUN, sort=False)["seed"].apply(lambda seeds: ", ".join(map(str, seeds)))
    return "; ".join(f"{'/'.join(run)} (seeds {some})" for run, some in seeds.items())


def _some(runs: pd.DataFrame) -> str:
    """The first run with its seeds, and the number of further runs."""
    first = runs[(runs[RUN] == runs[RUN].iloc[0]).all(axis="columns")]
    more = len(runs[RUN].drop_duplicates()) - 1
    return _named(first) + (f" and {more} more" if more else "")
