"""FedAvg whose server fine-tunes a copy of the average on its own examples and predicts with it.

    clients   FedAvg
    server    w' <- training from the average w on its own examples;  clients receive w, not w'

A reference for mixtures of experts, which also train on the server's examples. The copy with the
lowest loss on the server's validation examples is kept.

Source: a baseline of ours for Jiang et al., "Heterogeneous Federated Learning with Scalable Server
Mixture-of-Experts", IJCAI 2025 (doi 10.24963/ijcai.2025/610).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver, from_spec
from fedlib.engine.task import Params, nll
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.parts import chosen
from fedlib.methods.parts.chosen import Chosen


class State(NamedTuple):
    """The clients' average, the memory of their solvers, and the server's copies."""

    params: Params
    memory: Memory
    last: Params  # copy of the last round
    best: Chosen


@dataclass(frozen=True, kw_only=True)
class ServerFinetuning(FedAvg):
    """One model for all clients, fine-tuned on the server.

    Attributes:
      server: solver of the server, new in each round, or its specification as in `Run.local`.
    """

    server: Solver | Mapping

    look = "FedAvg, tuned on the server", "#6B8E23", (10, 0, 0), "long"
    final_protocols: ClassVar = {**FedAvg.final_protocols, "server": {"last": "last_copy"}}
    shared: ClassVar = ()  # it needs a server

    def __post_init__(self):
        """Raises ValueError for an invalid specification of a solver."""
        if isinstance(self.server, Mapping):
            object.__setattr__(self, "server", from_spec(dict(self.server)))

    def init(self, num_clients: int, seed: int) -> State:
        """A new model; the solvers' memory is empty."""
        params, memory = FedAvg.init(self, num_clients, seed)
        return State(params, memory, params, chosen.start(params))

    def round(self, state: State, cohort: Cohort) -> State:
        """A round of FedAvg, then training of a copy on the server.

        Raises:
          DataError: if the server has no validation examples.
        """
        params, memory = FedAvg.round(self, state, cohort)
        server = cohort.everyone("server")
        chosen.refuse_nothing_to_choose_by(server, "model")
        start = tree.broadcast(params, 1)
        tuned, _ = server.fit(self.task.loss, start, local=self.server, stream="server")
        # As in evaluations, class weights have no say.
        errors = server.score(lambda w, b: nll(self.task.log_probs(w, b), b.y), tuned, split="val")
        loss = server.example_mean(errors, "val")[0]
        tuned = tree.take(tuned, 0)
        return State(params, memory, tuned, state.best.update(tuned, loss, cohort.round + 1))

    def personalise(self, state: State, cohort: Cohort) -> Params:
        """The server's best copy, for all clients and the server."""
        return cohort.broadcast(state.best.params)

    def last_copy(self, state: State, cohort: Cohort) -> Params:
        """The copy of the last round."""
        return cohort.broadcast(state.last)

    def server_parameters(self, state: State) -> int:
        """Parameters of the clients' average and the best copy, without running statistics."""
        return 2 * tree.numel(self.task.trainable(state.params))

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Which copy was chosen."""
        return state.best.diagnostics()
