"""Local training with early stopping: each client stops by itself; nothing is communicated.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), and its code, for the rule and its numbers; section 3.1 of
fedlib/papers/adaptive_experts/README.md.
Official code: EricssonResearch/fl-moe, models/ClientUpdate.py (`train_finetune`, `train_3`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import upload
from fedlib.engine.journal import Journal, refuse_divergence
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.engine.waves import take_rows
from fedlib.errors import DataError
from fedlib.fields import Range, check
from fedlib.tree import Tree

STOP_SPLITS = ("val", "test")
ARRAYS = "going", "least", "failed", "examples"  # of a `_Course`


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """When a client stops, and which model is its best.

    A client is checked after its first epoch and then every `check_every` epochs.

    Attributes:
      max_epochs: most epochs that a client trains, at least 1.
      check_every: epochs between checks, at least 1.
      patience: a client stops after this many checks in a row without a new lowest loss; at least
        1.
      split: split of the loss: "val", or "test" as in the official code, which selects models on
        the data that it reports.
    """

    max_epochs: int = 200
    check_every: int = 5
    patience: int = 10
    split: str = "val"

    def __post_init__(self):
        """Raises ValueError for counts below 1 or another split."""
        counts = dict.fromkeys(("max_epochs", "check_every", "patience"), Range(1))
        check(self, {"split": STOP_SPLITS}, counts)

    @property
    def stretches(self) -> list[int]:
        """Epochs before each check."""
        return [1] + [self.check_every] * ((self.max_epochs - 1) // self.check_every)

    @property
    def rest(self) -> int:
        """Epochs after the last check."""
        return (self.max_epochs - 1) % self.check_every


@dataclass(frozen=True)
class SlowDecay(Schedule):
    """The schedule of the official code: the rate times 0.99 * 0.9999^t + 0.01 in epoch t."""

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Factor in each epoch t -> same shape, float64"""
        return 0.99 * 0.9999 ** np.asarray(t, dtype=np.float64) + 0.01


def decaying(local: Solver, decays: bool) -> Solver:
    """The solver, with `SlowDecay` if its rate is to fall as in the official code."""
    return replace(local, schedule=SlowDecay()) if decays else local


class FitResult(NamedTuple):
    """The result of `fit`."""

    models: dict[str, Params]  # by name, leaves [C, ...]
    epochs: Tensor  # [C] int64, epochs that each client trained; in host memory


def fit(
    cohort: Cohort,
    losses: Callable,
    params: Params,
    *per_client: Tree,
    local: Solver,
    stopping: EarlyStopping,
    stream: str,
    keep: tuple[str, ...] = ("best",),
) -> FitResult:
    """Each client minimises the mean of its losses until it stops.

    Args:
      cohort: the clients; its task is that of `params`.
      losses: `losses(params, *per_client, batch) -> [B]` of one client.
      params: starting points, leaves [C, ...], with running statistics.
      per_client: further arguments of `losses`, leaves [C, ...].
      local: the solver. Momenta and epoch counts start here and last until the client stops;
        `local.epochs` and `local.steps` are ignored.
      stopping: see `EarlyStopping`.
      stream: random stream of the shuffling, different for every call in an evaluation.
      keep: names of the models to return: "best", at each client's lowest loss at a check; "last",
        when the client stopped, at the latest after `max_epochs`.

    A call that takes long goes on from a checkpoint, if the cohort has any.

    Raises:
      DataError: if a client has no examples in the split of `stopping`.
      DivergedError: as soon as a client's loss is not finite.
    """
    refuse_nothing_to_stop_on(cohort, stopping.split)
    local = replace(local, keeps="run", steps=None)
    first = cohort.task.trainable(tree.take(params, 0))
    memory = local.memory(first, cohort.data.federation.num_clients)
    kept = {name: tree.clone(params) for name in keep}
    course = _Course(cohort, per_client, params, memory, kept)
    train, saved = partial(course.train, losses, local, stopping.split), cohort.checkpoints()

    for number in range(course.resume(saved), len(stopping.stretches)):
        if not len(course.going):
            return course.end()
        loss = train(stopping.stretches[number], f"{stream}/{number}")
        course.check(loss, stopping.patience)
        if saved and saved.due(number + 1):
            saved.save_state(number + 1, course.state())
            of = f"{number + 1}/{len(stopping.stretches)}"
            saved.report(f"{stream}: check {of}, {len(course.going)} clients still train")
    if "last" in keep and len(course.going):
        if stopping.rest:
            train(stopping.rest, f"{stream}/{len(stopping.stretches)}")
        course.keep("last", np.ones(len(course.going), bool))
    return course.end()


