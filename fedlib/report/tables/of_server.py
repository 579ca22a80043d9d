"""Grids of a server: accuracy on its test examples, size of its model, weights that it learned.

Accuracy is that of one model for all clients. A column is a federation, or the gain on one
federation over another, such as a reserved set with even classes over a skewed one. If the paper
prints a run under several names, such as a sweep's point that is also in the main table, each name
has a row. Every run has two states: after its last round, and of least loss on the server's
validation examples, even if the method does not use these.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits, notes, printed
from fedlib.report.metrics.definitions import SERVER
from fedlib.report.metrics.seeds import over_seeds, summary
from fedlib.report.metrics.tidy import PARAMETERS
from fedlib.report.tables import grid, sheets
from fedlib.report.tables.cost import quantity
from fedlib.report.tables.grid import Layout
from fedlib.report.tables.render import Column, Sheet, with_spreads
from fedlib.report.tables.sheets import STATISTICS, Columns, TableInputs, beside, texts
from fedlib.spec import Data, Run
from fedlib.spec.server import ServerColumn, ServerRow

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
SPOT = ["label", "protocol", "place"]  # of a number: run, its row's protocol, and column
NEEDED = (PARAMETERS, "bytes_up", "bytes_down", "client_rounds")
BYTES = 4  # of a number
UNITS = {"millions": 1e6, "billions": 1e9}  # suffixes of the names of published metrics
SIZE = (
    "Parameters: numbers that are trained of the model that the server keeps, gate and noise "
    "network included, running statistics of batch normalisation not. Sent: numbers that the "
    "clients of a round send up, and are sent down, all together; running statistics included."
)
ALPHA = "alpha"  # as a metric, a hyper-parameter and a published metric
RATE = "alpha_lr_scale"  # hyper-parameter: alpha's learning rate over that of the server's solver
LEARNED = (
    "Learned: in the last round at which it was written down. Rate: of its solver, of which a step "
    "of Adam is about as long; so alpha moves no further than rate times steps."
)


def global_accuracy(given: TableInputs) -> Sheet:
    """Accuracy, a block per family of federations; its numbers have one row per run and column.

    Rows and columns are left out if their runs are not in the exhibit.
    """
    exhibit, kind, wanted = given.exhibit, given.kind, _rows(given)
    there = {federation.name: federation for federation in exhibit.federations}
    columns = [x for x in kind.entries("columns") if {x.federation, x.minus} - {""} <= {*there}]
    spots = []
    for place, column in enumerate(columns):
        about = {**grid.column_fields(column), "place": place, "exhibit": column.published}
        for row in wanted:
            own = {"key": row.printed, "protocol": row.protocol}
            spots.append((there[column.federation], row, about | own))
    numbers = grid.measure_spots(given, spots, _states(given, columns, wanted))
    if kind.average is not None:
        theirs = printed.fractions(given.published, kind.average)
        numbers = pd.concat([numbers, _averages(numbers, theirs, wanted)], ignore_index=True)
    known = numbers[["mean", f"{LAST}mean", "published"]].notna().any(axis=1)
    is_shown = known.groupby([numbers[name] for name in ("family", "label", "title")])
    numbers["block"] = numbers["family"].where(is_shown.transform("any"))
    heads, ours = [(kind.head, "title")], {"last": LAST, "chosen": ""}
    return grid.sheet(
        given,
        numbers,
        partial(grid.lay_out, Layout(ours, heads, is_joined=True, after=lambda _: ())),
        notes.measurement(exhibit),
        f"{MEASURED} {DIFFERENT}" if numbers["difference"].notna().any() else MEASURED,
        names=(
            *(*sheets.RUN, "family", "column", "place", "metric", "minus", "published", "of"),
            *(*STATISTICS, *(f"{LAST}{name}" for name in STATISTICS), "difference", "seeds"),
        ),
    )


def _rows(given: TableInputs) -> list[ServerRow]:
    """The rows whose runs are in the exhibit, then its other runs, such as a user's."""
    titles, rows = exhibits.titles(given.exhibit), given.kind.entries("rows")
    named = {row.label for row in rows}
    rows += [ServerRow(label) for label in titles if label not in named]
    return [
        row._replace(title=row.title or titles[row.label], printed=row.printed or row.label)
        for row in rows
        if row.label in titles
    ]


def _states(
    given: TableInputs, columns: list[ServerColumn], rows: list[ServerRow]
) -> dict[str, pd.DataFrame]:
    """`over_seeds` of the last and of the chosen state, by prefix, indexed by `SPOT`."""
    elsewhere = [
        exhibits.pick(given.rows, label=row.label, federation=of).assign(federation=name)
        for row in rows
        for name, of in row.elsewhere.items()
    ]
    mine = pd.concat([given.rows, *elsewhere])
    server = exhibits.pick(mine, group=SERVER.group, split=SERVER.split)
    run = ["federation", "label", "seed"]
    chose = pd.MultiIndex.from_frame(exhibits.pick(mine, metric=CHOICE)[run])
    has_chosen = pd.MultiIndex.from_frame(server[run]).isin(chose)
    is_last, protocol = server["at"] == "last", server["protocol"]
    predicts = protocol == SERVER.protocol
    chosen = predicts & (server["at"] == "chosen")
    # Metrics of the last round alone, such as F1: where a method chose, they are of that state.
    only = predicts & is_last & has_chosen & ~server["metric"].isin(server[chosen]["metric"])
    last = is_last & ((protocol == "last") | (predicts & ~has_chosen))
    own = {row.protocol for row in rows} - {""}
    states = {
        LAST: [server[last], server[is_last & protocol.isin([f"{LAST}{x}" for x in own])]],
        "": [server[chosen | only], server[is_last & protocol.isin(own)]],
    }
    return {prefix: _by_spot(pd.concat(found), columns) for prefix, found in states.items()}


