"""The result of a run: accuracies as data frames, a plot, and each client's predictor."""

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlib import tree
from fedlib.api import process
from fedlib.api.predictor import ClientModel
from fedlib.errors import ConfigError
from fedlib.federation import CLIENTS, GROUPS
from fedlib.report.looks import METHODS
from fedlib.results import RunResult, Scores, View
from fedlib.run import evaluate
from fedlib.run.simulate import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = (0.1, 0.9)  # quantiles over clients between which a plot is shaded


class History(RunResult):
    """Everything recorded in a run; printing it lists the arrays, and not their numbers."""

    def __repr__(self) -> str:
        named = {**vars(self), **self.diagnostics}
        arrays = [f"{x} {[*a.shape]}" for x, a in named.items() if isinstance(a, np.ndarray)]
        scores = ", ".join("/".join(view) for view in self.scores)
        return f"History: scores of {scores}; arrays {', '.join(arrays)}"


class Result:
    """A finished run.

    Attributes:
      history: everything recorded in the run, such as traffic and losses.
      state: the method's state after the last round.
      simulation: method, federation and course.
    """

    def __init__(self, simulation: Simulation, state: Any, history: RunResult):
        self.simulation, self.state = simulation, state
        self.history = History(**vars(history))

    def accuracy(
        self, group: str = "seen", protocol: str = "default", split: str = "test"
    ) -> pd.DataFrame:
        """Accuracy of each client, in [0, 1]: a row per evaluated round, a column per client.

        Columns are the clients' names if the federation has them, otherwise their numbers.

        Args:
          group: "seen" or "unseen" clients, or the "server".
          protocol: how clients predict; "default" is the method's own way.
          split: "test" or "val".

        Raises:
          ConfigError: if training did not evaluate this.
        """
        scores = self._scores(View(group, protocol, split))
        names = self._names(scores)
        rounds = pd.Index(self.history.round, name="round")
        return pd.DataFrame(_shares(scores), rounds, pd.Index(names, name="client"))

    def pooled_accuracy(
        self, group: str = "seen", protocol: str = "default", split: str = "test"
    ) -> pd.Series:
        """Accuracy over the examples of all clients together, by round; arguments as `accuracy`."""
        scores = self._scores(View(group, protocol, split))
        values = scores.correct.sum(1) / scores.count.sum()
        return pd.Series(values, pd.Index(self.history.round, name="round"), name="accuracy")

    @process.plain()
    def evaluate(self) -> pd.DataFrame:
        """Scores of the final state under every protocol, on every split: a row for each client.

        As in the workflow's evaluation, clients of some methods train further for this.
        """
        found = evaluate.final(self.simulation.method, self.state, self._everyone)
        frames = [
            pd.DataFrame(
                {
                    **view._asdict(),
                    "client": self._names(scores),
                    "examples": scores.count,
                    "accuracy": _shares(scores)[-1],
                    "loss": scores.loss[-1],
                }
            )
            for view, scores in found.scores.items()
        ]
        return pd.concat(frames, ignore_index=True)

    def plot(self, ax: "Axes | None" = None, label: str | None = None, **view: str) -> "Axes":
        """Accuracy over rounds: pooled, and shaded between the 10th and 90th percentile of clients.

        Args:
          ax: where to draw, such as the result of another `plot`; None makes a new figure.
          label: in the legend; None is the method's title.
          view: `group`, `protocol` and `split`, as for `accuracy`.

        Raises:
          ConfigError: if training did not evaluate this.
        """
        from matplotlib import pyplot, ticker  # only plots need it

        ax = pyplot.subplots()[1] if ax is None else ax
        pooled, clients = self.pooled_accuracy(**view), self.accuracy(**view)
        [line] = ax.plot(pooled, label=label or self._title)
        low, high = (clients.quantile(q, axis=1) for q in SPREAD)
        ax.fill_between(clients.index, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        ax.set(xlabel="Communication round", ylabel="Accuracy (%)")
        ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
        ax.legend()
        if not ax.get_title():
            ax.set_title("All clients together; shaded: 10th to 90th percentile of clients", size=9)
        return ax

    @property
    def _title(self) -> str:
        """The method's title in tables and figures; the name of its class if it is a user's."""
        package, _, name = type(self.simulation.method).__module__.rpartition(".")
        ours = METHODS.get(name) if package == "fedlib.methods" else None
        return ours.title if ours else type(self.simulation.method).__name__

    @process.plain()
    def client_model(self, client: int | str, protocol: str = "default") -> ClientModel:
        """The predictor of a client after the last round, as a module.

        Args:
          client: its name or number, as in the columns of `accuracy`.
          protocol: how it predicts.

        Raises:
          ConfigError: for an unknown client or protocol.
        """
        simulation, method = self.simulation, self.simulation.method
        federation = simulation.federation
        are_clients = np.flatnonzero(federation.group < len(CLIENTS))
        known = [federation.called[c] for c in are_clients]
        if not isinstance(client, str | Integral) or client not in known:
            raise ConfigError(f"no client {client!r}; there are {str(known)[1:-1]}")
        found = are_clients[[known.index(client)]]
        group = GROUPS[federation.group[found[0]]]
        ways = {**method.protocols.get(group, {}), **method.final_protocols.get(group, {})}
        if protocol not in ways:
            raise ConfigError(
                f"{type(method).__name__} has no protocol {protocol!r} for {group} clients; it has "
                f"{', '.join(ways) or 'none'}"
            )
        cohort = simulation.cohort(found, simulation.course.rounds)
        ready = evaluate.prepared(method, self.state, cohort, group, only={protocol})
        [(_, personal)] = ready
        return ClientModel(method, tree.take(personal, 0), simulation.data)

    def __repr__(self) -> str:
        rounds = self.simulation.course.rounds
        after = f"{self._title} after {rounds} round{'s' * (rounds != 1)}"
        views = [view for view in self.history.scores if view[1:] == ("default", "test")]
        each = [f"{self.pooled_accuracy(view.group).iloc[-1]:.1%} {view.group}" for view in views]
        return f"Result: {after}; test accuracy {', '.join(each) or 'none'}"

    def _scores(self, view: View) -> Scores:
        if view not in self.history.scores:
            there = ", ".join("/".join(known) for known in self.history.scores)
            raise ConfigError(f"no accuracies of {'/'.join(view)}; there are {there}")
        return self.history.scores[view]

    def _names(self, scores: Scores) -> list[int | str]:
        called = self.simulation.federation.called
        return [called[client] for client in scores.clients]

    def _everyone(self, group: str) -> Any:
        return self.simulation.everyone(group, self.simulation.course.rounds)


def _shares(scores: Scores) -> np.ndarray:
    """Accuracy of each client at each evaluation, NaN without examples -> [T, C]"""
    return scores.correct / np.where(scores.count, scores.count, np.nan)
