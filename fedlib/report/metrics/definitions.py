"""The metrics of one view, and which evaluation of a run is its best.

A metric is a function of the counts of all evaluations of a view, Scores -> [T]; or of what was
predicted for each example after the last round, Predictions -> a number.
"""

import numpy as np

from fedlib import streams
from fedlib.errors import DataError
from fedlib.results import Predictions, RunResult, Scores, View

PRIMARY = View("seen", "default", "test")
SERVER = View("server", "default", "test")  # a global model on a global test set
CHOOSING = SERVER._replace(split="val")  # what a server would choose a round by
BINS = 15  # of the calibration error
DRAWS = 100  # of right and wrong predictions, for what it is by chance


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


def macro_f1(predictions: Predictions) -> float:
    """Macro F1: the mean over classes that have examples of 2 TP / (2 TP + FP + FN).

    To predict a class without examples is wrong, and counts against the class that was right.
    """
    from sklearn.metrics import f1_score  # takes a second to import

    y, said = predictions.y, predictions.log_probs.argmax(1)
    return float(f1_score(y, said, labels=np.unique(y), average="macro", zero_division=0))


def auc(predictions: Predictions) -> float:
    """Mean over the classes of the area under the ROC curve, each class against all others.

    That is how probably an example of the class is given a higher probability of it than one of
    another class; of equal ones half count. Classes of none or all of the examples have no curve
    and are left out.

    Raises:
      DataError: if no class has one.
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


def ece(predictions: Predictions) -> float:
    """Expected calibration error: mean distance of confidence and accuracy in `BINS` of examples.

    The bins have equally many examples, in the order of their confidence, the probability of what
    is predicted; but equal confidences are in one bin. Weighted by examples.

    Source: Nixon et al., "Measuring Calibration in Deep Learning", CVPR workshops 2019.
    """
    right = predictions.log_probs.argmax(1) == predictions.y
    return _distance(*_by_confidence(predictions), right)


def ece_by_chance(predictions: Predictions) -> float:
    """What `ece` is on average if every prediction is right with just its probability.

    It is not 0, as a bin has few examples.
    """
    confidence, bins = _by_confidence(predictions)
    draw = streams.generator(0, "calibration")
    right = (draw.random(len(confidence)) < confidence for _ in range(DRAWS))
    return float(np.mean([_distance(confidence, bins, each) for each in right]))


def _by_confidence(predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """The probability of what is predicted, and the bin of the example -> [M], [M]"""
    confidence = np.exp(predictions.log_probs.max(1).astype(np.float64))
    edges = np.quantile(confidence, np.arange(1, BINS) / BINS)
    return confidence, np.searchsorted(edges, confidence, side="right")


def _distance(confidence: np.ndarray, bins: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(np.bincount(bins, confidence - right)).sum() / len(bins))


def regret(scores: Scores, optimum: np.ndarray) -> np.ndarray:
    """How far the mean of the clients' accuracies is below the best to expect -> [T]

    Args:
      optimum: [num_clients] best accuracy of each client of the federation.
    """
    best = optimum[scores.clients[scores.count > 0]]
    return (best - _client_accuracies(scores)).mean(axis=1)


METRICS = (accuracy, accuracy_client_mean, accuracy_client_std, bottom10, bottom10_mean, loss)
METRICS_OF_SERVER = (accuracy, loss)  # the others compare clients
METRICS_OF_PREDICTIONS = (macro_f1, auc, brier, ece, ece_by_chance)


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


def chosen_evaluation(history: RunResult) -> int | None:
    """Position of the earliest evaluation with the least loss on the server's validation examples.

    None where there are no such examples.
    """
    scores = history.scores.get(CHOOSING)
    return int(np.argmin(loss(scores))) if scores and scores.count.any() else None
