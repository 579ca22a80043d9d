"""The common base of methods that keep one model, and what the solvers that train it remember."""

from dataclasses import dataclass
from typing import NamedTuple

from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Params
from fedlib.methods.base import Method


class State(NamedTuple):
    """The model, and the memory of the solvers."""

    params: Params
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class OneModel(Method):
    """One model for all clients.

    Attributes:
      local: local solver, run once per round.
    """

    def init(self, num_clients: int, seed: int) -> State:
        """A new model; the solvers' memory is empty."""
        params = self.task.init(seed)
        return State(params, self.local.memory(self.task.trainable(params), num_clients))

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The model, for seen and unseen clients and for the server."""
        return cohort.broadcast(state.params)
