"""From raw counts per client to tidy numbers: the only place where an accuracy is computed.

All accuracies are fractions in [0, 1]. `accuracy` pools the examples of all clients (equal to the
mean of client accuracies weighted by their test counts); the other accuracies treat clients alike.
A client without examples in a split has no accuracy there: it is left out of every metric, and is
NaN only in the table of clients, beside its count of 0. A view in which no client has an example
is left out altogether.

Three moments of a run are told apart: every evaluated "round", the "last" one, and the "best" one,
the earliest round of highest pooled test accuracy of the seen clients, or of the server where no
client has test examples. The best round is a selection on the test set; whatever shows it must say
so.

Source: the metrics of FedEM and pFedMM; neither repository has code for the bottom decile, so
  both readings are here: `bottom10`, the accuracy of the floor(C / 10)-th worst client, and
  `bottom10_mean`, the mean accuracy of those clients (at least one client in both).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fedlib.errors import DataError
from fedlib.exhibits import frames
from fedlib.federation import CLIENTS, SPLITS
from fedlib.results import TOTALS, RunResult, Scores, View

PRIMARY = View("seen", "default", "test")
SERVER = View("server", "default", "test")  # a global model on a global test set
TRAFFIC = View("all", "", "")  # of rows about the cost and loss of training, not about scores
FLOPS = "flops_per_example"  # metric, and diagnostic of an evaluation
EXAMPLES_OF, FLOPS_OF = "examples_", "flops_per_example_"  # diagnostics of one of its preparations
PICKS = "picks"  # diagnostic [R, E]: how often each expert was chosen in a round
DIVERGENCE = "divergence"  # diagnostic [R, E]: how unlike the clients' updates of an expert are
TABLES, TABLE_ROUNDS = "tables", "table_rounds"  # [S, rows, E], and the round of each [S]
TABLE_ALPHAS = "table_alphas"  # [S] what weighs routed against main experts, in these rounds
TABLE = "table"  # and how the cells of such a table are called as metrics
# Diagnostic [3]: round and loss of the model that validation chose, and its split's number; -1 none
SELECTED = "selected"
# Diagnostics whose first dimension is not the clients, by name.
NOT_OF_CLIENTS = (FLOPS, PICKS, DIVERGENCE, TABLES, TABLE_ROUNDS, TABLE_ALPHAS, SELECTED)
INTERVAL_SEEDS = 3  # fewest seeds of which an interval is given
LOSS_TOLERANCE = 1e-5  # relative; two executions may add up a loss in another order
RUN_COLUMNS = ("paper", "federation", "dataset", "partition", "label", "method", "seed")
ROW_COLUMNS = ("at", "round", "protocol", "split", "group", "metric", "value")
COLUMNS = RUN_COLUMNS + ROW_COLUMNS
CLIENT_COLUMNS = (
    *("paper", "federation", "dataset", "label", "method", "seed"),
    *("at", "protocol", "split", "group", "client", "count", "correct", "accuracy", "loss"),
)  # then diagnostics of clients: "choice", "pi_0", "pi_1", ...


# One view: Scores -> [T]


def accuracy(scores: Scores) -> np.ndarray:
    """Right predictions of all clients, over all their examples -> [T]"""
    return _owned(scores).correct.sum(axis=1) / scores.count.sum()


def accuracy_client_mean(scores: Scores) -> np.ndarray:
    """Mean of the clients' accuracies, every client counting the same -> [T]"""
    return _client_accuracies(scores).mean(axis=1)


def accuracy_client_std(scores: Scores) -> np.ndarray:
    """Spread of the clients' accuracies; they are the whole population, so ddof is 0 -> [T]"""
    return _client_accuracies(scores).std(axis=1)


def bottom10(scores: Scores) -> np.ndarray:
    """Accuracy of the floor(C / 10)-th worst client, of the worst if C < 20 -> [T]"""
    return _worst(scores)[:, -1]


def bottom10_mean(scores: Scores) -> np.ndarray:
    """Mean accuracy of the floor(C / 10) worst clients, at least one -> [T]"""
    return _worst(scores).mean(axis=1)


def loss(scores: Scores) -> np.ndarray:
    """Mean negative log-likelihood over the examples of all clients -> [T]"""
    owned = _owned(scores)
    return (owned.loss * owned.count).sum(axis=1) / owned.count.sum()


