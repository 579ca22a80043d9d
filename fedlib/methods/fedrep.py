"""FedRep: all clients share the extractor; every client has its own header.

    client  1. trains its header for a few epochs, with the received extractor frozen
            2. trains the extractor, with the new header frozen; returns the extractor
    server  averages the cohort's extractors by numbers of examples

Source: Collins et al., "Exploiting Shared Representations for Personalized Federated Learning",
ICML 2021, Algorithm 1, as a baseline of pFedMoE (arXiv:2402.01350) if all clients have the same
architecture; section 8 of fedlib/papers/pfedmoe/README.md.
Deviation: averages are by numbers of examples, the paper's are plain. Clients are evaluated with
the extractor that they trained last, as in the other methods of that paper; "aggregated" is
FedRep's own evaluation, with the server's extractor.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory, Solver
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, OneOf, Range
from fedlib.methods.parts.own_models import OwnModels, is_untrained, put_parts, refuse_no_extractor
from fedlib.tree import Rows


class State(NamedTuple):
    """The server's extractor, every client's model after training, and the solvers' memory."""

    body: Params
    models: Rows  # of all clients, extractors included
    head_memory: Memory
    memory: Memory  # of the extractors' solvers


@dataclass(frozen=True, kw_only=True)
class FedRep(Method):
    """FedAvg of the extractor; clients train header and extractor in turn.

    An unseen client has no header, so there is no protocol for it.

    Attributes:
      local: solver of the extractor, run once per round; the header's differs only in its epochs.
      head_epochs: passes over the shard to train the header, at least 1.
    """

    head_epochs: int = 1

    look = "FedRep", "#5F9EA0", (8, 0, 0), "long"
    ranges: ClassVar = {"head_epochs": Range(1)}
    SPACE: ClassVar = {"head_epochs": OneOf((1, 2, 5))}
    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "aggregate"},
        "unseen": {},
    }
    shared: ClassVar = ("body",)

    def __post_init__(self):
        """Raises ValueError for a model whose extractor has no parameters."""
        Method.__post_init__(self)
        refuse_no_extractor(self.task)

    @cached_property
    def head_local(self) -> Solver:
        """The solver of the header."""
        return replace(self.local, epochs=self.head_epochs, steps=None)

    def init(self, num_clients: int, seed: int) -> State:
        """The same new model for all clients."""
        body, head = self.task.split(self.task.init(seed))
        return State(
            body,
            OwnModels((self.task,)).init(num_clients, seed),
            self.head_local.memory(self.task.trainable(head), num_clients),
            self.local.memory(self.task.trainable(body), num_clients),
        )

    def round(self, state: State, cohort: Cohort) -> State:
        """Send the extractor, train the header, then the extractor; average the extractors."""
        start = put_parts(tree.take(state.models, cohort.host_ids), cohort.broadcast(state.body))
        with_head, head_memory = self.fit_part(
            "head", start, cohort, self.head_local, state.head_memory
        )
        trained, memory = self.fit_part("body", with_head, cohort, self.local, state.memory)
        bodies, _ = self.task.split(trained)
        models = cohort.put(state.models, trained)
        return State(cohort.average(bodies, state.body), models, head_memory, memory)

    def fit_part(
        self, part: str, models: Rows, cohort: Cohort, local: Solver, memory: Memory
    ) -> tuple[Rows, Memory]:
        """(`models` after training of `part`, "head" or "body", with the other frozen; memory)

        Every pass updates all running statistics, also of the frozen part.
        """

        def is_free(name: str) -> bool:
            return name.startswith(f"{part}.") or self.task.is_statistic(name)

        frozen, free = tree.partition(models, is_free)
        trained, memory = cohort.fit(
            self.loss, free, frozen, local=local, memory=memory, stream=part
        )
        return tree.merge(frozen, trained), memory

    def loss(self, free: Params, frozen: Params, batch: Batch) -> Tensor:
        """Mean loss of ONE client's model, given as two parts -> []"""
        return self.task.loss({**frozen, **free}, batch)

    def personalise(self, state: State, cohort: Cohort) -> Rows:
        """Each client's model after its last training; before the first, with the server's body."""
        own = tree.take(state.models, cohort.host_ids)
        return put_parts(own, cohort.held(state.body), is_untrained(state.memory, cohort))

    def aggregate(self, state: State, cohort: Cohort) -> Rows:
        """Each client's header on the server's extractor."""
        return put_parts(tree.take(state.models, cohort.host_ids), cohort.held(state.body))
