"""FedTGP: FedProto with trained prototypes, which keep a margin between classes.

    client  as in FedProto
    server  margin <- the largest distance between a class mean and the nearest other one, at most
                      `cap`
            trains P_c = FC(ReLU(FC(e_c))), with e_c an embedding of class c, on the uploaded
            means r of classes y: minimises CE(-(|r - P_c| + margin [c = y])_c, y)

The class means of the margin are the means over clients of this round's uploads.

Source: Zhang et al., "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive
Learning for Data and Model Heterogeneity in Federated Learning", AAAI 2024; as a baseline of
pFedMoE, section 8.1 of fedlib/papers/pfedmoe/README.md.
Official code: TsingZ0/FedTGP. It predicts with the nearest prototype, here the protocol "nearest".
With fewer than two classes in a round its margin is `cap`, as here.
Deviation: prototypes of classes that no client has held yet are trained, as the other classes must
keep away from them, but clients do not use them.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fedlib import streams
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import SGD, Memory
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.fedproto import FedProto
from fedlib.methods.parts import class_means, server_sgd
from fedlib.methods.parts.class_means import ClassMeans
from fedlib.methods.parts.settings import LogUniform, Range
from fedlib.tree import Rows


class State(NamedTuple):
    """FedProto's state, and the generator of the prototypes."""

    models: Rows  # private
    prototypes: ClassMeans  # P [L, F]
    memory: Memory
    generator: Params


class Generator(nn.Module):
    """A prototype for each class: Embedding, Linear, ReLU, Linear; all as wide as a prototype."""

    def __init__(self, num_classes: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(num_classes, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, classes: Tensor) -> Tensor:
        """Prototypes of the classes [L] -> [L, F]"""
        return self.out(self.hidden(self.embedding(classes)).relu())


@dataclass(frozen=True, kw_only=True)
class FedTGP(FedProto):
    """FedProto with trainable prototypes.

    Attributes:
      server_lr: learning rate of the server's SGD, constant and without momentum; None is the
        clients' rate (official). Gradients are clipped as the clients' are.
      server_epochs: passes over the uploaded means per round; 100 in the official scripts.
      cap: largest margin, at least 0; 100 in the official code.
    """

    server_lr: float | None = None
    server_epochs: int = 100
    cap: float = 100.0

    look = "FedTGP", "#66A61E", (5, 0, 0), "dashdot"
    ranges: ClassVar = FedProto.ranges | {"cap": Range(0)}
    SPACE: ClassVar = FedProto.SPACE | {"server_lr": LogUniform(1e-3, 1)}

    def __post_init__(self):
        """Raises ValueError as FedProto does, and for invalid settings of the server's SGD."""
        FedProto.__post_init__(self)
        _ = self.server_solver  # is checked when it is made

    @cached_property
    def server_solver(self) -> SGD:
        """The solver of the prototypes."""
        local = self.local
        return server_sgd.solver(local, self.server_lr, self.server_epochs, local.batch_size)

    @cached_property
    def generator(self) -> Task:
        """The generator's task, on the models' device and in their dtype."""
        shape = self.num_classes, self.num_features
        return Task(partial(Generator, *shape), dtype=self.task.dtype, device=self.task.device)

    def init(self, num_clients: int, seed: int) -> State:
        """FedProto's state, and a new generator."""
        drawn = self.generator.init(int(streams.keys(1, seed, "prototypes")[0]))
        return State(*FedProto.init(self, num_clients, seed), drawn)

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients train towards the prototypes; the server trains these on the uploaded means."""
        state, uploaded, held = self.train_clients(state, cohort)
        margin = self.margin(class_means.average(state.prototypes, uploaded, held), held.any(0))
        loss = partial(self.server_loss, margin=margin)
        pairs = class_means.pairs(cohort, uploaded, held)
        trained = server_sgd.train(
            loss, state.generator, pairs, self.server_solver, cohort, "prototypes"
        )
        prototypes = ClassMeans(self.prototypes(trained), state.prototypes.known | held.any(0))
        return state._replace(prototypes=prototypes, generator=trained)

    def prototypes(self, params: Params) -> Tensor:
        """P, the prototypes of all classes -> [L, F]"""
        classes = torch.arange(self.num_classes, device=self.task.device)
        return self.generator.logits(params, Batch(x=classes, y=classes, index=classes))

    def server_loss(self, params: Params, means: Tensor, labels: Tensor, margin: Tensor) -> Tensor:
        """Cross-entropy of uploaded means [B, F] of classes [B], by distance to prototypes -> []"""
        distances = torch.cdist(means, self.prototypes(params))
        own = class_means.indicator(labels, self.num_classes)
        return nn.functional.cross_entropy(-(distances + margin * own), labels)

    def margin(self, means: ClassMeans, present: Tensor) -> Tensor:
        """The largest distance between a mean and the nearest other one, at most `cap` -> []

        Only classes `present` are considered; for a single one the margin is `cap`.

        Args:
          present: [L] bool, in host memory.
        """
        pairs = present & present.unsqueeze(1) & ~torch.eye(len(present), dtype=torch.bool)
        pairs, present = means.beside(pairs, present)
        closest = torch.where(pairs, torch.cdist(means.values, means.values), torch.inf).amin(-1)
        return torch.where(present, closest, 0).amax().clamp(max=self.cap)
