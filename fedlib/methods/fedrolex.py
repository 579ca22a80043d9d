"""FedRolex: clients train a narrow window of the server's wide model, which rolls on every round.

    round r   of a layer of D units clients get the d units r, r + 1, ..., r + d - 1 (modulo D)
    client    trains this narrow model
    server    averages each number over those who trained it; the others stay

So the server's model may be larger than any client's, and in D rounds all of it has been trained.

Source: Alam et al., "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction", NeurIPS 2022, Algorithm 1, for clients who are all alike, as one number of Jiang et
al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts", IJCAI 2025 (doi
10.24963/ijcai.2025/610) has it.
Deviation: averages are by number of examples. Of D inputs a narrow layer sums only d, so it
multiplies their weights by D / d; HeteroFL (Diao et al., ICLR 2021), on whose code FedRolex's is
built, multiplies the outputs. Running statistics of batch normalisation are those of the windows,
and not measured anew on the wide model.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.base import Method

Sizes = list[tuple[int, int]]  # of each dimension, in the wide and in the narrow model


class State(NamedTuple):
    """The server's wide model."""

    params: Params


@dataclass(frozen=True, kw_only=True)
class FedRolex(Method):
    """One wide model for everybody, which nobody trains as a whole.

    Absent clients count for nothing, whatever the run's `aggregation` is. Layers of the wide model
    with equally many units roll alike, as residual connections need it.

    Attributes:
      task: the wide model.
      small: the clients' architecture: the same with fewer units; with as many it is FedAvg.
      local: local solver, afresh in each round, for the window is another one.
    """

    small: Task
    local: Solver

    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}

    def __post_init__(self):
        """Raises ValueError for architectures that are not windows of each other."""
        sizes = self.sizes
        if self.task.tokens is not None:
            raise ValueError("units of a transformer cannot roll; use a network for images")
        for name, dimensions in sizes.items():
            if any(narrow > wide for wide, narrow in dimensions):
                raise ValueError(f"small must not be wider than the model, but its {name} is")
        last = list(self.task.split(sizes)[1])[-1]
        if any(wide != narrow for wide, narrow in sizes[last]):
            raise ValueError(f"small must have as many outputs as the model, got {sizes[last]}")
        units = {dimensions[0] for dimensions in sizes.values()}
        for name, dimensions in sizes.items():
            if any(wide != narrow and (wide, narrow) not in units for wide, narrow in dimensions):
                raise ValueError(
                    f"{name} has inputs that are no layer's units one by one, got {dimensions} of "
                    "model and small; keep the width of what is flattened before it"
                )

    @cached_property
    def sizes(self) -> dict[str, Sizes]:
        """Of every parameter and statistic; ValueError if the architectures have other ones."""
        wide, narrow = self.task.init(0), self.small.init(0)
        if [(n, x.dim()) for n, x in wide.items()] != [(n, x.dim()) for n, x in narrow.items()]:
            raise ValueError("small must have the same layers as the model, only narrower")
        return {
            name: list(zip(x.shape, narrow[name].shape, strict=True)) for name, x in wide.items()
        }

    def init(self, num_clients: int, seed: int) -> State:
        """The wide model, drawn."""
        return State(self.task.init(seed))

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast the window, train it, put the average in its place."""
        window = {name: self.window(name, cohort.round) for name in state.params}
        narrow = {name: x[window[name]] for name, x in state.params.items()}
        task = replace(self.small, class_weights=self.task.class_weights)
        sent, _ = replace(cohort, task=task).fit(
            self.loss, cohort.broadcast(narrow), local=self.local, returns=Cohort.total
        )
        mean = cohort.collect(sent).mean()
        params = tree.clone(state.params)
        for name, x in params.items():
            x[window[name]] = mean[name]
        return State(params)

    def window(self, name: str, round: int) -> tuple[Tensor, ...]:
        """Where a parameter's window is in a round: an index of each dimension."""
        device = self.task.device
        rows = [
            (torch.arange(narrow, device=device) + (round if narrow < wide else 0)) % wide
            for wide, narrow in self.sizes[name]
        ]
        return torch.meshgrid(rows, indexing="ij")

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss of ONE client's narrow model, with sums as large as the wide one's -> []"""
        full = {name: self.scale(name) * x for name, x in self.task.trainable(params).items()}
        return self.small.loss(params | full, batch)

    def scale(self, name: str) -> float:
        """D / d of a weight's inputs, 1 of a parameter without any."""
        inputs = self.sizes[name][1:2]
        return inputs[0][0] / inputs[0][1] if inputs else 1.0

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The wide model, for everybody."""
        return cohort.broadcast(state.params)

    def server_parameters(self, state: State) -> int:
        """The wide model, without its running statistics."""
        return tree.numel(self.task.trainable(state.params))
