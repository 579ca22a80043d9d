"""Grids of the clients' accuracy: moments, views, ways to predict, their spreads, and leads.

All but moments are after the last round. Examples of views are clients that trained, a new client
with labels, and a new shard without labels. The ways to predict of `protocol_grid` are of the same
trainings; its deviations are over trials, which are seeds here. A lead is that over the best of
each group of other methods, such as a paper's category: a difference of two means over seeds.
"""

from collections.abc import Iterable
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedlib.report import comparisons, exhibits, notes, printed
from fedlib.report.exhibits import METRIC_TITLES
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.tables import grid, sheets
from fedlib.report.tables.grid import Layout, Spot, lay_out
from fedlib.report.tables.render import ABSENT, Block, Column, Sheet, percent, points
from fedlib.report.tables.sheets import RUN, STATISTICS, Columns, TableInputs, block, texts
from fedlib.results import SHARED
from fedlib.spec import Data, ExhibitSpec, Run
from fedlib.spec.tables import SpreadPair, ViewColumn

SPLITS = {"train": "training", "val": "validation", "test": "test", SHARED: "shared test"}
DATASET = "unspecified"  # of published ranges of gains
DIFFERENCE = "Difference: reproduced at the best round minus published, in percentage points."
DECIMALS = 2  # as papers with several protocols print numbers


def _measure(given: TableInputs, columns: list[dict], moments: dict, **more: Any) -> pd.DataFrame:
    """`grid.measure_spots` of all runs at some moments, by prefix."""
    spots = ((*run, column) for run in given.runs for column in columns)
    return _at(given, spots, moments, **more)


def _at(given: TableInputs, spots: Iterable[Spot], moments: dict, **more: Any) -> pd.DataFrame:
    """`grid.measure_spots` of some spots at some moments, by prefix."""
    key = "federation", "label", *PRIMARY._fields, "metric"
    found = {prefix: given.over_seeds(*key, at=at) for prefix, at in moments.items()}
    return grid.measure_spots(given, spots, found, **more)


def accuracy(given: TableInputs) -> Sheet:
    """The main table of a paper; its numbers have one row per federation, run and metric."""
    best = exhibits.pick(given.rows, at="best", metric="accuracy", **PRIMARY._asdict())
    rounds = best.groupby(["federation", "label"])["round"].mean()
    numbers = _measure(
        given,
        [{"column": title, **PRIMARY._asdict(), "metric": m} for m, title in METRIC_TITLES.items()],
        {"": "last", "best_": "best"},
        more=lambda data, run, _: {"best_round_mean": rounds[data.name, run.label]},
    )
    bests = (f"best_{name}" for name in (*STATISTICS, "round_mean"))
    return grid.sheet(
        given,
        numbers,
        partial(lay_out, Layout({"last": "", "best": "best_"}, printed=1)),
        notes.measurement(given.exhibit),
        "All: right predictions over all test examples of the clients that train. Bottom-10%: "
        "accuracy of the floor(C/10)-th worst of C clients, at least the worst.",
        f"Last: after the last round. {notes.BEST}",
        sheets.is_compared(numbers) * f"{DIFFERENCE} " + sheets.HIGHEST,
        names=(*RUN, "metric", "published", *STATISTICS, "seeds", *bests, "difference"),
        unpublished=_gap_notes(numbers),
    )


def _gap_notes(numbers: pd.DataFrame) -> list[str]:
    """Notes of runs without a published number; none if all lack one, which another note says."""
    where: dict[str, list[str]] = {}  # titles of the runs, and of the federations
    for title, mine in numbers.groupby("block", sort=False):
        known = mine["published"].notna().groupby(mine["title"], sort=False).any()
        runs = ", ".join(known.index[~known]) if known.any() else "all methods"
        where.setdefault(runs, []).extend([] if known.all() else [str(title)])
    found = [f"No published number: {runs} on {', '.join(on)}." for runs, on in where.items() if on]
    return found if sheets.is_compared(numbers) else []