@dataclass
class _Course:
    """The clients of a call of `fit`; some still train, the others have stopped.

    Attributes:
      cohort: all clients of the call.
      per_client: further arguments of their losses, leaves [C, ...].
      params: models of the clients still training, leaves [C still training, ...].
      memory: of the solvers of all clients of the federation.
      kept: models that `fit` returns, by name, leaves [C, ...].
      going: [C still training] positions in the cohort of the clients still training.
      least: [C] lowest loss of each client at a check.
      failed: [C] checks since then.
      examples: [] training examples in the steps of all clients, with repeats.
    """

    cohort: Cohort
    per_client: tuple[Tree, ...]
    params: Params
    memory: Memory
    kept: dict[str, Params]
    going: np.ndarray = field(init=False)
    least: np.ndarray = field(init=False)
    failed: np.ndarray = field(init=False)
    examples: np.ndarray = field(init=False)

    def __post_init__(self):
        self.going, self.least = np.arange(self.cohort.size), np.full(self.cohort.size, np.inf)
        self.failed, self.examples = np.zeros_like(self.going), np.zeros((), np.int64)

    def resume(self, saved: Any) -> int:
        """Go on from the checkpoint, if there is one; the number of checks that are done."""
        found = saved.resume(self.state()) if saved else None
        if found is None:
            return 0
        done, state = found
        saved.report(f"resuming after check {done}")
        for name, value in state.items():
            setattr(self, name, value.numpy() if name in ARRAYS else value)
        return done

    def state(self) -> dict[str, Any]:
        """What the rest of the call needs: a tree of tensors."""
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in ARRAYS}
        return arrays | {name: getattr(self, name) for name in ("params", "memory", "kept")}

    def check(self, loss: np.ndarray, patience: int) -> None:
        """Keep the best models and drop the clients that stop.

        Args:
          loss: [C still training] at this check.
        """
        going = self.going
        better = loss < self.least[going]
        self.least[going] = np.where(better, loss, self.least[going])
        self.failed[going] = np.where(better, 0, self.failed[going] + 1)
        self.keep("best", better)
        stops = self.failed[going] == patience
        self.keep("last", stops)
        self.leave(stops)

    def train(
        self, losses: Callable, local: Solver, split: str, epochs: int, stream: str
    ) -> np.ndarray:
        """Train for `epochs`; mean loss on `split` -> [C still training]

        Raises:
          DivergedError: if this loss or the training loss is not finite.
        """
        part = replace(self.cohort.some(self.going), journal=Journal())
        own = take_rows(self.per_client, upload(self.going, part.ids.device))
        local = replace(local, epochs=epochs)
        self.params, self.memory = part.fit(
            _mean_of(losses), self.params, *own, local=local, memory=self.memory, stream=stream
        )
        self.examples += part.journal.examples
        done = int(self.memory.epochs[part.host_ids].max())
        when = f"by epoch {done} of {stream.partition('/')[0]!r}"
        part.journal.refuse_divergence(when)
        found = client_losses(part, losses, self.params, *own, split=split).cpu().numpy()
        refuse_divergence(found, part.host_ids, when, f"{split} loss")
        return found

    def keep(self, name: str, which: np.ndarray) -> None:
        """Keep the models of some clients; `which` is a mask of the clients still training."""
        if name in self.kept and which.any():
            places = self.going[which], which.nonzero()[0]
            to, of = (upload(x, self.cohort.ids.device) for x in places)
            tree.put_(self.kept[name], to, tree.take(self.params, of))

    def end(self) -> FitResult:
        """The result, when all clients have stopped."""
        self.cohort.journal.examples += int(self.examples)
        return FitResult(self.kept, self.memory.epochs[self.cohort.host_ids])

    def leave(self, stops: np.ndarray) -> None:
        """Drop the clients that stop; `stops` is a mask of the clients still training."""
        if stops.any():
            self.going = self.going[~stops]
            others = upload((~stops).nonzero()[0], self.cohort.ids.device)
            self.params = tree.take(self.params, others)


def client_losses(cohort: Cohort, losses: Callable, *per_client: Tree, split: str) -> Tensor:
    """Mean of `losses(*per_client, batch) -> [B]` over each client's `split` -> [C] float64"""
    return cohort.example_mean(cohort.score(losses, *per_client, split=split).double(), split)


def refuse_nothing_to_stop_on(cohort: Cohort, split: str) -> None:
    """Raises DataError, with the first client's number, if a client has no examples in `split`."""
    clients = cohort.host_ids
    if len(lacking := clients[cohort.data.federation.split(split).sizes[clients] == 0]):
        raise DataError(
            f"client {lacking.min()} has no {split} examples, on which training is stopped; use a "
            f"partition that gives every client some (see its {split}_fraction)"
        )


def _mean_of(losses: Callable) -> Callable:
    """The objective: mean of `losses` over a batch -> []"""

    def objective(*params_and_batch) -> Tensor:
        batch: Batch = params_and_batch[-1]
        return batch.mean(losses(*params_and_batch))

    return objective
