"""The result of a run: accuracies as data frames, a plot, and each client's predictor.

`Result.save` keeps it in a folder, and `load` brings it back, without any code of the user's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fedlib import tree
from fedlib.api import process
from fedlib.api.callbacks import of_view
from fedlib.api.predictor import ClientModel, as_inputs
from fedlib.errors import ConfigError, DataError, quote
from fedlib.federation import CLIENTS, GROUPS
from fedlib.files import digest, folder_instead
from fedlib.report.looks import METHODS
from fedlib.results import RunResult, Scores, View
from fedlib.run import evaluate
from fedlib.run.scoring import ClientScores
from fedlib.run.simulate import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HISTORY = "history.h5"  # of a saved result
Clients = Iterable[int | str] | int | str  # names or numbers, or that of one
SPREAD = (0.1, 0.9)  # quantiles over clients between which a plot is shaded


class History(RunResult):
    """Everything recorded in a run; printing it lists the arrays, and not their numbers."""

    def __repr__(self) -> str:
        named = {**vars(self), **self.diagnostics, **self.by_round}
        arrays = [f"{x} {[*a.shape]}" for x, a in named.items() if isinstance(a, np.ndarray)]
        scores = ", ".join("/".join(view) for view in self.scores)
        return f"History: scores of {scores}; arrays {', '.join(arrays)}"


class Accuracies:
    """The accuracies of a run.

    Attributes:
      history: everything recorded in the run, such as traffic and losses.
      called: the clients' names, or numbers, by position in the federation.
      title: of the method.
    """

    def __init__(self, history: RunResult, called: Sequence[int | str], title: str):
        self.history, self.called, self.title = History(**vars(history)), called, title

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
        scores = of_view(self.history.scores, View(group, protocol, split))
        rounds = pd.Index(self.history.round, name="round")
        return pd.DataFrame(shares(scores), rounds, pd.Index(self._names(scores), name="client"))

    def pooled_accuracy(
        self, group: str = "seen", protocol: str = "default", split: str = "test"
    ) -> pd.Series:
        """Accuracy over the examples of all clients together, by round; arguments as `accuracy`."""
        scores = of_view(self.history.scores, View(group, protocol, split))
        values = scores.correct.sum(1) / scores.count.sum()
        return pd.Series(values, pd.Index(self.history.round, name="round"), name="accuracy")

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
        [line] = ax.plot(pooled, label=label or self.title)
        low, high = (clients.quantile(q, axis=1) for q in SPREAD)
        ax.fill_between(clients.index, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        ax.set(xlabel="Communication round", ylabel="Accuracy (%)")
        ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
        ax.legend()
        if not ax.get_title():
            ax.set_title("All clients together; shaded: 10th to 90th percentile of clients", size=9)
        return ax

    def __repr__(self) -> str:
        rounds = int(self.history.round[-1])
        after = f"{self.title} after {rounds} round{'s' * (rounds != 1)}"
        views = [view for view in self.history.scores if view[1:] == ("default", "test")]
        each = [f"{self.pooled_accuracy(view.group).iloc[-1]:.1%} {view.group}" for view in views]
        return f"{type(self).__name__}: {after}; test accuracy {', '.join(each) or 'none'}"

    def _names(self, scores: Scores) -> list[int | str]:
        return [self.called[client] for client in scores.clients]


class SavedResult(Accuracies):
    """What `Result.save` has kept; it needs neither the method nor the model."""

    def __init__(self, folder: Path, history: RunResult):
        kept = history.provenance
        super().__init__(history, kept["called"], kept["title"])
        self._folder, self._predictors = folder, dict(kept["predictors"])
        self._columns = kept.get("columns")  # not kept by earlier versions

    def client_model(self, client: int | str) -> nn.Module:
        """The predictor of a client after the last round: inputs [B, ...] -> probabilities [B, L]

        Raises:
          ConfigError: for a client whose predictor was not saved.
          DataError: for a file that is damaged.
        """
        if not isinstance(client, str | Integral) or client not in self._predictors:
            known = quote([*self._predictors])[1:-1] or "none"
            raise ConfigError(f"no predictor of client {client!r}; there are {known}")
        name, sha256 = self._predictors[client]
        path = self._folder / name
        if not path.exists() or digest(path) != sha256:
            raise DataError(f"{path} is missing or damaged; save the result again")
        program = torch.export.load(path)
        example, model = program.example_inputs[0][0], program.module()

        def read(_: nn.Module, given: tuple) -> Tensor:
            x = as_inputs(given[0], example.shape[1:], example.dtype, self._columns)
            return x.to(example.device)

        model.register_forward_pre_hook(read, prepend=True)
        return model


def load(folder: str | Path) -> SavedResult:
    """What `Result.save` wrote into a folder.

    Raises:
      DataError: if a file is missing or damaged.
    """
    folder = Path(folder)
    if not (folder / HISTORY).exists():
        raise DataError(f"{folder} must be a folder that Result.save wrote; it has no {HISTORY}")
    history = RunResult.load(folder / HISTORY)
    if "called" not in history.provenance:
        raise DataError(f"{folder} is a run of the workflow; take fedlib.open_run")
    return SavedResult(folder, history)


class Result(Accuracies):
    """A finished run.

    Attributes:
      state: the method's state after the last round.
      simulation: method, federation and course.
    """

    def __init__(self, simulation: Simulation, state: Any, history: RunResult):
        super().__init__(history, simulation.federation.called, _title(type(simulation.method)))
        self.simulation, self.state = simulation, state

    @process.plain()
    def evaluate(self) -> pd.DataFrame:
        """Scores of the final state under every protocol, on every split: a row for each client.

        As in the workflow's evaluation, clients of some methods train further for this. Accuracy
        and loss are NaN for a client without examples of the split.
        """
        with process.threads.keep():
            torch.set_num_threads(1)  # as during the run: cores go to clients
            run, rounds = self.simulation, self.simulation.course.rounds
            found = evaluate.final(run.method, self.state, lambda x: run.everyone(x, rounds))
        frames = [
            pd.DataFrame(
                {
                    **view._asdict(),
                    "client": self._names(scores),
                    "examples": scores.count,
                    "accuracy": shares(scores)[-1],
                    "loss": np.where(scores.count, scores.loss[-1], np.nan),
                }
            )
            for view, scores in found.scores.items()
        ]
        return pd.concat(frames, ignore_index=True)

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
        position, group = self._find(client, protocol)
        cohort = simulation.cohort(np.array([position]), simulation.course.rounds)
        [(_, personal)] = evaluate.prepare(method, self.state, cohort, group, only={protocol})
        return ClientModel(method, tree.take(personal, 0), simulation.data)

    @process.plain()
    def save(self, folder: str | Path, clients: Clients | None = None) -> None:
        """Write the accuracies, the history and clients' predictors, for `fedlib.load`.

        Args:
          folder: one that is new or empty.
          clients: names or numbers of the clients, or of one, whose predictors are kept, each as a
            program of `torch.export` on the CPU that needs no code of yours; None for all that have
            one.

        Raises:
          ConfigError: for an unknown client, a folder with other files, or a predictor that
            `torch.export` cannot follow.
        """
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} exists and is not empty; give a new folder")
        inputs = torch.from_numpy(self.simulation.federation.x[:2])
        # Tokens have 64 bits, as tokenisers give them, whatever the federation keeps.
        inputs = inputs.long() if self.simulation.federation.tokens is not None else inputs
        clients = [clients] if isinstance(clients, str | Integral) else clients
        able = (client for client in self._clients if "default" in self._ways(client)[1])
        names = {x: self.called[self._find(x)[0]] for x in (able if clients is None else clients)}
        files, predictors = {}, []  # clients that share a model share a file
        with folder_instead(folder) as made:
            for client, name in names.items():
                model = self.client_model(client)
                key, objects = model.key
                if key not in files:
                    file = made / f"{len(files)}.pt2"
                    _export(model.cpu(), inputs, file, name)
                    files[key] = [file.name, digest(file)], objects
                predictors.append([name, files[key][0]])
            kept = {"called": self.called, "title": self.title, "predictors": predictors}
            if (columns := self.simulation.federation.column_name) is not None:
                kept["columns"] = columns.tolist()
            provenance = {**self.history.provenance, **kept}
            replace(self.history, provenance=provenance).save(made / HISTORY)

    @cached_property
    def _clients(self) -> dict[int | str, int]:
        """Position in the federation of each client, by its name or number."""
        group = self.simulation.federation.group
        return {self.called[c]: int(c) for c in np.flatnonzero(group < len(CLIENTS))}

    def _find(self, client: int | str, protocol: str = "default") -> tuple[int, str]:
        """The position of a client and its group; ConfigError without such a client or protocol."""
        known = self._clients
        if not isinstance(client, str | Integral) or client not in known:
            raise ConfigError(f"no client {client!r}; there are {quote([*known])[1:-1]}")
        group, ways = self._ways(client)
        if protocol not in ways:
            raise ConfigError(
                f"{type(self.simulation.method).__name__} has no protocol {protocol!r} for {group} "
                f"clients; it has {', '.join(map(repr, ways)) or 'none'}"
            )
        return known[client], group

    def _ways(self, client: int | str) -> tuple[str, dict[str, str]]:
        """The group of a client, and the protocols by which it can predict."""
        simulation, method = self.simulation, self.simulation.method
        group = GROUPS[simulation.federation.group[self._clients[client]]]
        return group, method.protocols.get(group, {}) | method.final_protocols.get(group, {})


def shares(scores: Scores | ClientScores) -> np.ndarray:
    """Accuracy of each client, NaN without examples -> [T, C], or [C] of one evaluation"""
    return scores.correct / np.where(scores.count, scores.count, np.nan)


def _title(kind: type) -> str:
    """A method's title in tables and figures; the name of its class if it is a user's."""
    package, _, name = kind.__module__.rpartition(".")
    return METHODS[name].title if package == "fedlib.methods" and name in METHODS else kind.__name__


def _export(model: ClientModel, inputs: Tensor, path: Path, client: int | str) -> None:
    """Write a predictor of any number of inputs as a program of `torch.export`."""
    try:
        model(inputs)  # makes this thread's copies of its modules, which must not be traced
        sizes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(model, (inputs,), dynamic_shapes=sizes), path)
    except Exception as error:  # of the user's model, or of any part of PyTorch
        why = " ".join(line.strip() for line in str(error).splitlines()[:2])
        sizes = "for any number of inputs, take x.shape[0] and not len(x); "
        raise ConfigError(
            f"torch.export cannot follow the predictor of client {client!r} "
            f"({type(error).__name__}: {why}); {sizes if 'specialized' in why else ''}"
            "save(..., clients=[]) keeps the accuracies alone"
        ) from error
