"""FedAvg+: FedAvg, after which every client fine-tunes the model on its own shard.

    round       FedAvg
    evaluation  every client trains a copy of the model on its shard and predicts with the copy

Source: Jiang et al., "Improving Federated Learning Personalization via Model Agnostic Meta
Learning", 2019; as a baseline of FedEM and pFedMM ("FedAvg (local)").
Deviation: none in the "default" protocol. As in the official code, its solver keeps its memory
between evaluations: old momenta act on a new copy of the model, and its learning rate falls with
the number of EVALUATIONS, not of rounds. So the accuracy depends on how often a run is evaluated,
unless the solver has `keeps="round"` and a constant rate. "fresh" fine-tunes with a new solver at
training's current rate: that of the client that has trained most, the same for all clients. It is
the next round's, so after a cosine that ends with the run it is 0. "untuned" predicts with the
model itself, which is FedAvg's. `tune_epochs` and `tune_lr_scale` are ours; their defaults change
nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Params
from fedlib.methods.base import LogUniform, Method, OneOf, Range
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.fedavg import State as FedAvgState


class State(NamedTuple):
    """FedAvg's state, and the fine-tuned models and solvers of the last evaluation."""

    trained: FedAvgState
    tuned: Params  # [num_clients, ...]
    tuning: Memory  # of the solvers that fine-tune


@dataclass(frozen=True, kw_only=True)
class FedAvgPlus(Method):
    """One model for all clients, which each client fine-tunes at evaluations.

    Attributes:
      local: local solver of training and fine-tuning.
      tune_epochs: passes over the shard in fine-tuning, at least 1; None is as many as in a round
        of training, which is the official code.
      tune_lr_scale: factor of the learning rate in fine-tuning, at least 0; 1 is the official code.
    """

    tune_epochs: int | None = None
    tune_lr_scale: float = 1.0

    look = "FedAvg+", "#E69F00", "P", "dashdot"
    ranges: ClassVar = {"tune_epochs": Range(1), "tune_lr_scale": Range(0)}
    SPACE: ClassVar = {"tune_epochs": OneOf((1, 3, 10)), "tune_lr_scale": LogUniform(1e-2, 1)}
    final_protocols: ClassVar = dict.fromkeys(
        ("seen", "unseen"), {"fresh": "adapt", "untuned": "before_tuning"}
    )

    @property
    def fedavg(self) -> FedAvg:
        """The training, which fine-tuning does not change."""
        return FedAvg(task=self.task, local=self.local)

    @cached_property
    def tuning(self) -> Solver:
        """The solver of fine-tuning."""
        solver = replace(self.local, lr=self.tune_lr_scale * self.local.lr)
        if self.tune_epochs is None:
            return solver
        return replace(solver, epochs=self.tune_epochs, steps=None)

    def init(self, num_clients: int, seed: int) -> State:
        """FedAvg's state, with a copy of the new model for every client."""
        trained = self.fedavg.init(num_clients, seed)
        return State(trained, tree.repeat(trained.params, num_clients), trained.memory)

    def round(self, state: State, cohort: Cohort) -> State:
        """A round of FedAvg."""
        return state._replace(trained=self.fedavg.round(state.trained, cohort))

    def observe(self, state: State, cohort: Cohort, group: str) -> State:
        """Fine-tune copies of the model, with the solvers' memory of the last evaluation."""
        models, tuning = self._tune(state, cohort, state.tuning)
        return state._replace(tuned=cohort.put(state.tuned, models), tuning=tuning)

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The models of the last fine-tuning."""
        return tree.take(state.tuned, cohort.ids)

    def adapt(self, state: State, cohort: Cohort) -> Params:
        """Fine-tune with new solvers, at training's current rate."""
        return self._tune(state, cohort, state.trained.memory.afresh())[0]

    def before_tuning(self, state: State, cohort: Cohort) -> Params:
        """The model of all clients, which is FedAvg's."""
        return self.fedavg.personalise(state.trained, cohort)

    def _tune(self, state: State, cohort: Cohort, memory: Memory) -> tuple[Params, Memory]:
        models = cohort.broadcast(state.trained.params)
        return cohort.fit(self.task.loss, models, local=self.tuning, memory=memory, stream="tune")
