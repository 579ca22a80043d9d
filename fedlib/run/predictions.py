"""Metrics of single predictions, for which counts are not enough.

A final evaluation computes and stores them. A metric is a function of the predictions for the test
examples of all clients of a view, Predictions -> a number.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedlib import streams
from fedlib.errors import DataError
from fedlib.results import Predictions, RunResult

BINS = 15  # of the calibration error
DRAWS = 100  # of right and wrong predictions, for its value by chance


def summarise(evaluation: RunResult, names: Collection[str]) -> RunResult:
    """The evaluation, with metrics among its diagnostics in place of its predictions.

    A metric of a view has a name such as "ece:seen:default", [1]. With "brier", the mean score of
    each client is stored, too, as "brier_of_clients:seen:default", [C].

    Args:
      names: of the metrics, see `METRICS`.
    """
    found = {}
    for view, predictions in evaluation.predictions.items():
        of_view = f":{view.group}:{view.protocol}"
        for name in names:
            found[name + of_view] = np.array([METRICS[name](predictions)])
        if "brier" in names:
            each = brier_of_clients(predictions, evaluation.scores[view].count)
            found["brier_of_clients" + of_view] = each
    return replace(evaluation, predictions={}, diagnostics=evaluation.diagnostics | found)


def macro_f1(predictions: Predictions) -> float:
    """Macro F1: the mean over classes that have examples of 2 TP / (2 TP + FP + FN).

    Predicting a class without examples is an error, and counts against the right class.
    """
    from sklearn.metrics import f1_score  # takes a second to import

    y, said = predictions.y, predictions.log_probs.argmax(1)
    return float(f1_score(y, said, labels=np.unique(y), average="macro", zero_division=0))


def auc(predictions: Predictions) -> float:
    """Mean over the classes of the area under the ROC curve, each class against all others.

    The area is the probability that an example of the class gets a higher probability of this class
    than an example of another class; ties count half. Classes that have no example or all examples
    have no curve and are left out.

    Raises:
      DataError: if no class has a curve.
    """
    from sklearn.metrics import roc_auc_score

    y, scores = predictions.y, predictions.log_probs
    classes = np.unique(y)
    if len(classes) < 2:
        raise DataError(f"AUC needs examples of two classes, all are of {classes.tolist()}")
    return float(np.mean([roc_auc_score(y == label, scores[:, label]) for label in classes]))


def brier(predictions: Predictions) -> float:
    """Brier score: mean of `brier_each`."""
    return float(brier_each(predictions).mean())


def brier_each(predictions: Predictions) -> np.ndarray:
    """Sum over classes of the squared error of their probability, from 0 to 2 -> [M]"""
    p = np.exp(predictions.log_probs.astype(np.float64))
    return (p**2).sum(1) + 1 - 2 * p[np.arange(len(p)), predictions.y]


def brier_of_clients(predictions: Predictions, count: np.ndarray) -> np.ndarray:
    """Mean of `brier_each` of each client, NaN without examples -> [C]

    Args:
      count: [C] examples of each client; predictions are in the order of the clients.
    """
    owner = np.repeat(np.arange(len(count)), count)
    total = np.bincount(owner, brier_each(predictions), minlength=len(count))
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)


def ece(predictions: Predictions) -> float:
    """Expected calibration error: mean distance of confidence and accuracy in `BINS` bins.

    Confidence is the probability of the predicted class. Bins have equal numbers of examples, in
    the order of confidence, but equal confidences are in one bin. Weighted by examples.

    Source: Nixon et al., "Measuring Calibration in Deep Learning", CVPR workshops 2019.
    """
    right = predictions.log_probs.argmax(1) == predictions.y
    return _distance(*_by_confidence(predictions), right)


def ece_by_chance(predictions: Predictions) -> float:
    """Mean `ece` if every prediction is right with exactly the probability of its confidence.

    It is not 0, because a bin has few examples.
    """
    confidence, bins = _by_confidence(predictions)
    draw = streams.generator(0, "calibration")
    right = (draw.random(len(confidence)) < confidence for _ in range(DRAWS))
    return float(np.mean([_distance(confidence, bins, each) for each in right]))


def _by_confidence(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """(confidence, bin) of each prediction -> [M], [M]"""
    confidence = np.exp(predictions.log_probs.max(1).astype(np.float64))
    edges = np.quantile(confidence, np.arange(1, BINS) / BINS)
    return confidence, np.searchsorted(edges, confidence, side="right")


def _distance(confidence: np.ndarray, bins: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(np.bincount(bins, confidence - right)).sum() / len(bins))


METRICS = {metric.__name__: metric for metric in (macro_f1, auc, brier, ece, ece_by_chance)}
