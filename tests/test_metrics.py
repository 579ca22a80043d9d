"""Metrics: every expected number is worked out here, by hand or by a plain loop."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import made_up
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from fedlib.errors import DataError
from fedlib.report import metrics
from fedlib.results import Predictions, RunResult, Scores, View

ROOT = Path(__file__).resolve().parents[1]
SEEN, UNSEEN = View("seen", "default", "test"), View("unseen", "default", "test")


def result(scores: dict, rounds=(0,), **changes) -> RunResult:
    rounds = np.asarray(rounds)
    totals = {"examples": 7 * rounds, "client_rounds": 2 * rounds}
    return RunResult(
        rounds, scores, 10 * rounds, 5 * rounds, train_loss=np.empty(0), **totals, **changes
    )


def value(rows: pd.DataFrame, **where) -> float:
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1, rows
    return float(rows["value"].iloc[0])


def test_accuracy_pools_examples_and_the_client_mean_does_not():
    scores = made_up.scores([[1.0, 0.5]], count=[10, 30])  # 10 of 10 and 15 of 30 right
    assert metrics.accuracy(scores) == pytest.approx([25 / 40])
    assert metrics.accuracy_client_mean(scores) == pytest.approx([0.75])
    assert metrics.accuracy_client_std(scores) == pytest.approx([0.25])


def test_accuracy_is_the_mean_weighted_by_test_counts():
    draw = np.random.default_rng(0)
    count = draw.integers(1, 50, 12)
    scores = made_up.scores(draw.random((3, 12)), count)
    expected = [np.average(row / count, weights=count) for row in scores.correct]
    assert metrics.accuracy(scores) == pytest.approx(expected)


def test_loss_is_weighted_by_counts():
    scores = made_up.scores([[0.0, 0.0]], count=[1, 3], loss=[2.0, 4.0])
    assert metrics.loss(scores) == pytest.approx([(1 * 2 + 3 * 4) / 4])


def test_bottom_decile_of_twenty_clients():
    accuracies = np.arange(1, 21) / 20  # 0.05, 0.10, ..., 1.00
    scores = made_up.scores([accuracies[::-1]], count=np.full(20, 20))
    assert metrics.bottom10(scores) == pytest.approx([0.10])  # the 2nd smallest
    assert metrics.bottom10_mean(scores) == pytest.approx([0.075])  # of 0.05 and 0.10


@pytest.mark.parametrize(
    ("clients", "rank"), [(80, 8), (100, 10), (64, 6), (20, 2), (16, 1), (3, 1), (1, 1)]
)
def test_bottom_decile_takes_a_tenth_of_the_clients_rounded_down(clients, rank):
    accuracies = np.arange(1, clients + 1) / 1000
    scores = made_up.scores([accuracies], count=np.full(clients, 1000))
    assert metrics.bottom10(scores) == pytest.approx([rank / 1000])


def test_a_client_without_examples_counts_in_nothing():
    with_it = made_up.scores([[0.5, np.nan, 1.0]], count=[10, 0, 10], loss=[1.0, np.nan, 3.0])
    without = made_up.scores([[0.5, 1.0]], count=[10, 10], loss=[1.0, 3.0])
    for metric in metrics.METRICS:
        assert metric(with_it) == pytest.approx(metric(without)), metric.__name__
    clients = metrics.client_rows(result({SEEN: with_it}))
    row = clients[(clients["client"] == 1) & (clients["at"] == "last")].iloc[0]
    assert row["count"] == 0 and math.isnan(row["accuracy"]) and math.isnan(row["loss"])


def test_a_view_without_any_example_is_left_out():
    empty = made_up.scores([[np.nan, np.nan]], count=[0, 0])
    history = result({SEEN: made_up.scores([[0.5]], count=[2]), UNSEEN: empty})
    assert set(metrics.run_rows(history)["group"]) == {"seen", "all"}
    assert set(metrics.client_rows(history)["group"]) == {"seen"}
    with pytest.raises(DataError, match="no client"):
        metrics.accuracy(empty)


@pytest.mark.parametrize("correct", [-1.0, 11.0, math.nan])
def test_absurd_counts_are_refused(correct):
    scores = Scores(np.array([0]), np.array([10]), np.array([[correct]]), np.array([[0.1]]))
    with pytest.raises(DataError, match="right predictions"):
        metrics.accuracy(scores)


def test_a_loss_that_is_not_a_number_is_refused_with_its_view():
    scores = made_up.scores([[0.5]], count=[10], loss=[math.nan])
    with pytest.raises(DataError, match="view seen/default/test: the loss"):
        metrics.run_rows(result({SEEN: scores}))


# -- metrics of single predictions --------------------------------------------------------------


def predictions(probabilities, y) -> Predictions:
    return Predictions(np.log(np.asarray(probabilities, np.float32)), np.asarray(y))


def test_f1_is_the_mean_over_classes_that_have_examples():
    # Class 3 has no example, and is predicted once.
    said, y = [0, 1, 1, 1, 2, 3], [0, 0, 1, 1, 2, 2]
    found = predictions(np.eye(4)[said] * 0.6 + 0.1, y)
    # F1 by class: TP, FP, FN of 0: 1, 0, 1; of 1: 2, 1, 0; of 2: 1, 0, 1.
    assert metrics.macro_f1(found) == pytest.approx((2 / 3 + 4 / 5 + 2 / 3) / 3)


def test_a_class_that_is_never_predicted_has_an_f1_of_zero():
    found = predictions([[0.9, 0.1]] * 4, [0, 0, 0, 1])
    assert metrics.macro_f1(found) == pytest.approx((6 / 7 + 0) / 2)


def test_auc_counts_pairs_that_are_in_order_and_half_of_the_equal_ones():
    p = np.array([0.9, 0.4, 0.4, 0.7, 0.1])  # of class 1
    found = predictions(np.stack([1 - p, p], 1), [1, 1, 0, 0, 0])
    # 0.9 is above all three; 0.4 equals one, is below one and above one. Class 0 mirrors that.
    assert metrics.auc(found) == pytest.approx((3 + 1.5) / 6)


def test_auc_of_several_classes_is_the_mean_of_each_against_the_rest():
    draw = np.random.default_rng(3)
    p, y = draw.dirichlet(np.ones(5), 40), draw.integers(0, 4, 40)  # class 4 has no example
    areas = []
    for label in range(4):
        pairs = [(a > b) + (a == b) / 2 for a in p[y == label, label] for b in p[y != label, label]]
        areas.append(np.mean(pairs))
    assert metrics.auc(predictions(p, y)) == pytest.approx(np.mean(areas))


def test_a_single_class_has_no_auc():
    with pytest.raises(DataError, match=r"AUC needs examples of two classes, all are of \[1\]"):
        metrics.auc(predictions([[0.4, 0.6], [0.2, 0.8]], [1, 1]))


def drawn(sharper=1.0, size=6000):
    """Predictions right with just their probability, but for how much sharper they are."""
    draw = np.random.default_rng(5)
    logits = draw.normal(size=(size, 4)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = (p.cumsum(1) > draw.random((size, 1))).argmax(1)
    sharp = np.exp(sharper * logits)
    return predictions(sharp / sharp.sum(1, keepdims=True), y)


def test_the_brier_score_is_the_squared_error_of_all_probabilities():
    found = drawn(size=50)
    p = np.exp(found.log_probs)
    expected = [sum((p[i, k] - (k == y)) ** 2 for k in range(4)) for i, y in enumerate(found.y)]
    assert metrics.brier(found) == pytest.approx(np.mean(expected), rel=1e-5)
    two = predictions(np.stack([1 - p[:, 0], p[:, 0]], 1), (found.y == 0).astype(int))
    by_sklearn = brier_score_loss(found.y == 0, p[:, 0])  # of one of two classes: half of ours
    assert metrics.brier(two) == pytest.approx(2 * by_sklearn, rel=1e-5)


def test_the_calibration_error_is_that_of_fifteen_bins_of_equal_size():
    found = drawn(2.0, 1500)
    confidence, right = np.exp(found.log_probs.max(1)), found.log_probs.argmax(1) == found.y
    share, mean = calibration_curve(right, confidence, n_bins=15, strategy="quantile")
    assert metrics.ece(found) == pytest.approx(np.abs(share - mean).mean(), abs=2e-3)


def test_an_overconfident_predictor_has_an_error_and_a_calibrated_one_that_of_chance():
    right, sharp = drawn(), drawn(2.0)
    assert metrics.ece(right) == pytest.approx(metrics.ece_by_chance(right), abs=0.01)
    assert metrics.ece(sharp) > 0.1 > 5 * metrics.ece_by_chance(sharp)
    assert metrics.ece_by_chance(right) == metrics.ece_by_chance(right)


def test_equal_confidences_are_in_one_bin_in_whatever_order():
    found = predictions([[0.7, 0.3]] * 40, [0] * 28 + [1] * 12)
    assert metrics.ece(found) == pytest.approx(0, abs=1e-6)


def test_a_client_has_the_brier_score_of_its_own_examples():
    scores = {SEEN: made_up.scores([[1.0, 0.0, 0.0]], count=[1, 0, 2])}
    made = {SEEN: predictions([[0.9, 0.1], [0.5, 0.5], [1.0, 1e-9]], [0, 1, 1])}
    rows = metrics.client_rows(result(scores), result(scores, predictions=made))
    found = rows[rows["at"] == "last"]["brier"].to_numpy()
    assert found == pytest.approx([0.02, np.nan, (0.5 + 2) / 2], nan_ok=True)


def test_metrics_of_predictions_are_of_the_last_round_alone():
    history = result({SEEN: made_up.scores([[0.0], [0.5]], count=[2])}, rounds=(0, 3))
    final = result({SEEN: made_up.scores([[0.5]], count=[2])}, rounds=(3,))
    made = {SEEN: predictions([[0.9, 0.1], [0.8, 0.2]], [0, 1])}
    rows = metrics.run_rows(history, replace(final, predictions=made))
    mine = rows[rows["metric"].isin(["macro_f1", "auc"])]
    assert set(mine["at"]) == {"last"} and set(mine["round"]) == {3}
    assert value(mine, metric="macro_f1", group="seen", split="test") == pytest.approx(1 / 3)
    assert value(mine, metric="auc") == 1.0
    assert not {"macro_f1", "auc"} & {*metrics.run_rows(history, final)["metric"]}


def test_predictions_survive_the_file(tmp_path):
    made = predictions([[0.9, 0.1]], [0])
    final = result({SEEN: made_up.scores([[1.0]], count=[1])}, predictions={SEEN: made})
    final.save(tmp_path / "evaluation.h5")
    loaded = RunResult.load(tmp_path / "evaluation.h5").predictions
    assert loaded.keys() == {SEEN}
    assert all(np.array_equal(a, b) for a, b in zip(loaded[SEEN], made, strict=True))


# -- which round --------------------------------------------------------------------------------


def test_best_is_the_earliest_round_of_highest_accuracy_for_every_view():
    history = result(
        {
            SEEN: made_up.scores([[0.1], [0.9], [0.9], [0.5]], count=[10]),
            UNSEEN: made_up.scores([[0.1], [0.2], [0.3], [0.4]], count=[10]),
        },
        rounds=(0, 5, 10, 15),
    )
    rows = metrics.run_rows(history)
    best = rows[rows["at"] == "best"]
    assert set(best["round"]) == {5}
    assert value(best, metric="accuracy", group="seen") == pytest.approx(0.9)
    assert value(best, metric="accuracy", group="unseen") == pytest.approx(0.2)
    assert value(best, metric="bytes") == 75  # (10 + 5) bytes a round
    last = rows[rows["at"] == "last"]
    assert set(last["round"]) == {15}
    assert value(last, metric="accuracy", group="seen") == pytest.approx(0.5)


def test_chosen_is_the_earliest_round_of_least_loss_on_the_servers_validation_examples():
    right = made_up.scores([[0.1], [0.2], [0.3], [0.4]], count=[10])
    losses = made_up.scores([[0.0]] * 4, count=[10], loss=[[3.0], [1.0], [1.0], [2.0]])
    server = View("server", "default", "test")
    scores = {SEEN: right, server: right, server._replace(split="val"): losses}
    rows = metrics.run_rows(result(scores, rounds=(0, 5, 10, 15)))
    chosen = rows[rows["at"] == "chosen"]
    assert set(chosen["round"]) == {5}
    assert value(chosen, metric="accuracy", group="server", split="test") == pytest.approx(0.2)


def test_without_the_deciding_view_there_is_no_best_round():
    with pytest.raises(DataError, match="seen/default/test"):
        metrics.run_rows(result({UNSEEN: made_up.scores([[0.5]], count=[2])}))


def test_every_evaluated_round_is_a_row_and_training_loss_begins_after_round_one():
    scores = made_up.scores([[0.1], [0.2], [0.3]], count=[10])
    history = replace(result({SEEN: scores}, (0, 2, 4)), train_loss=np.array([4.0, 3.0, 2.0, 1.0]))
    rows = metrics.run_rows(history)
    curve = rows[(rows["at"] == "round") & (rows["metric"] == "accuracy")]
    assert curve["round"].tolist() == [0, 2, 4]
    assert curve["value"].tolist() == pytest.approx([0.1, 0.2, 0.3])
    training = rows[(rows["at"] == "round") & (rows["metric"] == "train_loss")]
    assert training["round"].tolist() == [1, 2, 3, 4]
    assert training["value"].tolist() == [4.0, 3.0, 2.0, 1.0]
    traffic = rows[rows["metric"].str.startswith("bytes")]
    assert set(traffic["group"]) == {"all"} and set(traffic["protocol"]) == {""}


def test_cost_is_a_curve_and_flops_are_those_of_all_examples():
    scores = made_up.scores([[0.1], [0.9], [0.3]], count=[10])
    history = result({SEEN: scores}, (0, 2, 4))  # 7 examples and 2 clients a round
    rows = metrics.run_rows(history)
    for name, expected in (("examples", [0, 14, 28]), ("client_rounds", [0, 4, 8])):
        curve = rows[(rows["at"] == "round") & (rows["metric"] == name)]
        assert curve["value"].tolist() == expected
        assert value(rows, at="best", metric=name) == expected[1]
    assert not rows["metric"].str.startswith("flops").any()  # nobody measured them

    last = made_up.scores([[0.3]], count=[10])
    measured = {"flops_per_example": np.array([300.0])}
    rows = metrics.run_rows(history, result({SEEN: last}, (4,), diagnostics=measured))
    flops = rows[rows["metric"].str.startswith("flops")]
    assert set(flops["at"]) == {"last"} and set(flops["group"]) == {"all"}
    assert value(flops, metric="flops_per_example") == 300
    assert value(flops, metric="flops") == 28 * 300


def test_views_of_the_evaluation_alone_have_only_a_last_value():
    history = result({SEEN: made_up.scores([[0.1], [0.2]], count=[10])}, (0, 1))
    evaluation = result(
        {
            SEEN: made_up.scores([[0.2]], count=[10]),
            View("unseen", "fresh", "test"): made_up.scores([[0.3]], count=[10]),
        },
        (1,),
    )
    rows = metrics.run_rows(history, evaluation)
    fresh = rows[rows["protocol"] == "fresh"]
    assert set(fresh["at"]) == {"last"} and set(fresh["round"]) == {1}
    assert value(rows, at="last", group="seen", metric="accuracy") == pytest.approx(0.2)


def test_an_evaluation_that_contradicts_the_history_is_refused():
    history = result({SEEN: made_up.scores([[0.1], [0.2]], count=[10])}, (0, 1))
    close = made_up.scores([[0.2]], count=[10], loss=[0.8 * (1 + 1e-6)])
    metrics.check_agreement(history, result({SEEN: close}, (1,)))
    for other in (
        made_up.scores([[0.3]], count=[10], loss=[0.8]),
        made_up.scores([[0.2]], count=[10], loss=[0.8 * (1 + 1e-4)]),
        made_up.scores([[0.1]], count=[20], loss=[0.8]),
    ):
        with pytest.raises(DataError, match="disagree on seen/default/test"):
            metrics.check_agreement(history, result({SEEN: other}, (1,)))
    with pytest.raises(DataError, match="ends at round 1, the evaluation is of round 2"):
        metrics.check_agreement(history, result({SEEN: close}, (2,)))


def test_clients_carry_their_mixture_weights_at_the_last_round():
    pi = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    seen = Scores(np.array([0, 2]), np.array([4, 4]), np.array([[1.0, 2], [3, 4]]), np.ones((2, 2)))
    clients = metrics.client_rows(result({SEEN: seen}, (0, 1), diagnostics={"pi": pi}))
    last = clients[clients["at"] == "last"]
    assert last["client"].tolist() == [0, 2]
    assert last[["pi_0", "pi_1"]].to_numpy() == pytest.approx(pi[[0, 2]])
    assert last["accuracy"].tolist() == [0.75, 1.0]
    with pytest.raises(DataError, match="do not cover client 2"):
        metrics.client_rows(result({SEEN: seen}, (0, 1), diagnostics={"pi": pi[:2]}))


def test_the_interval_over_seeds_is_students():
    frame = pd.DataFrame({"label": ["a", "a", "a", "b"], "value": [0.1, 0.2, 0.6, 0.5]})
    table = metrics.over_seeds(frame, ["label"]).set_index("label")
    std = math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2)  # around the mean 0.3
    assert table.loc["a", "mean"] == pytest.approx(0.3)
    assert table.loc["a", "std"] == pytest.approx(std)
    # 4.302653 is the 97.5 % point of Student's t with 2 degrees of freedom, from a printed table.
    assert table.loc["a", "ci95"] == pytest.approx(4.302653 * std / math.sqrt(3), rel=1e-6)
    assert (table.loc["a", "low"], table.loc["a", "high"]) == (0.1, 0.6)
    assert table.loc["b", "seeds"] == 1 and math.isnan(table.loc["b", "ci95"])


def test_two_seeds_have_a_range_and_no_interval():
    frame = pd.DataFrame({"label": ["a", "a"], "value": [0.2, 0.1]})
    (row,) = metrics.over_seeds(frame, ["label"]).to_dict("records")
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((0.15, 0.1, 0.2))
    assert math.isnan(row["ci95"]) and row["std"] == pytest.approx(0.1 / math.sqrt(2))


def test_collecting_names_the_run_that_is_wrong(tmp_path):
    exhibit = made_up.exhibit(["fedavg"], ["emnist"], seeds=[1])
    spec = made_up.metrics_spec(exhibit)
    with pytest.raises(DataError, match="fedavg/seed1/history.h5 does not exist"):
        metrics.collect(spec, tmp_path)
    made_up.save_runs(exhibit, tmp_path)
    exhibit["runs"][0]["method"] = "fedprox"
    with pytest.raises(DataError, match="fedavg/seed1/history.h5 is the result of something else"):
        metrics.collect(made_up.metrics_spec(exhibit), tmp_path)


def test_thirty_runs_take_a_second(tmp_path):
    exhibit = made_up.exhibit(["pfedmm"], ["emnist"], seeds=[1])
    made_up.save_runs(exhibit, tmp_path)
    spec = made_up.metrics_spec(exhibit)
    spec["runs"] *= 30
    start = time.process_time()
    tidy, _ = metrics.collect(spec, tmp_path)
    assert len(tidy) == 30 * len(metrics.run_rows(*made_up.run("pfedmm", "pfedmm", 1).values()))
    assert time.process_time() - start < 6  # about 0.6 s on one core; generous for a busy machine


@pytest.mark.slow
def test_script_writes_the_declared_columns_and_needs_no_torch(tmp_path):
    exhibit = made_up.exhibit(["local", "pfedmm"])
    made_up.save_runs(exhibit, tmp_path / "runs")
    command = [
        *(sys.executable, ROOT / "scripts/metrics.py", "--runs", tmp_path / "runs"),
        *("--spec", json.dumps(made_up.metrics_spec(exhibit)), "--parquet", tmp_path / "m.parquet"),
        *("--csv", tmp_path / "m.csv", "--clients", tmp_path / "c.parquet"),
    ]
    subprocess.run(command, check=True)
    tidy = pd.read_parquet(tmp_path / "m.parquet")
    assert tuple(tidy.columns) == metrics.COLUMNS
    as_text = pd.read_csv(tmp_path / "m.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(tidy, as_text, check_dtype=False)
    clients = pd.read_parquet(tmp_path / "c.parquet")
    assert tuple(clients.columns) == (*metrics.CLIENT_COLUMNS, "pi_0", "pi_1", "pi_2")
    assert clients.loc[clients["label"] == "local", "pi_0"].isna().all()
    first = [(tmp_path / name).read_bytes() for name in ("m.parquet", "m.csv", "c.parquet")]
    subprocess.run(command, check=True)
    again = [(tmp_path / name).read_bytes() for name in ("m.parquet", "m.csv", "c.parquet")]
    assert first == again


@pytest.mark.slow
def test_results_half_imports_no_torch():
    program = (
        "import sys, fedlib.report.metrics, fedlib.report.pages.as_html\n"
        "import fedlib.report.tables as t, fedlib.report.figures as f\n"
        "from fedlib.spec.exhibits import KINDS\n"
        "[t.load(x) for x in KINDS['table']]; [f.load(x) for x in KINDS['figure']]\n"
        "bad = {'torch', 'fedlib.engine', 'fedlib.methods', 'matplotlib.pyplot'}\n"
        "assert not bad & set(sys.modules), bad & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
