"""Accuracy of one model for all clients on the server's test examples: a row per run.

A column is a federation, or the gain on one federation over another, such as a reserved set with
even classes over a skewed one. If the paper prints a run under several names, such as a sweep's
point that is also in the main table, each name has a row.

Every run has two states: after its last round, and of least loss on the server's validation
examples, even if the method does not use these.
"""

import numpy as np
import pandas as pd

from fedlib.report import exhibits, printed
from fedlib.report.metrics import SERVER, over_seeds
from fedlib.report.tables import notes, render, sheets
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, block, differences, texts
from fedlib.spec.server import ServerColumn, ServerRow

AVERAGE = "Average"
ROUNDED = 1e-4  # greatest difference of a printed average from the average of printed numbers
ALL = "all"  # data set of published averages
MEASURED = (
    "On the test examples of the server. Last: the model after the last round. Chosen: the one "
    "with the least loss on the server's validation examples; of all states that training saw "
    "where the method itself predicts with it, of the evaluated ones elsewhere. Bold: highest of "
    "the column."
)
DIFFERENT = (
    "Difference: chosen, or last where nothing was chosen, minus published, in percentage points."
)
LAST = "last_"  # prefix of its statistics
CHOICE = "selected_round"  # metric of methods that choose a state themselves
PREDICTS = (SERVER.protocol, "last")  # protocols of rows without one of their own
RUN = ["federation", "label", "seed"]


def build(given: TableInputs) -> Sheet:
    """The table, a block per family of federations; its numbers have one row per run and column.

    Rows and columns are left out if their runs are not in the exhibit.
    """
    exhibit, kind = given.exhibit, given.kind
    shown, wanted = _columns(given), _rows(given)
    numbers = _numbers(given, shown, wanted)
    blocks = [
        _block(family, part, kind.head) for family, part in numbers.groupby("family", sort=False)
    ]
    if kind.average is not None:
        means = _averages(numbers, printed.fractions(given.published, kind.average), wanted)
        numbers = pd.concat([numbers, means], ignore_index=True)
        blocks.append(_block(AVERAGE, means, kind.head))
    is_different = numbers["difference"].notna().any()
    return given.sheet(
        numbers,
        blocks,
        notes.measured(exhibit),
        f"{MEASURED} {DIFFERENT}" if is_different else MEASURED,
        *exhibits.published_note(exhibit, shown=sheets.is_compared(numbers)),
    )


def _columns(given: TableInputs) -> list[ServerColumn]:
    """The columns whose federations are in the exhibit."""
    there = {federation["name"] for federation in given.exhibit["federations"]}
    own = given.exhibit["published"] or ""
    return [
        column._replace(published=column.published or own)
        for column in given.kind.formed("columns")
        if {column.federation, column.minus or column.federation} <= there
    ]


def _rows(given: TableInputs) -> list[ServerRow]:
    """The rows whose runs are in the exhibit, then its other runs, such as a user's."""
    titles, rows = exhibits.titles(given.exhibit), given.kind.formed("rows")
    named = {row.label for row in rows}
    rows += [ServerRow(label) for label in titles if label not in named]
    return [
        row._replace(title=row.title or titles[row.label], printed=row.printed or row.label)
        for row in rows
        if row.label in titles
    ]


def _reproduced(
    given: TableInputs, shown: list[ServerColumn], rows: list[ServerRow]
) -> dict[str, pd.DataFrame]:
    """`over_seeds` of every run, protocol and column, by state; see `_columnwise`."""
    mine = given.rows
    copies = [
        exhibits.pick(mine, label=row.label, federation=of).assign(federation=name)
        for row in rows
        for name, of in row.elsewhere.items()
    ]
    mine = pd.concat([mine, *copies])
    runs = [tuple(run) for run in exhibits.pick(mine, metric=CHOICE)[RUN].to_numpy()]
    server = exhibits.pick(mine, group=SERVER.group, split=SERVER.split)
    predicts = exhibits.pick(server, protocol=SERVER.protocol)
    last, chosen = (exhibits.pick(predicts, at=at) for at in ("last", "chosen"))
    later = exhibits.pick(server, at="last", protocol="last")
    chose = pd.MultiIndex.from_frame(last[RUN]).isin(runs)
    # Metrics of the last round alone, such as F1: where a method chose, they are of that state.
    only = last[chose & ~last["metric"].isin(chosen["metric"])]
    states = {"last": [last[~chose], later], "chosen": [chosen, only]}
    for protocol in dict.fromkeys(row.protocol for row in rows if row.protocol):
        for state, name in (("chosen", protocol), ("last", f"{LAST}{protocol}")):
            own = exhibits.pick(server, at="last", protocol=name)
            states[state].append(own.assign(protocol=protocol))
    return {state: _columnwise(pd.concat(found), shown) for state, found in states.items()}