class Unrun(NamedTuple):
    """A method that is published but not run here."""

    label: str
    title: str


def beside_published(given: TableInputs) -> Sheet:
    """Accuracy beside numbers of several sources; one row per federation and run or other method.

    The published exhibit of a federation is "<source>-<name>", under the label of the run. A
    failure to converge is shown in words.
    """
    exhibit, kind = given.exhibit, given.kind
    unrun = [*starmap(Unrun, (kind.others or {}).items())]
    common = {"column": "", **PRIMARY._asdict(), "metric": comparisons.MEAN}
    spots = (
        (data, run, common | _source(given, data, run.label))
        for data in exhibit.federations
        for run in [*exhibits.runs_of(exhibit, data.name), *unrun]
    )
    moments = {"": "last", "best_": "best"}
    every = _at(given, spots, moments, more=lambda _, run, __: {"seeds": 0} if run in unrun else {})
    numbers = every[(every["seeds"] > 0) | (every["source"] != "")]
    known = {*numbers["source"]}
    compared = known != {""}
    note = notes.comparison(exhibit, shown=compared)
    if compared and exhibit.scale == exhibits.PAPER_SCALE:
        note = ["Published numbers are those of the marked sources, with settings of their own."]
    best = (f"best_{name}" for name in STATISTICS)
    theirs = "metric", "published", "published_std", "converged", "source"
    return given.sheet(
        numbers[[*RUN, *theirs, printed.ROW, *STATISTICS, *best, "seeds", "difference"]],
        given.blocks(numbers, partial(lay_out, Layout({"last": "", "best": "best_"}))),
        notes.measurement(exhibit),
        f"{comparisons.METRICS[comparisons.MEAN].capitalize()}. Last: after the last round. "
        f"{notes.BEST} Difference: best minus published, in percentage points. {sheets.HIGHEST}",
        *(f"{x['mark']}: {x['title']}." for x in kind.sources if x["name"] in known),
        *note,
    )


def _source(given: TableInputs, federation: Data, label: str) -> dict:
    """The first source with a number: its name and mark, and what it says of the number."""
    found = {"source": "", "exhibit": "", "published_std": np.nan, "converged": True, "mark": ""}
    for source in given.kind.sources:
        exhibit = f"{source['name']}-{given.kind.names.get(federation.name)}"
        value, std, converged = (
            comparisons.find_published(given, federation, label, label, metric, exhibit)
            for metric in (comparisons.MEAN, f"{comparisons.MEAN}_std", "converged")
        )
        found |= {"exhibit": exhibit}
        if not np.isnan([value, converged]).all():
            about = {"source": source["name"], "mark": f" {source['mark']}"}
            return found | about | {"published_std": std, "converged": converged != 0}
    return found


def views(given: TableInputs) -> Sheet:
    """Views side by side; its numbers have one row per federation, run and column.

    The exhibit's `published` is a pattern, see `fedlib.report.comparisons.find_published`; the
    numbers are under the column's key and metric.
    """
    declared = given.kind.entries("columns")
    columns = [grid.column_fields(one) | {"key": one.key or one.protocol} for one in declared]
    numbers = _measure(given, columns, {"": "last"})
    known = numbers.groupby("column", sort=False)["mean"].count()
    absent = "; ".join(known.index[known == 0])
    view = (*PRIMARY._fields, "metric", "key", "published")
    return grid.sheet(
        given,
        numbers,
        partial(lay_out, Layout({"reproduced": ""})),
        notes.measurement(given.exhibit),
        f"After the last round. A dash: the run was not evaluated so. {sheets.HIGHEST}",
        f"Not shown, as no run here was evaluated so: {absent}." if absent else "",
        *(f"{column.title}: {_meaning(column)}." for column in declared),
        sheets.DIFFERENCE if sheets.is_compared(numbers) else "",
        names=(*RUN, "column", *view, *STATISTICS, "difference", "seeds"),
    )


