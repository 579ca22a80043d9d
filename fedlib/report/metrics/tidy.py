"""One run as rows: every metric of every view, and the counts of every client."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib import results
from fedlib.errors import DataError
from fedlib.federation import CLIENTS, SPLITS
from fedlib.report import embeddings
from fedlib.report.metrics import definitions
from fedlib.results import CLIENT_NAME, OF_NO_CLIENT, OPTIMUM, TOTALS, RunResult, Scores, View

TRAFFIC = View("all", "", "")  # of rows about the cost and loss of training
FLOPS = "flops_per_example"  # metric, and diagnostic of an evaluation
EXAMPLES = "examples"  # metric, and diagnostic of preparing clients
PARAMETERS = "server_parameters"  # diagnostic of an evaluation: size of the server's model
DIVERGENCE = "divergence"  # diagnostic [R, E]: divergence of the clients' updates of an expert
TABLES, TABLE_ROUNDS = "tables", "table_rounds"  # [S, rows, E], and the round of each [S]
TABLE_ALPHAS = "table_alphas"  # [S] weight of routed against main experts, in these rounds
BRIER_OF_CLIENTS = "brier_of_clients"  # diagnostic of a view, "brier_of_clients:seen:default" [C]
TABLE = "table"  # metric of a table's cells
# Diagnostic [3]: round and loss of the model that validation chose, and its split's number, -1 none
SELECTED = "selected"
# Diagnostics that are no columns of clients: of no client, or more than a row of numbers.
# "picks" is in kept runs of IFCA only, which record it no longer.
NO_COLUMNS = OF_NO_CLIENT | {FLOPS, PARAMETERS, embeddings.LABELS, "picks"}
LOSS_TOLERANCE = 1e-5  # relative; two executions may sum a loss in different orders
# A metric of several numbers tells them apart by `of`, a name, or `index`, such as "3" or "0_3".
ROW_COLUMNS = ("at", "round", "protocol", "split", "group", "metric", "of", "index", "value")


def run_rows(history: RunResult, evaluation: RunResult | None = None) -> pd.DataFrame:
    """Every metric of one run -> DataFrame with `ROW_COLUMNS`.

    Rows at "last" only: views that only the evaluation of the final state has, FLOPs if it measured
    them, examples and FLOPs of clients' training for the evaluation, metrics of single predictions
    if requested, representations of examples, sizes of models, and what was selected. Rows at
    "round" only, for recorded rounds: divergence of the clients' updates by expert, cells of tables
    by row and expert, and what the method records of each round.

    Raises:
      DataError: if the evaluation contradicts the last evaluation of the history.
    """
    diagnostics = _diagnostics(history, evaluation)
    curves = list(_curves(history, diagnostics.get(OPTIMUM)))
    best = int(history.round[definitions.best_evaluation(history)])
    blocks = [_block(curve, "round", slice(None)) for curve in curves]
    blocks += [_block(curve, "last", slice(-1, None)) for curve in curves]
    blocks += [_block(curve, "best", curve.round == best) for curve in curves]
    if (place := definitions.chosen_evaluation(history)) is not None:
        chosen = history.round[place]
        blocks += [_block(curve, "chosen", curve.round == chosen) for curve in curves]
    if evaluation is not None:
        check_agreement(history, evaluation)
        alone = _of_evaluation(history, evaluation)
        blocks += [_block(curve, "last", slice(-1, None)) for curve in alone]
    if short := [*embeddings.as_metrics(diagnostics)]:
        of, index, values = (np.array(column) for column in zip(*short, strict=True))
        rounds = np.repeat(history.round[-1:], len(values))
        curve = _Curve(TRAFFIC, rounds, {embeddings.METRIC: values}, of, index)
        blocks.append(_block(curve, "last", slice(None)))
    done = int(history.round[-1])
    of_experts = [*_expert_curves(diagnostics, done)]
    for name, values in history.by_round.items():
        of_experts += _by_round(name, values, done)
    blocks += [_block(curve, "round", slice(None)) for curve in of_experts]
    if SELECTED in diagnostics:
        curve = _selection_curve(diagnostics[SELECTED], done)
        blocks.append(_block(curve, "last", slice(None)))
    return pd.DataFrame({name: np.concatenate([b[name] for b in blocks]) for name in ROW_COLUMNS})


def client_rows(history: RunResult, evaluation: RunResult | None = None) -> pd.DataFrame:
    """Counts of one run's clients at its last and best round, without the server -> DataFrame

    Columns are those of `CLIENT_COLUMNS` from "at" on, then the method's diagnostics of each client
    in the rows of the default protocol at "last", NaN in other rows. An array [num_clients] is a
    column of its name; an array [num_clients, E], such as mixture weights, is the columns `pi_0`,
    `pi_1`, ... The column `brier` has each client's mean Brier score, if the evaluation computed
    it.

    Raises:
      DataError: if the evaluation contradicts the history, or a diagnostic lacks a client.
    """
    best = definitions.best_evaluation(history)
    frames = []
    for view, scores in history.scores.items():
        if scores.count.any() and view.group in CLIENTS:
            frames.append(_client_frame(view, scores, "last", -1))
            frames.append(_client_frame(view, scores, "best", best))
    if evaluation is not None:
        check_agreement(history, evaluation)
        for view, scores in _only_final(history, evaluation).items():
            if view.group in CLIENTS:
                frames.append(_client_frame(view, scores, "last", -1))
    if not frames:  # only the server was evaluated
        return pd.DataFrame(columns=results.CLIENT_COLUMNS[results.CLIENT_COLUMNS.index("at") :])
    clients = pd.concat(frames, ignore_index=True)
    if evaluation is not None:
        clients = _with_brier(clients, evaluation.diagnostics)
    return _with_diagnostics(clients, _diagnostics(history, evaluation))


def check_agreement(history: RunResult, evaluation: RunResult) -> None:
    """Check that the evaluation repeats the history's last scores in views that both have.

    Raises:
      DataError: if rounds, clients, counts or correct predictions differ, or losses differ by more
        than `LOSS_TOLERANCE` (relative).
    """
    if history.round[-1] != evaluation.round[-1]:
        raise DataError(
            f"history ends at round {history.round[-1]}, the evaluation is of round "
            f"{evaluation.round[-1]}; evaluate again"
        )
    for view in history.scores.keys() & evaluation.scores.keys():
        ours, theirs = history.scores[view], evaluation.scores[view]
        same = (
            np.array_equal(ours.clients, theirs.clients)
            and np.array_equal(ours.count, theirs.count)
            and np.array_equal(ours.correct[-1], theirs.correct[-1])
            and np.allclose(ours.loss[-1], theirs.loss[-1], LOSS_TOLERANCE, atol=0, equal_nan=True)
        )
        if not same:
            raise DataError(
                f"evaluation and history disagree on {'/'.join(view)} after round "
                f"{history.round[-1]}; the state is not the one the history was written with"
            )


class _Curve(NamedTuple):
    """Some metrics over the evaluations of one view: `values` are [T] each, like `round`.

    `of` and `index` are those of `ROW_COLUMNS`: one of all of them, or [T].
    """

    view: View
    round: np.ndarray
    values: dict[str, np.ndarray]
    of: str | np.ndarray = ""
    index: str | np.ndarray = ""


def _curves(result: RunResult, optimum: np.ndarray | None) -> Iterator[_Curve]:
    for view, scores in result.scores.items():
        if scores.count.any():
            yield _view_curve(view, result.round, scores, optimum)
    cost = {name: getattr(result, name) for name in TOTALS}
    cost["bytes"] = result.bytes_down + result.bytes_up
    if result.server_examples is not None:
        cost["server_examples"] = result.server_examples
    yield _Curve(TRAFFIC, result.round, cost)
    trained = np.flatnonzero(~np.isnan(result.train_loss))
    yield _Curve(TRAFFIC, 1 + trained, {"train_loss": result.train_loss[trained]})


def _of_evaluation(history: RunResult, evaluation: RunResult) -> Iterator[_Curve]:
    """Metrics of the evaluation of the final state alone."""
    said, done = evaluation.diagnostics, evaluation.round
    for view, scores in _only_final(history, evaluation).items():
        yield _view_curve(view, done, scores, said.get(OPTIMUM))
    for metric, of, value in _quantities(said):
        if isinstance(of, View) and metric != BRIER_OF_CLIENTS:
            yield _Curve(of, done, {metric: value})
    if FLOPS in said:
        total = said[FLOPS] * history.examples[-1]  # of the whole run
        yield _Curve(TRAFFIC, done, {FLOPS: said[FLOPS], "flops": total})
    if personal := _personal_cost(evaluation):
        yield _Curve(TRAFFIC, done, personal)
    if PARAMETERS in said:
        yield _Curve(TRAFFIC, done, {PARAMETERS: said[PARAMETERS]})


def _selection_curve(selected: np.ndarray, done: int) -> _Curve:
    """Round and loss of the model that validation chose, in the row of the split that chose."""
    view = TRAFFIC._replace(split=SPLITS[int(selected[2])])
    values = {f"{SELECTED}_round": selected[:1], f"{SELECTED}_loss": selected[1:2]}
    return _Curve(view, np.array([done]), values)


def _personal_cost(evaluation: RunResult) -> dict[str, np.ndarray]:
    """Examples and FLOPs of clients' training for the evaluation; {} if none trained."""
    found = {(name, of): value for name, of, value in _quantities(evaluation.diagnostics)}
    examples = {of: number for (name, of), number in found.items() if name == EXAMPLES and of}
    if not examples:
        return {}
    cost = {"personal_examples": sum(examples.values())}
    if all((FLOPS, of) in found for of in examples):
        cost["personal_flops"] = sum(n * found[FLOPS, of] for of, n in examples.items())
    return cost


