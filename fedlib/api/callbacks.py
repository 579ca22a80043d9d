"""What is called after every evaluation of a run, and may end it: `simulate(..., callbacks=[...])`.

A callback is a function of an `Evaluation`; the run ends there if it returns True.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.fields import Range, check
from fedlib.results import View


@dataclass(frozen=True)
class Evaluation:
    """The results of one evaluation, while the run goes on.

    Attributes:
      round, rounds: rounds done, of how many; round 0 is before training.
      train_loss: mean training loss of the last round with training; None before the first.
      bytes_down, bytes_up: sent from the server to all clients and back since round 0.
      accuracies: accuracy of each client, in [0, 1], by view: a series with the clients' names.
      pooled: accuracy over the examples of all clients together, by view.
    """

    round: int
    rounds: int
    train_loss: float | None
    bytes_down: int
    bytes_up: int
    accuracies: Mapping[View, pd.Series]
    pooled: Mapping[View, float]

    def accuracy(
        self, group: str = "seen", protocol: str = "default", split: str = "test"
    ) -> pd.Series:
        """Accuracy of each client; arguments and errors as those of `Result.accuracy`."""
        return of_view(self.accuracies, View(group, protocol, split))

    def pooled_accuracy(
        self, group: str = "seen", protocol: str = "default", split: str = "test"
    ) -> float:
        """Accuracy over the examples of all clients; arguments as those of `accuracy`."""
        return of_view(self.pooled, View(group, protocol, split))

    def numbers(self) -> dict[str, float]:
        """The numbers of all clients together, by name: what loggers write."""
        found = {"/".join(("accuracy", *view)): value for view, value in self.pooled.items()}
        found |= {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        return found if self.train_loss is None else {**found, "train_loss": self.train_loss}


Callback = Callable[[Evaluation], Any]


@dataclass(kw_only=True)
class EarlyStopping:
    """Ends a run whose pooled accuracy has not risen for some evaluations.

    The result has the state of the last round, and not that of the best one.

    Attributes:
      patience: evaluations without a rise after which the run ends.
      split: of the seen clients' accuracy; "val" needs a federation with validation examples.
    """

    patience: int = 5
    split: str = "val"
    _best: float = field(default=-np.inf, init=False)
    _since: int = field(default=0, init=False)

    def __post_init__(self):
        check(self, {}, {"patience": Range(1)})

    def __call__(self, evaluation: Evaluation) -> bool:
        """True after `patience` evaluations without a rise."""
        if not evaluation.round:  # of another run
            self._best, self._since = -np.inf, 0
        found = evaluation.pooled_accuracy(split=self.split)
        self._since = 0 if found > self._best else self._since + 1
        self._best = max(self._best, found)
        return self._since >= self.patience


def of_view(found: Mapping[View, Any], view: View) -> Any:
    """What was found of a view; raises ConfigError if training did not evaluate it."""
    if view not in found:
        there = ", ".join("/".join(x) for x in found)
        more = "; val needs validation examples" if view[-1] == "val" else ""
        raise ConfigError(f"no accuracies of {'/'.join(map(str, view))}; there are {there}{more}")
    return found[view]
