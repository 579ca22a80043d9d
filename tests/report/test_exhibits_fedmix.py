"""Exhibits of FedMix: what is recorded of experts, curves by traffic, tables and views."""

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib.errors import DataError
from fedlib.report import diagnostics
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.results import CLIENT_COLUMNS, RunResult, View

DEFAULT = View("seen", "default", "test")
NEW_SHARD = View("seen", "new_shard", "val")
GIB = 2**30


def result(views=None, rounds=(0, 10, 20, 30), diagnostics=None, **totals) -> RunResult:
    """A history; views are accuracies [T, C] of clients with 100 examples each."""
    views = views or {DEFAULT: np.full((len(rounds), 4), 0.5)}
    scores = {view: made_up.scores(x, np.full(np.shape(x)[1], 100)) for view, x in views.items()}
    totals = {"client_rounds": 2 * np.asarray(rounds), **totals}
    return made_up.result(scores, rounds, diagnostics=diagnostics or {}, **totals)


# Metrics: what is said of experts


def of_rounds(history, metric) -> pd.DataFrame:
    rows = run_rows(history).query("metric == @metric")
    assert set(rows["at"]) == {"round"} and set(rows["group"]) == {"all"}
    return rows


def test_divergence_is_a_metric_of_the_rounds_in_which_there_was_one():
    planned = np.array([[0.1, 0.2], [0.3, np.nan], [0.5, 0.6]])  # of three rounds, two took place
    rows = of_rounds(result(rounds=(0, 1, 2), diagnostics={"divergence": planned}), "divergence")
    found = rows[["index", "round", "value"]].to_numpy().tolist()
    assert found == [["0", 1, 0.1], ["0", 2, 0.3], ["1", 1, 0.2]]


def test_tables_are_metrics_by_cell_of_the_rounds_that_were_reached():
    values = np.arange(12.0).reshape(2, 3, 2)
    recorded_at = {"tables": values, "table_rounds": np.array([20, 40])}
    rows = of_rounds(result(diagnostics=recorded_at), "table")
    assert set(rows["round"]) == {20}
    cells = dict(zip(rows["index"], rows["value"], strict=True))
    assert cells == {f"{row}_{e}": 2 * row + e for row in range(3) for e in range(2)}


def test_what_is_said_of_experts_is_no_column_of_clients():
    # As many rounds and tables as clients: they are known by name, not by their length.
    diagnostics = {"divergence": np.ones((4, 2)), "tables": np.ones((4, 3, 2))}
    diagnostics |= {"table_rounds": np.arange(4), "marginal": np.full((4, 2), 0.5)}
    rows = client_rows(result(diagnostics=diagnostics))
    assert set(rows) - set(CLIENT_COLUMNS) == {"marginal_0", "marginal_1"}


# Curves


CURVES = np.array([[0.1, 0.3], [0.5, 0.7], [0.6, 0.9], [0.8, 0.9]])  # [T, C]


def curve_of(seed) -> RunResult:
    """Seed 2 is 0.04 above seed 1, and the protocol new_shard 0.05 below the default one."""
    values = CURVES + 0.04 * (seed - 1)
    sent = np.array([0, 1, 2, 4]) * GIB
    return result({DEFAULT: values, NEW_SHARD: values - 0.05}, bytes_down=sent, bytes_up=0 * sent)


def test_a_matrix_has_the_columns_of_its_run_alone():
    frame = pd.DataFrame({"federation": "f", "label": "a", "pi_10": [1.0], "pi_2": [2.0]})
    frame = frame.assign(pi_11=np.nan, pi_x=3.0, pit_0=4.0)
    assert diagnostics.matrix(frame, "pi").tolist() == [[2, 1]]
    with pytest.raises(DataError, match="f/a has no pi_0, pi_1, ... of every client"):
        diagnostics.matrix(pd.concat([frame, frame.assign(pi_2=np.nan)]), "pi")


# Accuracy and traffic


def test_accuracy_is_the_mean_over_the_last_rounds():
    averaged = {"cifar10": 30, "cifar100": 20}
    about = made_up.exhibit([], averaged)
    about["runs"] = made_up.runs(["fedavg"], about["federations"], 30, {"fedavg": "fedavg_adam"})
    frames = made_up.collect(about, lambda run, seed: (curve_of(seed),))
    sheet = made_up.build("accuracy_and_traffic", about, *frames, averaged=averaged)
    means = sheet.numbers
    # Client means 0.2, 0.6, 0.75, 0.85 at rounds 0, 10, 20, 30; the last 20 begin after 10.
    assert means["mean"].tolist() == pytest.approx([2.2 / 3 + 0.02, 1.6 / 2 + 0.02])
    assert means["evaluations"].tolist() == [3, 2]