def _expert_curves(diagnostics: dict[str, np.ndarray], done: int) -> Iterator[_Curve]:
    """Diagnostics of experts, up to the round `done`: planned rounds after it never took place."""
    if DIVERGENCE in diagnostics:
        yield from _by_round(DIVERGENCE, diagnostics[DIVERGENCE], done)
    if TABLES in diagnostics:
        recorded = diagnostics[TABLE_ROUNDS] <= done
        rounds, tables = diagnostics[TABLE_ROUNDS][recorded], diagnostics[TABLES][recorded]
        for row, expert in np.ndindex(tables.shape[1:]):
            yield _Curve(TRAFFIC, rounds, {TABLE: tables[:, row, expert]}, index=f"{row}_{expert}")
        if TABLE_ALPHAS in diagnostics:
            yield _Curve(TRAFFIC, rounds, {"alpha": diagnostics[TABLE_ALPHAS][recorded]})


def _by_round(name: str, values: np.ndarray, done: int) -> Iterator[_Curve]:
    """A number [R], or of each expert [R, E], by round from 1 on; NaN where none was recorded."""
    columns = {"": values} if values.ndim == 1 else dict(enumerate(values.T))
    for index, numbers in columns.items():
        has = ~np.isnan(numbers[:done])
        rounds = np.arange(1, len(has) + 1)[has]
        yield _Curve(TRAFFIC, rounds, {name: numbers[:done][has]}, index=str(index))


