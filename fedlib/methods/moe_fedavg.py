"""Avg-MoE: FedAvg of a mixture of experts, with its gate.

Fed-MoE's paper calls this baseline "FedMix" and "Avg-MoE", with two experts. It is not the FedMix
of Reisser et al., which has a variational table: see `fedlib.methods.fedmix`.

    client   minimises the objective of the mixture on its own examples, experts and gate together
    server   averages everything

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Section 5; no code is released.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.methods.gated_mixture import GatedMixture, Model


class State(NamedTuple):
    """The mixture, and the memory of the clients' solvers."""

    model: Model
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class MoEFedAvg(GatedMixture):
    """FedAvg of a mixture; with one expert, FedAvg.

    Attributes:
      local: solver of experts and gate.
    """

    look = "Avg-MoE", "#2E8B8B", (4, 1, 45), "dashdot"
    shared: ClassVar = ("model",)

    def init(self, num_clients: int, seed: int) -> State:
        """Independently drawn experts, as only their start distinguishes them."""
        model = self.draw_mixture(seed)
        return State(model, self.local.memory(self.mixture_task.trainable(model), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast, train locally, average by number of examples."""
        start = cohort.broadcast(state.model)
        sent, memory = replace(cohort, task=self.mixture_task).fit(
            self.joint_loss, start, local=self.local, memory=state.memory, returns=Cohort.total
        )
        return State(cohort.average(sent, state.model), memory)
