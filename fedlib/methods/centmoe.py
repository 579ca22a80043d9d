"""CentMoE: the server trains a mixture of experts on its own examples; clients do nothing.

    server  trains experts and gate on its examples; keeps the mixture of lowest validation loss

A baseline of Fed-MoE that shows the effect of clients. Results do not depend on their number,
unless the server's examples or the rounds do.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Section 5; no code is released.
Deviation: the paper does not say when training ends. Here, as in Fed-MoE, the mixture with the
lowest loss on the server's validation examples is kept.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.methods.base import Method
from fedlib.methods.gated_mixture import GatedMixture, Model, predictor
from fedlib.methods.parts import chosen
from fedlib.methods.parts.chosen import Chosen


class State(NamedTuple):
    """The mixture in training, the memory of its solver, and the best mixture so far."""

    model: Model
    memory: Memory
    best: Chosen


@dataclass(frozen=True, kw_only=True)
class CentMoE(GatedMixture):
    """A sparse mixture without clients; the paper's has five experts.

    Attributes:
      local: solver of the server, run once per round.
      training_gate: as in `GatedMixture`; "top_k", as the paper's baseline is sparse.
    """

    training_gate: str = "top_k"

    look = "CentMoE", "#5E6B73", (9, 0, 0), "dashed"
    final_protocols: ClassVar = {**Method.final_protocols, "server": {"last": "last_mixture"}}
    clients_train: ClassVar = False

    def init(self, num_clients: int, seed: int) -> State:
        """Independently drawn experts, as only their start distinguishes them."""
        model = self.draw_mixture(seed)
        memory = self.local.memory(self.mixture_task.trainable(model), num_clients)
        return State(model, memory, chosen.start(predictor(model)))

    def round(self, state: State, cohort: Cohort) -> State:
        """The server trains, then keeps the mixture if its validation loss is the lowest so far."""
        server = cohort.everyone("server")
        start = tree.broadcast(state.model, 1)
        trained, memory = replace(server, task=self.mixture_task).fit(
            self.joint_loss, start, local=self.local, memory=state.memory, stream="server"
        )
        model = tree.take(trained, 0)
        loss = self.validation_loss(model, self.validation_outputs(model, server), server)
        return State(model, memory, state.best.update(predictor(model), loss, cohort.round + 1))

    def personalise(self, state: State, cohort: Cohort) -> Model:
        """The best mixture, for all clients and the server."""
        return cohort.broadcast(state.best.params)

    def diagnostics(self, state: State) -> dict:
        """Which mixture was chosen."""
        return state.best.diagnostics()
