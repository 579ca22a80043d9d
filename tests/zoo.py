"""A made-up method whose clients have one of two architectures, beside a model that all share.

Also what tests of such methods have in common: who takes part when, and with which solver.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import support
import torch
from reference import SOLVER
from support import sgd, tiny_task
from torch import nn

from fedlib import tree
from fedlib.engine.device import placed
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import JointTask, Task, log_probs, nll
from fedlib.methods.base import Method
from fedlib.tree import Rows

# No batch of 4 leaves one alone, which the deep architecture cannot train on; the last is unseen.
SIZES = (7, 12, 6, 10, 11)
COHORTS = [[0, 1, 2], [1, 2], [0, 2]]  # client 3 never takes part
# New optimisers in every local training; gradients clipped, of each module by itself.
LOCAL = replace(SOLVER, clip_norm=0.4, keeps="round", schedule=sgd().schedule)


def cohort(method, federation, ids=None, **options):
    return support.cohort_of(method.task, federation, ids, aggregation="renormalised", **options)


def run(method, federation, rounds=COHORTS, **options):
    return support.run(method, federation, rounds, aggregation="renormalised", **options)


class Deep(nn.Module):
    """Other layers, names, normalisation and activation than `support.TinyNet`."""

    def __init__(self, features=4, classes=3):
        super().__init__()
        layers = nn.Linear(features, 7), nn.BatchNorm1d(7), nn.Sigmoid(), nn.Linear(7, 5), nn.ReLU()
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(5, classes)

    def forward(self, x):
        return self.head(self.body(x))


class Narrow(Deep):
    """The header of `Deep` on another extractor."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh())


deep, narrow = (Task(kind, dtype=torch.float64) for kind in (Deep, Narrow))


class State(NamedTuple):
    """The server's model; what every client keeps."""

    small: dict
    private: Rows
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Zoo(Method):
    """FedAvg of a small model, whose logits each client adds to those of a model of its own."""

    local: Solver
    large: tuple[Task, ...]

    protocols: ClassVar = {"seen": {"default": "personalise"}, "unseen": {"default": "personalise"}}
    shared: ClassVar = ("small",)

    @cached_property
    def joint(self) -> JointTask:
        return self.task.extended(JointTask, others=self.large)

    def init(self, num_clients, seed):
        drawn = [task.init(seed) for task in self.large]
        private = tree.in_turn(drawn, range(num_clients))
        small = self.task.init(seed)
        trained = self.joint.trainable({"small": small, "large": private})
        return State(small, placed(private), self.local.memory(trained, num_clients))

    def round(self, state, cohort):
        trained, memory = replace(cohort, task=self.joint).fit(
            self.loss,
            {
                "small": cohort.broadcast(state.small),
                "large": tree.take(state.private, cohort.host_ids),
            },
            cohort.in_turn(self.large),
            local=self.local,
            memory=state.memory,
        )
        private = tree.put(state.private, cohort.host_ids, trained["large"])
        return State(cohort.average(trained["small"], state.small), private, memory)

    def loss(self, model, task, batch):
        return batch.mean(nll(self.log_probs(model, task, batch), batch.y))

    def log_probs(self, model, task, batch):
        logits = self.task.logits(model["small"], batch), task.logits(model["large"], batch)
        return log_probs(sum(logits))

    def personalise(self, state, cohort):
        own = tree.take(state.private, cohort.host_ids)
        model = {"small": cohort.held(state.small), "large": own}
        return {"model": model, "task": cohort.in_turn(self.large)}

    def predict(self, personal, batch):
        return self.log_probs(personal["model"], personal["task"], batch)


def zoo(dtype=torch.float64) -> Zoo:
    """The method with a wide and a deep architecture, gradients clipped."""
    wide = tiny_task(hidden=9, dtype=dtype, norm=True, dropout=0.3)
    large = wide, Task(Deep, dtype=dtype)
    return Zoo(task=tiny_task(hidden=3, dtype=dtype), local=sgd(clip_norm=0.5), large=large)