def _meaning(column: ViewColumn) -> str:
    """A column's meaning in words."""
    text = f"{comparisons.METRICS[column.metric]}, {SPLITS[column.split]} examples of the "
    text += comparisons.GROUPS[column.group]
    if column.protocol == PRIMARY.protocol:
        return text
    return f"{text}, protocol {column.protocol.replace('_', ' ')}"


def protocol_grid(given: TableInputs) -> Sheet:
    """Ways to predict; its numbers have one row per federation, run and protocol.

    The exhibit's `published` is a pattern, see `fedlib.report.comparisons.find_published`. Under
    each protocol's key are the published metrics "accuracy" and "accuracy_std", and "num_trials" of
    the label "all".

    Raises:
      ConfigError, DataError: see `fedlib.report.comparisons`.
    """
    exhibit, parameter = given.exhibit, given.kind.parameter
    protocols = comparisons.complete_protocols(given.kind.entries("protocols"))
    comparisons.accuracies(given, protocols)

    def more(federation: Data, run: Run, column: dict) -> dict:
        number = partial(comparisons.find_published, given, federation, run.label)
        setting = exhibits.setting(parameter, federation) if parameter else federation.title
        return {
            "block": federation.family if parameter else "",
            "head": exhibits.setting_text(setting),
            "run": run.title,
            "title": f"{column['column']} ({run.title})",
            "published_std": number(column["key"], "accuracy_std"),
            "published_trials": number("all", "num_trials"),
        }

    common = {**PRIMARY._asdict(), "metric": comparisons.MEAN, "printed": "accuracy"}
    columns = [common | {"column": x.title, "protocol": x.name, "key": x.key} for x in protocols]
    numbers = _measure(given, columns, {"": "last"}, more=more, decimals=DECIMALS)
    heads = (parameter.rpartition(".")[2] if parameter else "Data", "head"), ("Run", "run")
    both = (sheets.DIFFERENCE, "Bold: highest of the row, published and reproduced apart.")
    layout = Layout({"reproduced": ""}, heads, DECIMALS, spread="std", by_row=True, after=_trials)
    return grid.sheet(
        given,
        numbers,
        partial(lay_out, layout),
        notes.measurement(
            exhibit,
            f"Percent, {comparisons.METRICS[comparisons.MEAN]}, on the test examples of the "
            "clients that train, after the last round; ",
            "deviation",
        ),
        *comparisons.selection_note(exhibit),
        *(both if sheets.is_compared(numbers) else ["Bold: highest of the row."]),
        notes.parameter(parameter),
        names=(
            *(*RUN, "run", "protocol", "published", "published_std", "published_trials"),
            *(*STATISTICS, "seeds", "difference", "metric", "group"),
        ),
        num_keys=len(heads),
    )


def _trials(first: pd.DataFrame) -> Columns:
    """The numbers of seeds, published and here."""
    theirs, here = texts(first["published_trials"], ".0f"), {"reproduced": texts(first["seeds"])}
    return sheets.beside("Trials", theirs, here, compared=sheets.is_compared(first))


def spreads(given: TableInputs) -> Sheet:
    """Spreads over seeds, one below another; its numbers have one row per federation and pair."""
    exhibit, pairs = given.exhibit, given.kind.entries("pairs")
    where = {"at": "last", "group": PRIMARY.group, "split": PRIMARY.split}
    stds = given.over_seeds("federation", "label", "protocol", metric=comparisons.MEAN, **where)
    found = pd.DataFrame(
        {"federation": data.name, "column": pair.title, "mean": _reduction(stds, data, pair)}
        for data in exhibit.federations
        for pair in pairs
    )
    ours = found.set_index(["federation", "column"]).reindex(columns=[*STATISTICS])
    spots = (
        (data, run, {"column": pair.title, "metric": pair.printed, "key": given.kind.key})
        for data, run in given.runs
        for pair in pairs
        if run.label == pair.less.split("/")[0]
    )
    return grid.sheet(
        given,
        grid.measure_spots(given, spots, {"": ours}, decimals=DECIMALS),
        partial(lay_out, Layout({"reproduced": ""}, [("Data", "block")], DECIMALS)),
        f"One minus the ratio of two standard deviations over {notes.seeds(exhibit)}, of the "
        f"{comparisons.METRICS[comparisons.MEAN]} after the last round. {notes.rounds(exhibit)}",
        names=(*RUN, "column", "metric", "key", "published", "mean", "difference", "seeds"),
    )


