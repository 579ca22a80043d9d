"""Models that the clients own, each of one of several architectures.

Client k has the architecture number k modulo their number, and all clients of one start with the
same draw. Models are kept as `Rows`, whole: a part that a server shares is put in their place by
name. Everything works alike where there is but one architecture.

    models = own.init(num_clients, seed)                  # of all clients
    mine = tree.take(state.models, cohort.host_ids)       # of the cohort
    bodies, heads = self.task.split(mine)                 # extractors, headers
    start = replaced(mine, cohort.broadcast(state.head))  # everybody with the server's header
    cohort.fit(loss, start, own.of(cohort), ...)          # loss(model, task, batch)

Source: the experiments of Yi et al., pFedMoE, 2024 (arXiv:2402.01350); specification section 3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import placed
from fedlib.engine.solvers import Memory
from fedlib.engine.task import JointTask, Params, Task
from fedlib.tree import Rows, Tree


@dataclass(frozen=True)
class OwnModels:
    """Who has which architecture.

    Attributes:
      tasks: the architectures that the clients have in turn, at least one.
    """

    tasks: tuple[Task, ...]

    @classmethod
    def among(cls, task: Task, large: tuple[Task, ...]) -> "OwnModels":
        """The architectures `large`, or `task` for all clients if there are none.

        They weigh classes as `task` does, whose model is the one that a run declares weights for.
        """
        if task.class_weights is not None:
            large = tuple(replace(own, class_weights=task.class_weights) for own in large)
        return cls(tuple(large) or (task,))

    def init(self, num_clients: int, seed: int) -> Rows:
        """Drawn models of all clients, where there is room for them."""
        return drawn_in_turn([task.init(seed) for task in self.tasks], num_clients)

    def of(self, cohort: Cohort) -> Rows:
        """The task of each client, for functions of one client's model."""
        return cohort.in_turn(self.tasks)

    def joint(self, *beside: Task) -> JointTask:
        """The task of cohorts that train these models, and those of the tasks `beside` them."""
        first, *others = (*beside, *self.tasks)
        return first.extended(JointTask, others=tuple(others))


def head_shapes(task: Task) -> dict[str, tuple[int, ...]]:
    """Shape of each entry of an architecture's header; servers only join those that are alike."""
    _, head = task.split(task.init(0))
    return {name: tuple(value.shape) for name, value in head.items()}


def drawn_in_turn(drawn: Sequence[Tree], num_clients: int) -> Rows:
    """Of each client k what was drawn for its kind, k modulo their number; where it has room."""
    return placed(tree.in_turn(drawn, range(num_clients)))


def replaced(models: Rows, parts: Params, where: Iterable[bool] | None = None) -> Rows:
    """`models` with `parts` in place of what they have by these names.

    Args:
      models: of C clients.
      parts: of theirs, leaves [C, ...].
      where: of each client, whether it is to have them; None is everybody.
    """
    where = [True] * len(models) if where is None else where
    rows = zip(models, tree.unstack(parts), where, strict=True)
    return Rows({**model, **part} if wanted else model for model, part, wanted in rows)


def never_trained(memory: Memory, cohort: Cohort) -> np.ndarray:
    """Which clients have not taken part in any round so far -> [C] bool"""
    return memory.epochs[cohort.host_ids].numpy() == 0
