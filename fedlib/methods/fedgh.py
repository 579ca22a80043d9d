"""FedGH: the server trains a global header on the clients' mean representations.

    client  replaces its header with the global one; trains the whole model
            returns the mean of r over its examples of each class that it holds; r is the input of
            the header
    server  trains the global header on these means and their classes

Class means are computed after training, in evaluation mode. Clients predict with the model that
they have after training, with its header; in the protocol "aggregated", with the global header.

Source: Yi et al., "FedGH: Heterogeneous Federated Learning with Generalized Global Header", ACM MM
2023; as a baseline of pFedMoE, section 8 of fedlib/papers/pfedmoe/README.md.
Official code: LipingYi/FedGH, FedGH_Codes/experiments/FLHetero/FedGH_mh.py. Its server adds up the
header's gradients and then steps the optimiser of the last client's model, so the global header
never changes. Here the header has its own optimiser. As there, each uploaded mean is a step.
Deviation: means are over a class's examples, in the official code over the means of batches. Means
are shuffled; the official code visits them client by client. Clients have the global header also in
the first round, and until they take part.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import SGD, Memory
from fedlib.engine.task import Batch, Params, log_probs, nll
from fedlib.methods.class_statistics import ClassStatistics
from fedlib.methods.parts import class_means, server_sgd
from fedlib.methods.parts.own_models import Own, is_untrained, put_parts, refuse_other_heads
from fedlib.methods.parts.settings import LogUniform
from fedlib.tree import Rows


class State(NamedTuple):
    """Every client's model, the server's header, and the solvers' memory."""

    models: Rows  # private
    header: Params
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class FedGH(ClassStatistics):
    """A global header that is trained, not averaged.

    Attributes:
      server_lr: learning rate of the header's SGD, constant and without momentum; None is the
        clients' rate. Gradients are clipped as the clients' are.
    """

    server_lr: float | None = None

    look = "FedGH", "#A6761D", (3, 0, 270), "long"
    SPACE: ClassVar = {"server_lr": LogUniform(1e-3, 1)}
    final_protocols: ClassVar = {"seen": {"aggregated": "with_global_header"}, "unseen": {}}

    def __post_init__(self):
        """Raises ValueError for headers that differ, or invalid settings of the server's SGD."""
        ClassStatistics.__post_init__(self)
        _ = self.server_solver  # is checked when it is made
        refuse_other_heads([self.task, *self.own.tasks])

    @cached_property
    def server_solver(self) -> SGD:
        """The solver of the global header."""
        return server_sgd.solver(self.local, self.server_lr, epochs=1, batch_size=1)

    def init(self, num_clients: int, seed: int) -> State:
        """New models; the global header is that of `task`."""
        models = self.own.init(num_clients, seed)
        _, header = self.task.split(self.task.init(seed))
        return State(models, header, self.local.memory(self.joint.trainable(models), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Clients start from the global header; the server trains it on their means."""
        own = tree.take(state.models, cohort.host_ids)
        start = put_parts(own, cohort.broadcast(state.header))
        trained, memory = self.fit(cohort, start, state.memory)
        counts = class_means.counts(cohort, self.num_classes)
        pairs = class_means.pairs(cohort, self.collect_means(trained, counts, cohort), counts > 0)
        header = server_sgd.train(
            self.header_loss, state.header, pairs, self.server_solver, cohort, "header"
        )
        return State(cohort.put(state.models, trained), header, memory)

    def header_loss(self, header: Params, means: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of the header on mean representations [B, F] of classes [B] -> []"""
        logits = self.task.head_logits(header, means, Batch(x=means, y=labels, index=labels))
        return nll(log_probs(logits), labels, self.task.class_weights).mean()

    def personalise(self, state: State, cohort: Cohort) -> Own:
        """Each client's model after its last training; before that, with the global header."""
        where = is_untrained(state.memory, cohort)
        return self.with_header(state.header, state, cohort, where)

    def with_global_header(self, state: State, cohort: Cohort) -> Own:
        """Each client's extractor with the global header."""
        return self.with_header(state.header, state, cohort)