def _reduction(stds: pd.DataFrame, data: Data, pair: SpreadPair) -> float:
    """One minus the ratio of the deviations of a pair; NaN without one of them, or over 0."""
    ways = ((data.name, *way.split("/")) for way in (pair.less, pair.more))
    less, more = (sheets.statistics(stds, way)["std"] for way in ways)
    return 1 - less / more if more else np.nan


def gains(given: TableInputs) -> Sheet:
    """Leads, beside published ranges; its numbers have one row per federation and group."""
    exhibit, kind = given.exhibit, given.kind
    where = {"at": "best", "metric": comparisons.MEAN, **PRIMARY._asdict()}
    means = given.over_seeds("federation", "label", **where)["mean"]
    numbers = pd.DataFrame(
        _gain(exhibit, means.loc[federation.name], federation, group, kind.of)
        for federation in exhibit.federations
        for group in kind.groups
    )
    ranges = [_range(given, kind.of, group) for group in kind.groups]
    found = grid.sheet(
        given,
        numbers,
        _leads,
        f"Gain of {exhibits.titles(exhibit)[kind.of]} over the best of a group, in percentage "
        f"points: {comparisons.METRICS[comparisons.MEAN]}, at each seed's round with the highest "
        f"test accuracy, a selection on the test examples; mean over "
        f"{notes.seeds(exhibit)}. {notes.rounds(exhibit)}",
        num_keys=2,
        compared=not np.isnan(ranges).all(),
    )
    found.blocks.append(_ranges(numbers, kind.groups, ranges))
    return found


def _gain(exhibit: ExhibitSpec, here: pd.Series, federation: Data, group: dict, of: str) -> dict:
    """The row of one federation and group; `here` are its means."""
    others = here[here.index.isin(group["labels"])].drop(of, errors="ignore")
    best = others.idxmax()
    return {
        "block": federation.title,
        "federation": federation.name,
        "dataset": federation.dataset,
        "group": group["title"],
        "label": best,
        "title": exhibits.titles(exhibit)[best],
        "other": others[best],
        "mean": here[of],
        "gain": printed.difference(here[of], others[best], decimals=2),
    }


def _range(given: TableInputs, of: str, group: dict) -> list[float]:
    """The smallest and the largest published gain; NaN where there is none."""
    ends = (given.paper_numbers(f"{group['gain']}_{end}") for end in ("min", "max"))
    return [values.get((DATASET, of), np.nan) for values in ends]


def _leads(mine: pd.DataFrame) -> Columns:
    """A row per group."""
    yield Column("Over the best of"), texts(mine["group"])
    yield Column("which is"), texts(mine["title"])
    yield Column("with"), texts(percent(value, decimals=2) for value in mine["other"])
    yield Column("of the method"), texts(percent(value, decimals=2) for value in mine["mean"])
    yield Column("gain"), texts(points(value, 2) for value in mine["gain"])


def _ranges(numbers: pd.DataFrame, groups: list[dict], ranges: list[list[float]]) -> Block:
    """Smallest and largest gain of each group, published and here."""
    mine = [exhibits.pick(numbers, group=group["title"])["gain"] for group in groups]
    columns = (
        (Column("Smallest to largest gain over"), texts(group["title"] for group in groups)),
        (Column("published"), texts(map(_ends, ranges))),
        (Column("here"), texts(_ends([gains.min(), gains.max()]) for gains in mine)),
    )
    return block("Ranges", columns)


def _ends(values: list[float]) -> str:
    if np.isnan(values).all():
        return ABSENT
    return " to ".join(dict.fromkeys(points(value, 2) for value in values))