def _by_spot(rows: pd.DataFrame, columns: list[ServerColumn]) -> pd.DataFrame:
    """`over_seeds` of columns, which may be gains of a federation over another, seed by seed."""
    protocols = rows["protocol"].replace(dict.fromkeys(PREDICTS, "")).str.removeprefix(LAST)
    key = ["label", "protocol", "seed", "federation", "metric"]
    values = rows.assign(protocol=protocols).set_index(key)["value"].unstack(key[3:])
    found = {
        place: values.get((column.federation, column.metric), np.nan)
        - (values.get((column.minus, column.metric), np.nan) if column.minus else 0)
        for place, column in enumerate(columns)
    }
    by_place = pd.DataFrame(found, index=values.index).rename_axis(columns="place")
    by_seed = by_place.stack().dropna().rename("value").reset_index()
    return over_seeds(by_seed, SPOT).set_index(SPOT)


def _averages(
    numbers: pd.DataFrame, theirs: dict[tuple[str, str], printed.Value], rows: list[ServerRow]
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
        spread = {state + name: np.nan for state in ("", LAST) for name in STATISTICS}
        ours = means.fillna(means[f"{LAST}mean"])["mean"]
        about = mine.iloc[0].to_dict() | {"federation": ALL, "dataset": ALL, "family": "Average"}
        about |= {"column": "All columns", "place": 0, **spread, **means}
        about |= {"published": number, printed.ROW: number.row}
        found.append(about | {"difference": printed.off(ours, number), "seeds": 1})
    return pd.DataFrame(found)


def server_size(given: TableInputs) -> Sheet:
    """Size of the server's model and numbers sent; its numbers have one row per federation and run.

    Published metrics are "parameters_millions" and "sent_millions", or the same with "billions".

    Raises:
      DataError: if a run lacks one of the numbers.
    """
    theirs = {
        f"published_{name}": {
            where: value * factor
            for unit, factor in UNITS.items()
            for where, value in given.paper_numbers(f"{name}_{unit}").items()
        }
        for name in ("parameters", "sent")
    }

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        key = (federation.dataset, run.label)
        size = _size(given.costs, federation.name, run)
        said = {name: known.get(key, np.nan) for name, known in theirs.items()}
        yield size | said | {"seeds": len(given.exhibit.seeds)} | {"block": federation.title}

    numbers = given.numbers(of_run)
    compared = bool(numbers["published_parameters"].notna().any())
    return grid.sheet(given, numbers, _sizes, SIZE, compared=compared)


def _size(means: pd.DataFrame, federation: str, run: Run) -> dict[str, float]:
    """Parameters at the server, and numbers sent per round, of one run."""
    found = means.reindex(columns=list(NEEDED)).loc[federation, run.label]
    if found.isna().any():
        raise DataError(
            f"{exhibits.name(run)} has no {found.isna().idxmax()} among its metrics; run its "
            "evaluation and the metrics stage again"
        )
    sent = {name: found[f"bytes_{name}"] / BYTES / run.rounds for name in ("up", "down")}
    return {"parameters": found[PARAMETERS], "sent_up": sent["up"], "sent_down": sent["down"]}


def _sizes(mine: pd.DataFrame) -> Columns:
    """A row per run; published numbers where there are any."""
    compared = bool(mine["published_parameters"].notna().any())
    cells = {name: texts(map(quantity, mine[name])) for name in mine.columns[4:-2]}
    yield Column("Method"), texts(mine["title"])
    for title, theirs, ours in (
        ("Parameters at the server", "published_parameters", "parameters"),
        ("Sent up in a round", "published_sent", "sent_up"),
    ):
        yield from beside(title, cells[theirs], {"here": cells[ours]}, compared=compared)
    yield Column("Sent down in a round"), cells["sent_down"]


def learned_alpha(given: TableInputs) -> Sheet:
    """The weight of the routed experts; its numbers have one row per federation and run.

    Raises:
      DataError: if a run did not record its alpha.
    """
    exhibit = given.exhibit
    theirs = given.paper_numbers(ALPHA)

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        alphas = given.records(run, ALPHA)
        last = alphas[alphas["round"] == alphas["round"].max()]
        found = summary(last["value"])
        yield {
            "data": federation.title,
            "start": exhibits.setting(ALPHA, run),
            "rate": run.params.get(RATE, 1.0) * run.params["server"]["lr"],
            "published": theirs.get((federation.dataset, run.label), np.nan),
            **{name: found[name] for name in STATISTICS},
            "round": int(last["round"].iloc[0]),
            "seeds": len(exhibit.seeds),
            "block": "",
        }

    numbers = given.numbers(of_run)
    said = notes.measurement(exhibit, "Plain numbers; "), LEARNED
    return grid.sheet(given, numbers, _alphas, *said, num_keys=2)


def _alphas(mine: pd.DataFrame) -> Columns:
    """A row per federation and run."""
    yield Column("Data"), texts(mine["data"])
    yield Column("Method"), texts(mine["title"])
    yield Column("start"), texts(mine["start"], ".2g")
    yield Column("rate"), texts(f"{value:.0e}".replace("e-0", "e-") for value in mine["rate"])
    yield Column("published"), texts(mine["published"], ".2f")
    yield Column("learned"), texts(with_spreads(mine, "{:.3f}".format))