def _diagnostics(history: RunResult, evaluation: RunResult | None) -> dict[str, np.ndarray]:
    """Diagnostics of both; the evaluation's take precedence."""
    return history.diagnostics | (evaluation.diagnostics if evaluation is not None else {})


def _view_curve(
    view: View, rounds: np.ndarray, scores: Scores, optimum: np.ndarray | None
) -> _Curve:
    of_client = view.group in CLIENTS
    try:
        metrics = definitions.METRICS if of_client else definitions.METRICS_OF_SERVER
        values = {metric.__name__: metric(scores) for metric in metrics}
        if optimum is not None and of_client and view.split == "test":
            values[definitions.regret.__name__] = definitions.regret(scores, optimum)
        return _Curve(view, rounds, values)
    except DataError as error:
        raise DataError(f"view {'/'.join(view)}: {error}") from None


def _block(curve: _Curve, at: str, where: slice | np.ndarray) -> dict[str, np.ndarray]:
    """Part of a curve as columns of equal length."""
    rounds = np.asarray(curve.round)[where]
    size = len(rounds) * len(curve.values)
    constants = {"at": at, **curve.view._asdict(), "of": curve.of, "index": curve.index}
    values = [np.asarray(value, np.float64)[where] for value in curve.values.values()]
    return {
        **{name: np.full(size, value, object) for name, value in constants.items()},
        "round": np.tile(rounds, len(curve.values)),
        "metric": np.repeat(np.array(list(curve.values), object), len(rounds)),
        "value": np.concatenate(values),
    }


