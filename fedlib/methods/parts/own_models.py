"""Models that the clients own, of one or several architectures.

With A architectures, client k has architecture k modulo A. All clients with the same architecture
start from the same random draw. Whole models are kept as `Rows`; `put_parts` gives them a
shared part, by name.

    models = own.init(num_clients, seed)                     # of all clients
    chosen = tree.take(state.models, cohort.host_ids)        # of the cohort
    bodies, heads = self.task.split(chosen)                  # extractors, headers
    start = put_parts(chosen, cohort.broadcast(state.head))  # all with the server's header
    cohort.fit(loss, start, own.of(cohort), ...)             # loss(model, task, batch)

Source: the experiments of Yi et al., pFedMoE, 2024 (arXiv:2402.01350); section 3 of
fedlib/papers/pfedmoe/README.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import place
from fedlib.engine.solvers import Memory
from fedlib.engine.task import JointTask, Params, Task
from fedlib.tree import Rows, Tree


class Own(NamedTuple):
    """Clients that predict with their own models."""

    model: Rows  # of C clients
    task: Rows  # the architecture of each


@dataclass(frozen=True)
class OwnModels:
    """The architectures of all clients.

    Attributes:
      tasks: the architectures, at least one; the clients have them in turn.
    """

    tasks: tuple[Task, ...]

    @classmethod
    def among(cls, task: Task, large: tuple[Task, ...]) -> "OwnModels":
        """The architectures `large`, or `task` for all clients if `large` is empty.

        All get the class weights of `task`, if any: those that the run declares.
        """
        if task.class_weights is not None:
            large = tuple(replace(own, class_weights=task.class_weights) for own in large)
        return cls(tuple(large) or (task,))

    def init(self, num_clients: int, seed: int) -> Rows:
        """New models of all clients, on a device with room for them."""
        return place_in_turn([task.init(seed) for task in self.tasks], num_clients)

    def of(self, cohort: Cohort) -> Rows:
        """The task of each client of the cohort."""
        return cohort.in_turn(self.tasks)

    def predictors(self, models: Rows, cohort: Cohort) -> Own:
        """The cohort's models, from those of all clients."""
        return Own(tree.take(models, cohort.host_ids), self.of(cohort))

    def joint(self, *beside: Task) -> JointTask:
        """The task of cohorts that train these models and models of the tasks `beside`."""
        first, *others = (*beside, *self.tasks)
        return first.extend(JointTask, others=tuple(others))


def refuse_no_extractor(task: Task) -> None:
    """Raises ValueError for a model whose extractor has nothing that a server could average."""
    if not task.split(task.trainable(task.shapes))[0]:
        raise ValueError("the extractor has no trained parameters to share; only the head has")


def refuse_other_heads(tasks: Sequence[Task]) -> None:
    """Raises ValueError unless a server can train the headers: all have the same shapes."""
    heads = [task.split(task.shapes)[1] for task in tasks]
    if odd := [own for own in heads if own != heads[0]]:
        raise ValueError(
            f"headers must have the same shapes in all architectures, got {heads[0]} and {odd[0]}"
        )
    if not tasks[0].trainable(heads[0]):
        raise ValueError("the head has no trained parameters to share; only the extractor has")


def place_in_turn(drawn: Sequence[Tree], num_clients: int) -> Rows:
    """Item k modulo `len(drawn)` for each client k, on a device with room for all of them."""
    return place(tree.in_turn(drawn, range(num_clients)))


def put_parts(models: Rows, parts: Params, where: Iterable[bool] | None = None) -> Rows:
    """`models` with `parts` in place of their entries of the same names.

    Args:
      models: of C clients.
      parts: leaves [C, ...].
      where: for each client, whether to replace; None is all clients.
    """
    where = [True] * len(models) if where is None else where
    rows = zip(models, tree.unstack(parts), where, strict=True)
    return Rows({**model, **part} if wanted else model for model, part, wanted in rows)


def is_untrained(memory: Memory, cohort: Cohort) -> np.ndarray:
    """Whether each client has taken part in no round so far -> [C] bool"""
    return memory.epochs[cohort.host_ids].numpy() == 0