METRICS = (accuracy, accuracy_client_mean, accuracy_client_std, bottom10, bottom10_mean, loss)
METRICS_OF_SERVER = (accuracy, loss)  # the others compare clients


def _owned(scores: Scores) -> Scores:
    """The scores of the clients that have examples; DataError if none has, or if any is absurd."""
    has = scores.count > 0
    if not has.any():
        raise DataError("no client of this view has an example, so it has no accuracy")
    owned = Scores(
        scores.clients[has], scores.count[has], scores.correct[:, has], scores.loss[:, has]
    )
    if not np.all((owned.correct >= 0) & (owned.correct <= owned.count)):
        raise DataError("right predictions must be between 0 and the number of examples")
    if np.isnan(owned.loss).any():
        raise DataError("the loss of a client with examples is not a number")
    return owned


def _client_accuracies(scores: Scores) -> np.ndarray:
    """Accuracy of every client that has examples -> [T, C']"""
    owned = _owned(scores)
    return owned.correct / owned.count


def _worst(scores: Scores) -> np.ndarray:
    """The floor(C' / 10) smallest client accuracies, at least one, in ascending order -> [T, k]"""
    values = np.sort(_client_accuracies(scores), axis=1)
    return values[:, : max(1, values.shape[1] // 10)]


# One run


def primary(history: RunResult) -> View:
    """The view that decides the best round: the seen clients', the server's where they have none.

    Raises:
      DataError: if the history has neither.
    """
    for view in (PRIMARY, SERVER):
        if view in history.scores:
            return view
    names = " and ".join("/".join(view) for view in (PRIMARY, SERVER))
    raise DataError(f"the history lacks the views {names}, one of which decides the best round")


def best_evaluation(history: RunResult) -> int:
    """Position of the earliest evaluation with the highest pooled accuracy in its `primary` view.

    Raises:
      DataError: if the history has no such view.
    """
    return int(np.argmax(accuracy(history.scores[primary(history)])))


def run_rows(history: RunResult, evaluation: RunResult | None = None) -> pd.DataFrame:
    """Every metric of one run -> DataFrame with `ROW_COLUMNS`.

    Views that only the evaluation of the final state has appear at "last" only, and so do FLOPs,
    if it measured them, and the examples and FLOPs of what clients trained for it. At "round" only
    is what is said of experts: how often each was chosen ("picks_0", ...), how unlike its clients'
    updates were ("divergence_0", ...), and the cells of tables of rows by experts ("table_0_0",
    ...) at the rounds at which they were recorded.

    Raises:
      DataError: if the evaluation contradicts the last evaluation of the history, or a diagnostic
        has another shape than its name says.
    """
    curves = list(_curves(history))
    best = int(history.round[best_evaluation(history)])
    blocks = [_block(curve, "round", slice(None)) for curve in curves]
    blocks += [_block(curve, "last", slice(-1, None)) for curve in curves]
    blocks += [_block(curve, "best", curve.round == best) for curve in curves]
    if evaluation is not None:
        check_agreement(history, evaluation)
        for view, scores in _only_final(history, evaluation).items():
            curve = _view_curve(view, evaluation.round, scores)
            blocks.append(_block(curve, "last", slice(-1, None)))
        if FLOPS in evaluation.diagnostics:
            curve = _flops_curve(history, evaluation)
            blocks.append(_block(curve, "last", slice(-1, None)))
        if personal := _personal_cost(evaluation):
            curve = _Curve(TRAFFIC, evaluation.round, personal)
            blocks.append(_block(curve, "last", slice(-1, None)))
    diagnostics = _diagnostics(history, evaluation)
    of_experts = _expert_curves(diagnostics, int(history.round[-1]))
    blocks += [_block(curve, "round", slice(None)) for curve in of_experts]
    if SELECTED in diagnostics:
        curve = _selected_curve(diagnostics[SELECTED], int(history.round[-1]))
        blocks.append(_block(curve, "last", slice(None)))
    columns = {name: np.concatenate([b[name] for b in blocks]) for name in ROW_COLUMNS}
    return pd.DataFrame(columns)


def client_rows(history: RunResult, evaluation: RunResult | None = None) -> pd.DataFrame:
    """Counts of one run's clients at its last and best round -> DataFrame. The server is none.

    Columns from "at" on of `CLIENT_COLUMNS`, then what the method's diagnostics say of each client,
    on the rows of the default protocol at "last": an array [num_clients] is a column of its name,
    an array [num_clients, E] such as mixture weights the columns `pi_0`, `pi_1`, ...; NaN in other
    rows. Diagnostics that do not reach to the last client are about something else.

    Raises:
      DataError: if the evaluation contradicts the history, or `pi` does not have every client.
    """
    best = best_evaluation(history)
    frames = []
    for view, scores in history.scores.items():
        if not scores.count.any() or view.group not in CLIENTS:
            continue
        frames.append(_client_frame(view, scores, "last", -1))
        frames.append(_client_frame(view, scores, "best", best))
    if evaluation is not None:
        check_agreement(history, evaluation)
        for view, scores in _only_final(history, evaluation).items():
            if view.group in CLIENTS:
                frames.append(_client_frame(view, scores, "last", -1))
    if not frames:  # all that was evaluated is the server's
        return pd.DataFrame(columns=CLIENT_COLUMNS[CLIENT_COLUMNS.index("at") :])
    clients = pd.concat(frames, ignore_index=True)
    return _with_diagnostics(clients, _diagnostics(history, evaluation))


def check_agreement(history: RunResult, evaluation: RunResult) -> None:
    """Nothing, if the evaluation repeats the history's last scores wherever both have a view.

    Raises:
      DataError: if rounds, clients, counts or right predictions differ, or losses differ by more
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
            and np.allclose(
                ours.loss[-1], theirs.loss[-1], rtol=LOSS_TOLERANCE, atol=0, equal_nan=True
            )
        )
        if not same:
            raise DataError(
                f"evaluation and history disagree on {'/'.join(view)} after round "
                f"{history.round[-1]}; the state is not the one the history was written with"
            )


class _Curve(NamedTuple):
    """Some metrics over the evaluations of one view: `values` are [T] each, like `round`."""

    view: View
    round: np.ndarray
    values: dict[str, np.ndarray]


def _curves(result: RunResult) -> Iterator[_Curve]:
    for view, scores in result.scores.items():
        if scores.count.any():
            yield _view_curve(view, result.round, scores)
    cost = {name: getattr(result, name) for name in TOTALS}
    cost["bytes"] = result.bytes_down + result.bytes_up
    if result.server_examples is not None:
        cost["server_examples"] = result.server_examples
    yield _Curve(TRAFFIC, result.round, cost)
    rounds = np.arange(1, len(result.train_loss) + 1)
    yield _Curve(TRAFFIC, rounds, {"train_loss": result.train_loss})


def _flops_curve(history: RunResult, evaluation: RunResult) -> _Curve:
    """FLOPs per training example, and of all of the run's together."""
    per_example = evaluation.diagnostics[FLOPS]
    total = per_example * history.examples[-1]
    return _Curve(TRAFFIC, evaluation.round, {FLOPS: per_example, "flops": total})


def _selected_curve(selected: np.ndarray, done: int) -> _Curve:
    """Round and loss of the model that validation chose, in the row of the split that chose."""
    if selected.shape != (3,):
        raise DataError(f"{SELECTED} must be round, loss and split, got shape {selected.shape}")
    chosen, loss, split = selected
    view = TRAFFIC._replace(split=SPLITS[int(split)])
    values = {f"{SELECTED}_round": [chosen], f"{SELECTED}_loss": [loss]}
    return _Curve(view, np.array([done]), {name: np.array(v) for name, v in values.items()})


def _personal_cost(evaluation: RunResult) -> dict[str, np.ndarray]:
    """Examples on which clients trained for the evaluation, and FLOPs of that; {} if none did."""
    found = evaluation.diagnostics
    names = [n.removeprefix(EXAMPLES_OF) for n in found if n.startswith(EXAMPLES_OF)]
    if not names:
        return {}
    cost = {"personal_examples": sum(found[EXAMPLES_OF + name] for name in names)}
    if all(FLOPS_OF + name in found for name in names):
        flops = sum(found[EXAMPLES_OF + name] * found[FLOPS_OF + name] for name in names)
        cost["personal_flops"] = flops
    return cost


def _expert_curves(diagnostics: dict[str, np.ndarray], done: int) -> Iterator[_Curve]:
    """What diagnostics say of experts, of rounds up to `done`: those planned beyond never were."""
    for name in (PICKS, DIVERGENCE):
        if name in diagnostics:
            yield from _by_round(name, diagnostics[name], done)
    if TABLES in diagnostics:
        yield from _by_cell(diagnostics[TABLES], diagnostics.get(TABLE_ROUNDS), done)
        if TABLE_ALPHAS in diagnostics:
            recorded = diagnostics[TABLE_ROUNDS] <= done
            rounds, values = diagnostics[TABLE_ROUNDS], diagnostics[TABLE_ALPHAS]
            yield _Curve(TRAFFIC, rounds[recorded], {"alpha": values[recorded]})


def _by_round(name: str, values: np.ndarray, done: int) -> Iterator[_Curve]:
    """A number of each expert, by round from 1 on; where it is NaN there was none to record.

    Raises:
      DataError: if it is not [R, E].
    """
    if values.ndim != 2:
        raise DataError(f"{name} must be [rounds, experts], got shape {values.shape}")
    for expert, numbers in enumerate(values[:done].T):
        has = ~np.isnan(numbers)
        rounds = np.arange(1, len(numbers) + 1)[has]
        yield _Curve(TRAFFIC, rounds, {f"{name}_{expert}": numbers[has]})


def _by_cell(tables: np.ndarray, rounds: np.ndarray | None, done: int) -> Iterator[_Curve]:
    """The cells of tables [S, rows, E], by the rounds [S] after which they were recorded.

    Raises:
      DataError: if the shapes are others, or the rounds are missing or not in ascending order.
    """
    if tables.ndim != 3:
        raise DataError(f"{TABLES} must be [recorded, rows, experts], got shape {tables.shape}")
    if rounds is None or rounds.shape != tables.shape[:1] or (np.diff(rounds) <= 0).any():
        found = "none" if rounds is None else f"{rounds}"
        raise DataError(
            f"{TABLE_ROUNDS} must be {len(tables)} ascending rounds, one per table, got {found}"
        )
    recorded = rounds <= done
    for row, expert in np.ndindex(tables.shape[1:]):
        values = tables[recorded, row, expert]
        yield _Curve(TRAFFIC, rounds[recorded], {f"{TABLE}_{row}_{expert}": values})


def _diagnostics(history: RunResult, evaluation: RunResult | None) -> dict[str, np.ndarray]:
    """Diagnostics of both, of the evaluation where both have one."""
    return history.diagnostics | (evaluation.diagnostics if evaluation is not None else {})


def _view_curve(view: View, rounds: np.ndarray, scores: Scores) -> _Curve:
    try:
        metrics = METRICS if view.group in CLIENTS else METRICS_OF_SERVER
        return _Curve(view, rounds, {metric.__name__: metric(scores) for metric in metrics})
    except DataError as error:
        raise DataError(f"view {'/'.join(view)}: {error}") from None


def _block(curve: _Curve, at: str, where: slice | np.ndarray) -> dict[str, np.ndarray]:
    """Part of a curve as columns of equal length."""
    rounds = np.asarray(curve.round)[where]
    size = len(rounds) * len(curve.values)
    constants = {"at": at, **curve.view._asdict()}
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
            "protocol": view.protocol,
            "split": view.split,
            "group": view.group,
            "client": scores.clients,
            "count": count,
            "correct": correct,
            "accuracy": fraction,
            "loss": np.where(has, scores.loss[evaluation], np.nan),
        }
    )


