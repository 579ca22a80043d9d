"""The metrics of one view, and the best evaluation of a run.

A metric is a function of the counts of all evaluations of a view, Scores -> [T]. The final
evaluation computes metrics that need more than counts, see `fedlib.run.predictions`.
"""

import numpy as np

from fedlib.errors import DataError
from fedlib.results import RunResult, Scores, View

PRIMARY = View("seen", "default", "test")
SERVER = View("server", "default", "test")  # a global model on a global test set
CHOOSING = SERVER._replace(split="val")  # by which a server chooses a round


def accuracy(scores: Scores) -> np.ndarray:
    """Correct predictions of all clients over all their examples -> [T]"""
    return _drop_empty(scores).correct.sum(axis=1) / scores.count.sum()


def accuracy_client_mean(scores: Scores) -> np.ndarray:
    """Unweighted mean of the clients' accuracies -> [T]"""
    return _client_accuracies(scores).mean(axis=1)


def accuracy_client_std(scores: Scores) -> np.ndarray:
    """Standard deviation of the clients' accuracies; ddof 0, as for a whole population -> [T]"""
    return _client_accuracies(scores).std(axis=1)


def bottom10(scores: Scores) -> np.ndarray:
    """Accuracy of the floor(C / 10)-th worst client, of the worst if C < 20 -> [T]"""
    return _worst(scores)[:, -1]


def bottom10_mean(scores: Scores) -> np.ndarray:
    """Mean accuracy of the floor(C / 10) worst clients, at least one -> [T]"""
    return _worst(scores).mean(axis=1)


def loss(scores: Scores) -> np.ndarray:
    """Mean negative log-likelihood over the examples of all clients -> [T]"""
    owned = _drop_empty(scores)
    return (owned.loss * owned.count).sum(axis=1) / owned.count.sum()


def regret(scores: Scores, optimum: np.ndarray) -> np.ndarray:
    """Mean of the clients' best expected accuracies less the mean of their accuracies -> [T]

    Args:
      optimum: [num_clients] best accuracy of each client of the federation.
    """
    best = optimum[scores.clients[scores.count > 0]]
    return (best - _client_accuracies(scores)).mean(axis=1)


METRICS = (accuracy, accuracy_client_mean, accuracy_client_std, bottom10, bottom10_mean, loss)
METRICS_OF_SERVER = (accuracy, loss)  # the others compare clients


def _drop_empty(scores: Scores) -> Scores:
    """The scores of the clients with examples; DataError if there are none, or if any is absurd."""
    has = scores.count > 0
    if not has.any():
        raise DataError("no client of this view has an example, so it has no accuracy")
    correct, loss = scores.correct[:, has], scores.loss[:, has]
    owned = Scores(scores.clients[has], scores.count[has], correct, loss)
    if not np.all((owned.correct >= 0) & (owned.correct <= owned.count)):
        raise DataError("right predictions must be between 0 and the number of examples")
    if np.isnan(owned.loss).any():
        raise DataError("the loss of a client with examples is not a number")
    return owned


def _client_accuracies(scores: Scores) -> np.ndarray:
    """Accuracy of every client that has examples -> [T, C']"""
    owned = _drop_empty(scores)
    return owned.correct / owned.count


def _worst(scores: Scores) -> np.ndarray:
    """The floor(C' / 10) smallest client accuracies, at least one, in ascending order -> [T, k]"""
    values = np.sort(_client_accuracies(scores), axis=1)
    return values[:, : max(1, values.shape[1] // 10)]


def primary(history: RunResult) -> View:
    """The view that decides the best round: of the seen clients, or else of the server.

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

    None if there are no such examples.
    """
    scores = history.scores.get(CHOOSING)
    return int(np.argmin(loss(scores))) if scores and scores.count.any() else None
