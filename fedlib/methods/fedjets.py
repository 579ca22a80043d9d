"""FedJETs with anchors, a baseline of Fed-MoE: a mixture whose clients train a few experts each.

    anchor i      in every round, trains expert i and the gate
    other client  receives the experts of largest gate weight on its examples; trains them and the
                  gate
    server        averages each expert over the clients that trained it, and the gate over all

The first K seen clients are the anchors. The selection "anchored" has them in every round, with as
many other clients.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Section 5, also called Anchor-MoE there; after Dun et al.,
"FedJETs: Efficient Just-In-Time Personalization with Federated Mixture of Experts", 2023
(arXiv:2306.08586).
Deviation: Fed-MoE's paper does not specify the baseline's training. Here a client minimises the
objective of the whole mixture, in which experts that it does not have predict all classes with
equal probability. So its gate learns where its experts are better than a guess, even with one
expert. Averages are by numbers of examples. Solvers are new in each round, as a client may receive
different experts. There is no pretrained common expert.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch
from fedlib.fields import check
from fedlib.methods.base import Range
from fedlib.methods.gated_mixture import GatedMixture, Model
from fedlib.tree import Rows

Held = list[list[int]]  # for each client of the cohort, its experts' numbers, ascending


class State(NamedTuple):
    """The server's mixture."""

    model: Model


@dataclass(frozen=True, kw_only=True)
class FedJETs(GatedMixture):
    """A mixture on the server, of which each client trains some experts; with one expert, FedAvg.

    Absent clients have no weight, whatever the run's `aggregation` is.

    Attributes:
      local: solver of experts and gate.
      num_main: as in `GatedMixture`. All clients train main experts.
      per_client: experts of a client other than an anchor, in [1, K]; 2 in the paper (Section 5).
    """

    per_client: int = 2

    look = "FedJETs", "#3F7FBF", (7, 0, 26), "long"

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        GatedMixture.__post_init__(self)
        check(self, {}, {"per_client": Range(1, self.num_routed)})

    def init(self, num_clients: int, seed: int) -> State:
        """Independently drawn experts, as only their start distinguishes them."""
        return State(self.draw_mixture(seed))

    def round(self, state: State, cohort: Cohort) -> State:
        """Choose each client's experts, train, average."""
        held = self.choose(state.model, cohort)
        trained, _ = replace(cohort, task=self.mixture_task).fit(
            self.loss,
            cohort.scatter(Rows(self.part(state.model, own) for own in held)),
            Rows(cohort.tensor(np.eye(self.num_routed)[own]).to(self.task.dtype) for own in held),
            local=self.local,
        )
        return State(self.average(state.model, cohort.collect(trained), held, cohort))

    def choose(self, model: Model, cohort: Cohort) -> Held:
        """An anchor's expert; for other clients those of largest mean gate on their examples."""
        anchors = cohort.data.federation.ids("seen")[: self.num_routed].tolist()
        trust = cohort.example_mean(cohort.score(self.soft_gates, cohort.held(model["gate"])))
        most = trust.topk(self.per_client).indices.tolist()
        clients = zip(cohort.host_ids.tolist(), most, strict=True)
        return [[anchors.index(c)] if c in anchors else sorted(own) for c, own in clients]

    def part(self, model: Model, own: list[int]) -> Model:
        """The download of a client with the experts `own`: of the routed experts only these."""
        experts = tree.unstack(model["routed"])  # indexing by a list would upload it, leaf by leaf
        return model | {"routed": tree.stack([experts[number] for number in own])}

    def loss(self, model: Model, places: Tensor, batch: Batch) -> Tensor:
        """The objective of the mixture on ONE client with k experts -> []

        Args:
          places: [k, K] one-hot numbers of the client's experts.
        """
        outputs = self.expert_outputs(model, batch)
        own, main = outputs[:, : len(places)], outputs[:, len(places) :]
        guess = 0.0 if self.combine == "logits" else 1 / outputs.shape[-1]
        routed = torch.einsum("ek,bel->bkl", places, own)
        routed = routed + guess * (1 - places.sum(0))[:, None]
        return self.objective(model, torch.cat([routed, main], 1), batch)

    def average(self, old: Model, trained: Rows, held: Held, cohort: Cohort) -> Model:
        """Each expert averaged over the clients that trained it, if any; the rest over all."""

        def expert(number: int, before: Model) -> Model:
            if not (who := [c for c, own in enumerate(held) if number in own]):
                return before
            rows = [tree.take(trained[c]["routed"], held[c].index(number)) for c in who]
            return tree.mean(Rows(rows), cohort.some(np.array(who)).num_examples)

        routed = [expert(*each) for each in enumerate(tree.unstack(old["routed"]))]
        rest = Rows({n: x for n, x in model.items() if n != "routed"} for model in trained)
        return {"routed": tree.stack(routed), **tree.mean(rest, cohort.num_examples)}
