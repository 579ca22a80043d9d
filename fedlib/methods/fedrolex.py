"""FedRolex: clients train a narrow window of the server's wide model, which rolls in every round.

    round r   of a layer of D units, clients receive units r, r + 1, ..., r + d - 1 (modulo D)
    client    trains this narrow model
    server    averages the parameters in the window; the others do not change

So the server's model can be larger than any client's; after D rounds all of it has been trained.

Source: Alam et al., "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
Extraction", NeurIPS 2022, Algorithm 1, with equal clients; a baseline, with one number, of Jiang et
al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts", IJCAI 2025 (doi
10.24963/ijcai.2025/610).
Deviation: averages are by numbers of examples. A narrow layer sums only d of D inputs, so it
multiplies their weights by D / d; HeteroFL (Diao et al., ICLR 2021), the base of FedRolex's code,
multiplies the outputs. Running statistics of batch normalisation are those of the windows; they are
not measured again on the wide model.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.base import Method

Sizes = list[tuple[int, int]]  # size of each dimension in the wide and in the narrow model


class State(NamedTuple):
    """The server's wide model."""

    params: Params


@dataclass(frozen=True, kw_only=True)
class FedRolex(Method):
    """One wide model for all clients, of which each round trains a window.

    Absent clients have no weight, whatever the run's `aggregation` is. Layers of the wide model
    with the same number of units roll together, as residual connections require.

    Attributes:
      task: the wide model.
      small: the clients' architecture: the same with fewer units; with equally many it is FedAvg.
      local: local solver, new in each round, as the window changes.
    """

    small: Task

    look = "FedRolex", "#7D5BA6", (10, 1, 0), "dashed"
    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}

    def __post_init__(self):
        """Raises ValueError unless `small` is a window of the wide model."""
        if self.task.tokens is not None or self.task.is_frozen_in_part:
            raise ValueError("units of transformers and frozen weights cannot roll; train others")
        sizes = self.sizes
        for name, dimensions in sizes.items():
            if any(narrow > wide for wide, narrow in dimensions):
                raise ValueError(f"small must not be wider than the model; {name}: {dimensions}")
        last = list(self.task.split(sizes)[1])[-1]
        if any(wide != narrow for wide, narrow in sizes[last]):
            raise ValueError(f"small must have as many outputs as the model, got {sizes[last]}")
        units = {dimensions[0] for dimensions in sizes.values() if dimensions}
        for name, dimensions in sizes.items():
            if any(wide != narrow and (wide, narrow) not in units for wide, narrow in dimensions):
                raise ValueError(
                    f"the inputs of {name} are not one per unit of a layer: {dimensions} (model, "
                    "small); keep the width of what is flattened before it"
                )

    @cached_property
    def sizes(self) -> dict[str, Sizes]:
        """Sizes of every parameter and statistic; ValueError if the architectures do not match."""
        wide, narrow = self.task.shapes, self.small.shapes
        if [(name, len(x)) for name, x in wide.items()] != [(n, len(x)) for n, x in narrow.items()]:
            raise ValueError("small must have the same layers as the model, only narrower")
        return {name: list(zip(x, narrow[name], strict=True)) for name, x in wide.items()}

    @cached_property
    def narrow(self) -> Task:
        """The clients' task, the same object in every round: captured steps are kept for it."""
        return replace(self.small, class_weights=self.task.class_weights)

    def init(self, num_clients: int, seed: int) -> State:
        """A new wide model."""
        return State(self.task.init(seed))

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast the window, train it, put the average into the wide model."""
        window = {name: self.window(name, cohort.round) for name in state.params}
        narrow = {name: x[window[name]] for name, x in state.params.items()}
        sent, _ = replace(cohort, task=self.narrow).fit(
            self.loss, cohort.broadcast(narrow), local=self.local, returns=Cohort.total
        )
        mean = cohort.collect(sent).mean()
        params = tree.clone(state.params)
        for name, x in params.items():
            x[window[name]] = mean[name]
        return State(params)

    def window(self, name: str, round: int) -> tuple[Tensor, ...]:
        """The window of a parameter in a round: an index for each dimension."""
        rows = [
            (torch.arange(narrow, device=self.task.device) + (round if narrow < wide else 0)) % wide
            for wide, narrow in self.sizes[name]
        ]
        return torch.meshgrid(rows, indexing="ij") if rows else ()  # a number has no dimension

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss of ONE client's narrow model, with scaled weights -> []"""
        full = {name: self.scale(name) * x for name, x in self.task.trainable(params).items()}
        return self.narrow.loss(params | full, batch)

    def scale(self, name: str) -> float:
        """The factor of a parameter: D / d of its inputs; 1 for a parameter without inputs."""
        if len(self.sizes[name]) < 2:
            return 1.0
        wide, narrow = self.sizes[name][1]
        return wide / narrow

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The wide model, for all clients and the server."""
        return cohort.broadcast(state.params)

    def server_parameters(self, state: State) -> int:
        """Parameters of the wide model, without running statistics."""
        return tree.numel(self.task.trainable(state.params))
