"""LG-FedAvg: every client has its own extractor; all clients share the header.

    client  trains its extractor and the received header together; returns the header
    server  averages the cohort's headers by numbers of examples

Clients may have different extractors, if all have the same number of features.

Source: Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
Representations", 2020, as a baseline of Yi et al., pFedMoE, 2024 (arXiv:2402.01350); section 8 of
fedlib/papers/pfedmoe/README.md. `local_global` is the same method as a baseline of FedMix, with a
different server.
Official code: pliangLG/LG-FedAvg starts from a model pre-trained by FedAvg, averages without
weights, and new devices average outputs; the code of pFedMoE's sibling papers does none of this,
nor does ours.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Params
from fedlib.methods.parts.own_models import Own, is_untrained, put_parts, refuse_other_heads
from fedlib.methods.private_models import PrivateModels
from fedlib.tree import Rows


class State(NamedTuple):
    """The server's header, every client's model after training, and the solvers' memory."""

    head: Params
    models: Rows  # of all clients, headers included
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(PrivateModels):
    """FedAvg of the header alone; all start with the header of `task`."""

    look = "LG-FedAvg", "#B8860B", (4, 0, 10), "dashdot"
    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "aggregate"},
        "unseen": {},
    }
    shared: ClassVar = ("head",)

    def __post_init__(self):
        """Raises ValueError for headers that cannot be averaged."""
        refuse_other_heads([self.task, *self.own.tasks])

    def init(self, num_clients: int, seed: int) -> State:
        """New models, equal for all clients of the same architecture."""
        models = self.own.init(num_clients, seed)
        _, head = self.task.split(self.task.init(seed))
        return State(head, models, self.local.memory(self.joint.trainable(models), num_clients))

    def round(self, state: State, cohort: Cohort) -> State:
        """Send the header, train whole models, average the headers."""
        start = put_parts(tree.take(state.models, cohort.host_ids), cohort.broadcast(state.head))
        trained, memory = self.fit(cohort, start, state.memory)
        _, heads = self.task.split(trained)
        models = cohort.put(state.models, trained)
        return State(cohort.average(heads, state.head), models, memory)

    def personalise(self, state: State, cohort: Cohort) -> Own:
        """Each client's model after its last training; before that, with the server's header."""
        where = is_untrained(state.memory, cohort)
        return self.with_header(state.head, state, cohort, where)

    def aggregate(self, state: State, cohort: Cohort) -> Own:
        """Each client's extractor with the server's header."""
        return self.with_header(state.head, state, cohort)
