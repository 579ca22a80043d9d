"""The results of a training run: raw counts per client and evaluation, on disk and in memory.

Counts, not averages: every metric (pooled, per client, bottom decile, ...) can be computed from
them later, without training again. This module does not import PyTorch.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from fedlib import hdf5, seals
from fedlib.errors import DataError
from fedlib.files import atomic, canonical_json

FORMAT = 3
# A split that is the same for all: the test examples of all seen clients together, or the server's
# if the clients have none.
SHARED = "shared"
CLIENT_NAME = "client_name"  # diagnostic [num_clients]: what a user calls the clients, if given
OPTIMUM = "optimum"  # diagnostic [num_clients]: best possible expected accuracy, if it is known
# Diagnostics of this project's methods that have no row for each client.
OF_NO_CLIENT = frozenset({"divergence", "tables", "table_rounds", "table_alphas", "selected"})
# Columns of the table of clients; then diagnostics of clients: "choice", "pi_0", "pi_1", ...
CLIENT_COLUMNS = (
    *("paper", "federation", "dataset", "label", "method", "seed"),
    *("at", "protocol", "split", "group", "client", "count", "correct", "accuracy", "loss"),
)
TOTALS = ("bytes_down", "bytes_up", "examples", "client_rounds")  # sums since round 0


class View(NamedTuple):
    """The subject of an evaluation: group of clients, protocol, and split of their examples."""

    group: str  # "seen", "unseen" or "server"
    protocol: str  # "default", or another protocol of the method
    split: str  # "train", "val", "test" or `SHARED`


@dataclass(frozen=True)
class Scores:
    """Scores of the clients of one view at T evaluations.

    Attributes:
      clients: [C] int64, positions in the federation.
      count: [C] int64 examples (label elements for sequences) of each client.
      correct: [T, C] float64 right predictions; their expected number on test examples whose true
        probabilities are known.
      loss: [T, C] float64 mean negative log-likelihood over the client's examples.
    """

    clients: np.ndarray
    count: np.ndarray
    correct: np.ndarray
    loss: np.ndarray


class Predictions(NamedTuple):
    """Predictions of the clients of a view for each of their examples, client after client.

    M counts examples, or label elements for sequences.
    """

    log_probs: np.ndarray  # [M, L] float32
    y: np.ndarray  # [M] int64 labels


@dataclass(frozen=True)
class RunResult:
    """Scores over a run, or of its final state only (T = 1).

    Attributes:
      round: [T] int64, rounds done at each evaluation; 0 is before training.
      scores: by view.
      bytes_down, bytes_up: [T] int64, sent from the server to all clients and back since round 0.
      examples: [T] int64, training examples in local steps of all clients since round 0, with
        repeats.
      client_rounds: [T] int64, sum of the cohort sizes since round 0.
      train_loss: [R] float64, mean training loss over the cohort's clients, per round until the
        last one with training; NaN for a round without.
      diagnostics: arrays by name, such as `pi` [num_clients, E] at the last evaluation, and
        `flops_per_example` [1] of an evaluation, see `fedlib.run.operations`.
      by_round: further numbers of each round, by name: [R] or [R, E], see `Method.by_round`.
      spec: the run's specification, seed included.
      server_examples: [T] int64, as `examples`, of steps on the server's data; None without server.
      predictions: of the final state, by view, if a table or figure needs more than counts; files
        have the metrics that `fedlib.run.predictions.summarise` makes of them.
      provenance: versions, device, executor, digests, and the job's use of the machine ("spent").
        Everything else in the file is a function of the inputs.
    """

    round: np.ndarray
    scores: dict[View, Scores]
    bytes_down: np.ndarray
    bytes_up: np.ndarray
    examples: np.ndarray
    client_rounds: np.ndarray
    train_loss: np.ndarray
    diagnostics: dict[str, np.ndarray] = field(default_factory=dict)
    spec: dict = field(default_factory=dict)
    provenance: dict = field(default_factory=dict)
    server_examples: np.ndarray | None = None
    predictions: dict[View, Predictions] = field(default_factory=dict)
    by_round: dict[str, np.ndarray] = field(default_factory=dict)

    def save(self, path: str | Path, *beside: str | Path) -> None:
        """Write to an HDF5 file, atomically and sealed (`fedlib.seals`).

        Args:
          beside: other files of the same job, such as the state that belongs to a history.
        """
        with atomic(path) as temporary:
            with hdf5.create(temporary, userblock_size=seals.USERBLOCK) as file:
                self._write(file)
            seals.close_hdf5(temporary, self._origin(beside))

    def _origin(self, beside: tuple) -> seals.Made | None:
        """Origin of the file; None if no job made it."""
        if "inputs_sha256" not in self.provenance:
            return None
        code, inputs = (self.provenance[name] for name in ("code", "inputs_sha256"))
        return seals.Made(seals.spec_digest(self.spec), code, inputs, seals.contents(*beside))

    @classmethod
    def load(cls, path: str | Path) -> "RunResult":
        """Read a file written by `save`.

        Raises:
          DataError: if it is missing, truncated, corrupted or of another format.
        """
        with open_result(path) as file:
            return cls(
                round=file["round"][:],
                scores={view: Scores(**arrays) for view, arrays in _by_view(file)},
                **{name: file[name][:] for name in TOTALS},
                train_loss=file["train_loss"][:],
                diagnostics={n: hdf5.words(a[:]) for n, a in file.get("diagnostics", {}).items()},
                spec=json.loads(file.attrs["spec"]),
                provenance=json.loads(file.attrs["provenance"]),
                server_examples=file["server_examples"][:] if "server_examples" in file else None,
                by_round={n: a[:] for n, a in file.get("by_round", {}).items()},
            )

    def _write(self, file: h5py.File) -> None:
        for name in ("round", *TOTALS, "train_loss"):
            file[name] = getattr(self, name)
        if self.server_examples is not None:
            file["server_examples"] = self.server_examples
        for view, scores in self.scores.items():
            for name, array in vars(scores).items():
                file[f"scores/{'/'.join(view)}/{name}"] = array
        for name, array in self.diagnostics.items():
            file[f"diagnostics/{name}"] = hdf5.plain(array)
        for name, array in self.by_round.items():
            file[f"by_round/{name}"] = array
        file.attrs.update(
            format=FORMAT,
            spec=canonical_json(self.spec),
            provenance=canonical_json(self.provenance),
        )


def _by_view(file: h5py.File) -> Iterator[tuple[View, dict[str, np.ndarray]]]:
    """Each view of the scores in the file, with its arrays by name."""
    for group, protocols in file.get("scores", {}).items():
        for protocol, splits in protocols.items():
            for split, arrays in splits.items():
                found = {name: array[:] for name, array in arrays.items()}
                yield View(group, protocol, split), found


@contextlib.contextmanager
def open_result(path: str | Path) -> Iterator[h5py.File]:
    """A file that `RunResult.save` wrote, open for reading and already checked.

    Raises:
      DataError: if it is missing, truncated, corrupted or of another format.
    """
    seals.verify(path)
    try:
        opened_file = hdf5.open_file(path)
    except OSError:
        raise DataError(f"{path} is another file, not HDF5; delete it and run again") from None
    with opened_file as file:
        if (found := file.attrs.get("format")) != FORMAT or "provenance" not in file.attrs:
            raise DataError(
                f"{path} has format {found}, this version reads {FORMAT}; delete it and run again"
            )
        yield file
