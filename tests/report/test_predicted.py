"""Metrics of single predictions: each expected number is worked out by hand or by a plain loop."""

import made_up
import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from test_metrics import SEEN, result, value

from fedlib.errors import DataError
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.results import Predictions
from fedlib.run import predictions
from fedlib.spec.exhibits import OF_PREDICTIONS


def of_probabilities(probabilities, y) -> Predictions:
    return Predictions(np.log(np.asarray(probabilities, np.float32)), np.asarray(y))


def test_f1_is_the_mean_over_classes_that_have_examples():
    # Class 3 has no example, and is predicted once.
    said, y = [0, 1, 1, 1, 2, 3], [0, 0, 1, 1, 2, 2]
    found = of_probabilities(np.eye(4)[said] * 0.6 + 0.1, y)
    # F1 by class: TP, FP, FN of 0: 1, 0, 1; of 1: 2, 1, 0; of 2: 1, 0, 1.
    assert predictions.macro_f1(found) == pytest.approx((2 / 3 + 4 / 5 + 2 / 3) / 3)


def test_auc_of_several_classes_is_the_mean_of_each_against_the_rest():
    draw = np.random.default_rng(3)
    p, y = draw.dirichlet(np.ones(5), 40), draw.integers(0, 4, 40)  # class 4 has no example
    areas = []
    for label in range(4):
        pairs = [(a > b) + (a == b) / 2 for a in p[y == label, label] for b in p[y != label, label]]
        areas.append(np.mean(pairs))
    assert predictions.auc(of_probabilities(p, y)) == pytest.approx(np.mean(areas))


def test_a_single_class_has_no_auc():
    with pytest.raises(DataError, match=r"AUC needs examples of two classes, all are of \[1\]"):
        predictions.auc(of_probabilities([[0.4, 0.6], [0.2, 0.8]], [1, 1]))


def drawn(sharper=1.0, size=6000):
    """Predictions right with just their probability, but for how much sharper they are."""
    draw = np.random.default_rng(5)
    logits = draw.normal(size=(size, 4)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = (p.cumsum(1) > draw.random((size, 1))).argmax(1)
    sharp = np.exp(sharper * logits)
    return of_probabilities(sharp / sharp.sum(1, keepdims=True), y)


def test_the_brier_score_is_the_squared_error_of_all_probabilities():
    found = drawn(size=50)
    p = np.exp(found.log_probs)
    expected = [sum((p[i, k] - (k == y)) ** 2 for k in range(4)) for i, y in enumerate(found.y)]
    assert predictions.brier(found) == pytest.approx(np.mean(expected), rel=1e-5)
    two = of_probabilities(np.stack([1 - p[:, 0], p[:, 0]], 1), (found.y == 0).astype(int))
    by_sklearn = brier_score_loss(found.y == 0, p[:, 0])  # of one of two classes: half of ours
    assert predictions.brier(two) == pytest.approx(2 * by_sklearn, rel=1e-5)


def test_the_calibration_error_is_that_of_fifteen_bins_of_equal_size():
    found = drawn(2.0, 1500)
    confidence, right = np.exp(found.log_probs.max(1)), found.log_probs.argmax(1) == found.y
    share, mean = calibration_curve(right, confidence, n_bins=15, strategy="quantile")
    assert predictions.ece(found) == pytest.approx(np.abs(share - mean).mean(), abs=2e-3)


def test_an_overconfident_predictor_has_an_error_and_a_calibrated_one_that_of_chance():
    right, sharp = drawn(), drawn(2.0)
    assert predictions.ece(right) == pytest.approx(predictions.ece_by_chance(right), abs=0.01)
    assert predictions.ece(sharp) > 0.1 > 5 * predictions.ece_by_chance(sharp)
    assert predictions.ece_by_chance(right) == predictions.ece_by_chance(right)


def test_equal_confidences_are_in_one_bin_in_whatever_order():
    found = of_probabilities([[0.7, 0.3]] * 40, [0] * 28 + [1] * 12)
    assert predictions.ece(found) == pytest.approx(0, abs=1e-6)


def test_every_metric_that_exhibits_can_name_is_there():
    assert {*predictions.METRICS} == {*OF_PREDICTIONS}


def test_a_client_has_the_brier_score_of_its_own_examples():
    scores = {SEEN: made_up.scores([[1.0, 0.0, 0.0]], count=[1, 0, 2])}
    made = {SEEN: of_probabilities([[0.9, 0.1], [0.5, 0.5], [1.0, 1e-9]], [0, 1, 1])}
    final = predictions.summarise(result(scores, predictions=made), ["brier"])
    rows = client_rows(result(scores), final)
    found = {at: rows[rows["at"] == at]["brier"].to_numpy() for at in ("last", "best")}
    assert found["last"] == pytest.approx([0.02, np.nan, (0.5 + 2) / 2], nan_ok=True)
    assert np.isnan(found["best"]).all()


def test_an_evaluation_stores_the_metrics_it_is_asked_for_and_no_predictions():
    history = result({SEEN: made_up.scores([[0.0], [0.5]], count=[2])}, rounds=(0, 3))
    scores = {SEEN: made_up.scores([[0.5]], count=[2])}
    made = {SEEN: of_probabilities([[0.9, 0.1], [0.8, 0.2]], [0, 1])}
    final = result(scores, rounds=(3,), predictions=made)
    short = predictions.summarise(final, ["auc", "macro_f1"])
    assert short.predictions == {} and predictions.summarise(final, []).diagnostics == {}
    rows = run_rows(history, short)
    mine = rows[rows["metric"].isin(OF_PREDICTIONS)]
    assert {*mine["metric"]} == {"auc", "macro_f1"}
    assert {*mine["at"]} == {"last"} and {*mine["round"]} == {3}
    assert value(mine, metric="macro_f1", group="seen", split="test") == pytest.approx(1 / 3)
    assert value(mine, metric="auc", protocol="default") == 1.0