def _columnwise(rows: pd.DataFrame, shown: list[ServerColumn]) -> pd.DataFrame:
    """`over_seeds` -> DataFrame indexed by label, a row's protocol and the column's place"""
    rows = rows.assign(protocol=rows["protocol"].replace(dict.fromkeys(PREDICTS, "")))
    key = ["label", "protocol", "seed", "federation", "metric"]
    values = rows.set_index(key)["value"].unstack(["federation", "metric"])
    found = {
        place: values.get((column.federation, column.metric), np.nan)
        - (values.get((column.minus, column.metric), np.nan) if column.minus else 0)
        for place, column in enumerate(shown)
    }
    by_column = pd.DataFrame(found, index=values.index).rename_axis(columns="column")
    by_seed = by_column.stack().dropna().rename("value").reset_index()
    key = ["label", "protocol", "column"]
    return over_seeds(by_seed, key).set_index(key)


def _numbers(given: TableInputs, shown: list[ServerColumn], rows: list[ServerRow]) -> pd.DataFrame:
    """All numbers of the table, as fractions -> one row per column and run."""
    federations = {federation["name"]: federation for federation in given.exhibit["federations"]}
    found = _reproduced(given, shown, rows)
    numbers = []
    for place, column in enumerate(shown):
        federation = federations[column.federation]
        theirs = printed.fractions(
            given.published, column.published or None, column.printed or column.metric
        )
        for row in rows:
            key = row.label, row.protocol, place
            chosen = sheets.statistics(found["chosen"], key)
            last = sheets.statistics(found["last"], key, LAST)
            ours = last["last_mean"] if np.isnan(chosen["mean"]) else chosen["mean"]
            number = theirs.get((federation["dataset"], row.printed), printed.NONE)
            about = {"label": row.label, "title": row.title}
            numbers.append(
                {
                    **sheets.identity(federation, about),
                    "family": federation["family"],
                    **({"key": row.printed} if row.protocol else {}),
                    "column": column.title,
                    "place": place,
                    "metric": column.metric,
                    "minus": column.minus,
                    "published": number,
                    printed.ROW: number.row,
                    "of": column.of,
                    **chosen,
                    **last,
                    "difference": np.nan if column.of else printed.off(ours, number),
                    "seeds": len(given.exhibit["seeds"]),
                }
            )
    return pd.DataFrame(numbers)


def _averages(
    numbers: pd.DataFrame, theirs: dict[tuple[str, str], printed.Number], rows: list[ServerRow]
) -> pd.DataFrame:
    """The mean of each run over all columns, NaN unless it has all of them.

    A published average is left out unless it is the average of these columns.
    """
    found = []
    for row in rows:
        mine = exhibits.pick(numbers, label=row.label, title=row.title)
        means = mine[["mean", f"{LAST}mean"]].mean(skipna=False)
        number = theirs.get((ALL, row.printed), printed.NONE)
        if not abs(mine["published"].mean(skipna=False) - number) <= ROUNDED:
            number = printed.NONE
        spread = {state + name: np.nan for state in ("", LAST) for name in sheets.STATISTICS}
        ours = means.fillna(means[f"{LAST}mean"])["mean"]
        about = mine.iloc[0].to_dict() | {"federation": ALL, "dataset": ALL, "family": AVERAGE}
        about |= {"column": "All columns", "place": 0, **spread, **means}
        about |= {"published": number, printed.ROW: number.row}
        found.append(about | {"difference": printed.off(ours, number), "seeds": 1})
    return pd.DataFrame(found)


def _block(family: str, numbers: pd.DataFrame, head: str) -> Block:
    """A row per run; published and difference only in columns with published numbers."""
    known = numbers[["mean", f"{LAST}mean", "published"]].notna().any(axis=1)
    numbers = numbers[known.groupby([numbers["label"], numbers["title"]]).transform("any")]
    places = [part for _, part in numbers.groupby("place")]

    def columns() -> Columns:
        yield Column(head), texts(places[0]["title"])
        for part in places:
            shown, title = _cells(part), part["column"].iloc[0]
            for name, cells in shown.items():
                yield Column(title) if len(shown) == 1 else Column(name, title), cells

    return block(family, columns())


def _cells(part: pd.DataFrame) -> dict[str, list[Cell]]:
    """The cells of one column by their heads: published, both states, difference, if known."""
    form, of = render.points if part["minus"].iloc[0] else render.percent, part["of"].iloc[0]
    theirs, found = part["published"].tolist(), {}
    if part["published"].notna().any():
        name = f"published, {of}" if of else "published"
        found[name] = render.best_cells(theirs, [form(x, decimals=2) for x in theirs], 2)
    for name, prefix in (("last", LAST), ("chosen", "")):
        means = part[f"{prefix}mean"]
        if means.notna().any():
            found[name] = render.best_cells(means.tolist(), render.with_spreads(part, form, prefix))
    if found.get("last") == found.get("chosen", ()):
        found = {"last, chosen" if k == "chosen" else k: x for k, x in found.items() if k != "last"}
    if part["difference"].notna().any():
        found["difference"] = differences(part)
    return found or {"": [Cell(render.ABSENT)] * len(part)}