def _with_diagnostics(clients: pd.DataFrame, found: dict[str, np.ndarray]) -> pd.DataFrame:
    """The frame with a column for each number that the diagnostics have of a client."""
    last = int(clients["client"].max())
    shown = ((clients["at"] == "last") & (clients["protocol"] == PRIMARY.protocol)).to_numpy()
    columns = {}
    for name, array in found.items():
        covers = array.ndim in (1, 2) and len(array) > last
        if name == "pi" and not (covers and array.ndim == 2):
            raise DataError(f"mixture weights of shape {array.shape} do not cover client {last}")
        if name in NOT_OF_CLIENTS or name.startswith((EXAMPLES_OF, FLOPS_OF)) or not covers:
            continue
        values = np.full((len(clients), *array.shape[1:]), np.nan)
        values[shown] = array[clients["client"].to_numpy()[shown]]
        several = {f"{name}_{number}": column for number, column in enumerate(values.T)}
        columns |= several if array.ndim == 2 else {name: values}
    taken = sorted(columns.keys() & {*CLIENT_COLUMNS})
    if taken:
        raise DataError(f"a diagnostic may not be called {taken[0]}, as the table has it already")
    return clients.join(pd.DataFrame(columns, index=clients.index))


def _numbered(column: str) -> tuple[str, int]:
    """Name and number of a column such as "pi_10", by which such columns are sorted."""
    name, _, number = column.rpartition("_")
    return (name, int(number)) if name and number.isdigit() else (column, -1)