def _only_final(history: RunResult, evaluation: RunResult) -> dict[View, Scores]:
    return {
        view: scores
        for view, scores in evaluation.scores.items()
        if view not in history.scores and scores.count.any()
    }


def _client_frame(view: View, scores: Scores, at: str, evaluation: int) -> pd.DataFrame:
    count, correct = scores.count, scores.correct[evaluation]
    has = count > 0
    fraction = np.divide(correct, count, out=np.full(len(count), np.nan), where=has)
    return pd.DataFrame(
        {
            "at": at,
            **view._asdict(),
            "client": scores.clients,
            "count": count,
            "correct": correct,
            "accuracy": fraction,
            "loss": np.where(has, scores.loss[evaluation], np.nan),
        }
    )


def _quantities(diagnostics: dict[str, np.ndarray]) -> Iterator[tuple[str, View | str, np.ndarray]]:
    """What each diagnostic is, what it is of, and its value: the only place that splits names.

    A metric of predictions ("ece:seen:moe") is of a view, a cost of preparing clients
    ("examples_moe") is of a preparation, and all others are of "".
    """
    for name, value in diagnostics.items():
        quantity, *view = name.split(":")
        of = View(*view, "test") if view else ""
        for cost in (EXAMPLES, FLOPS):
            if name.startswith(f"{cost}_"):
                quantity, of = cost, name.removeprefix(f"{cost}_")
        yield quantity, of, value


def _with_brier(clients: pd.DataFrame, diagnostics: dict[str, np.ndarray]) -> pd.DataFrame:
    """The frame with the clients' Brier scores, NaN in views without them."""
    for quantity, view, each in _quantities(diagnostics):
        if quantity == BRIER_OF_CLIENTS:
            where = pd.Series({"at": "last", **view._asdict()})
            clients.loc[clients[[*where.index]].eq(where).all(axis=1), "brier"] = each
    return clients


def _with_diagnostics(clients: pd.DataFrame, found: dict[str, np.ndarray]) -> pd.DataFrame:
    """The frame with a column for each number that the diagnostics have of a client."""
    last = int(clients["client"].max())
    default = clients["protocol"] == definitions.PRIMARY.protocol
    shown = ((clients["at"] == "last") & default).to_numpy()
    columns = {}
    for name, of, array in _quantities(found):
        if of or name in NO_COLUMNS or array.ndim > 2:
            continue
        if array.ndim == 0 or len(array) <= last:
            raise DataError(f"{name} of shape {array.shape} does not cover client {last}")
        if name == CLIENT_NAME:  # of all rows
            columns[name] = array[clients["client"].to_numpy()].astype(str)
            continue
        values = np.full((len(clients), *array.shape[1:]), np.nan)
        values[shown] = array[clients["client"].to_numpy()[shown]]
        several = {f"{name}_{number}": column for number, column in enumerate(values.T)}
        columns |= several if array.ndim == 2 else {name: values}
    if taken := sorted(columns.keys() & {*clients}):  # in a run from before they were refused
        raise DataError(f"a diagnostic may not be called {taken[0]}, as the table has it already")
    return clients.join(pd.DataFrame(columns, index=clients.index))