# All runs of a paper


def collect(spec: dict, runs: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics and clients of all runs of a paper -> frames with COLUMNS, CLIENT_COLUMNS (+ more).

    Args:
      spec: {"paper", "runs": [{"federation", "dataset", "partition", "label", "method",
        "seeds"}]}.
      runs: folder with {federation}/{label}/seed{seed}/{history,evaluation}.h5.

    Raises:
      DataError: naming the run whose files are missing, corrupted or contradictory.
    """
    metrics, clients = [], []
    for run in spec["runs"]:
        for seed in run["seeds"]:
            folder = Path(runs) / run["federation"] / run["label"] / f"seed{seed}"
            names = {name: run[name] for name in ("federation", "dataset", "partition", "label")}
            names |= {"paper": spec["paper"], "method": run["method"], "seed": seed}
            rows, shards = _read_run(folder, run["method"], seed)
            metrics.append(rows.assign(**names))
            clients.append(shards.assign(**names))
    if not metrics:
        raise DataError(f"the specification of {spec['paper']} lists no run")
    every = pd.concat(clients, ignore_index=True)
    diagnostics = sorted(set(every) - {*CLIENT_COLUMNS, "partition"}, key=_numbered)
    return (
        pd.concat(metrics, ignore_index=True)[list(COLUMNS)],
        every[[*CLIENT_COLUMNS, *diagnostics]],
    )


def _read_run(folder: Path, method: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    history = RunResult.load(folder / "history.h5")
    evaluation = RunResult.load(folder / "evaluation.h5")
    for result, name in ((history, "history.h5"), (evaluation, "evaluation.h5")):
        found = (result.spec.get("method", method), result.spec.get("seed", seed))
        if found != (method, seed):
            raise DataError(
                f"{folder / name} is of method {found[0]}, seed {found[1]}, "
                f"not of {method}, seed {seed}; delete the folder and run again"
            )
    try:
        return run_rows(history, evaluation), client_rows(history, evaluation)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def write(frame: pd.DataFrame, *paths: str | Path) -> None:
    """Write a frame to each path, atomically; the suffix (.parquet or .csv) chooses the format."""
    for path in paths:
        save = frames.write_csv if Path(path).suffix == ".csv" else frames.write_parquet
        save(frame, path)


# Over seeds


def over_seeds(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """`value` over the rows of each group of `by`, one row per seed.

    Returns:
      One row per group: `by`, then mean, std (ddof 1), ci95 (half-width of the 95 % interval of
      the mean, Student's t), low, high (smallest and largest seed) and seeds. With one seed std is
      NaN, and with fewer than `INTERVAL_SEEDS` ci95 is: see `half_width`.
    """
    groups = frame.groupby(by, sort=False, observed=True)["value"]
    table = groups.agg(mean="mean", std="std", low="min", high="max", seeds="count").reset_index()
    return table.assign(ci95=half_width(table["std"], table["seeds"]))


def half_width(std: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Half-width of the 95 % interval of a mean: t(0.975, n - 1) std / sqrt(n).

    NaN for n < `INTERVAL_SEEDS`: with two seeds it would be nine times their standard deviation,
    an interval of the quantile rather than of the data.
    """
    seeds = np.asarray(seeds, np.float64)
    quantile = stdtrit(np.where(seeds >= INTERVAL_SEEDS, seeds - 1, np.nan), 0.975)
    return quantile * np.asarray(std) / np.sqrt(seeds)
