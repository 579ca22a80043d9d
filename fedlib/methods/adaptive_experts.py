"""Adaptive Expert Models: clusters as in IFCA, then a mixture of their models for each client.

    federated    IFCA with exploration trains J models f_j
    each client  trains a local expert f_l; then a gate g that weights all experts by the input:
                 y(x) = g_l(x) f_l(x) + sum_j g_j(x) f_j(x), in probabilities

A run has five final protocols: "ifca" is IFCA's prediction; "local" the client's local expert;
"finetuned" IFCA's model after training on the client's shard; "ensemble" the product of all
experts; "moe" the mixture. They are evaluated for the first `personal_clients` clients; "default"
is IFCA's prediction for all clients. Models that clients train at the end are neither sent nor kept
in the state.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), Algorithm 1 and equations 4 and 5.
Official code: EricssonResearch/fl-moe, main_fed.py and models/ClientUpdate.py; section 3 of
fedlib/papers/adaptive_experts/README.md, whose section 9 has the discrepancies X1 to X18.
Deviation: experts predict in evaluation mode (the official ensemble may not). A mixture is computed
from log-probabilities, which need no clamp at 0. The gate has J + 1 outputs, and those of experts
not in use are ignored; the official gate has an output for each expert in use.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import AdamW
from fedlib.engine.task import Batch, Params, Task
from fedlib.federation import Federation
from fedlib.methods.ifca import IFCA, State
from fedlib.methods.local_experts import LocalExperts
from fedlib.methods.parts import early_stopping
from fedlib.methods.parts.own_experts import Alone, Ensemble, Mixture, Networks
from fedlib.methods.parts.settings import LogUniform, Range

MEMBERS = ("best", "last")
EXPERT_SETS = ("used", "all")
# Copies of a model in training: itself, its start and its best, gradient and step, and two moments,
# which are copied to and from a stack.
ADAM_COPIES = 12


class StateAndExperts(NamedTuple):
    """The final state, and the local experts of the clients of a final evaluation."""

    state: State
    own: dict[str, Params]  # local experts, "best" and "last", leaves [C, ...]


@dataclass(frozen=True, kw_only=True)
class AdaptiveExperts(IFCA):
    """IFCA, whose models become experts of every client's mixture.

    Batch sizes and the split for early stopping are those of the federated training. Local experts
    are trained by `LocalExperts` and start from the same draw; every gate has its own draw.

    Attributes:
      cluster_init, stop: as in IFCA, with the official code's values for defaults. A run of few
        rounds, which has few checks, needs `stop="never"` not to predict with early models.
      expert: architecture of the local experts (Table 1).
      gate: architecture of the gates (Table 1), with an output for each of the J clusters' experts,
        then one for the local expert; with J = 1, a single output.
      local_lr, local_weight_decay: of AdamW for local experts; Table 1 has 2.69e-4 and 9.89e-3. The
        official code never passes the weight decay (X3), so it uses 0.
      finetune_lr, finetune_weight_decay: of AdamW for fine-tuning; 1e-4 and 1e-4 in the official
        configurations, whose weight decay is not passed either.
      gate_lr, gate_weight_decay: of AdamW for a mixture; Table 1 has 3e-6 and 6.88e-4.
      local_epochs, local_check_every, local_patience: early stopping of local experts and
        fine-tuning; see `fedlib.methods.parts.early_stopping.EarlyStopping`. Official code: 200, 5,
        10.
      gate_epochs, gate_check_every, gate_patience: the same for mixtures. Official code: 200, 2,
        20.
      gate_only: whether a mixture trains only its gate, or also the client's copies of all experts
        (X10).
      both_mixtures: whether the other kind of mixture is evaluated too, as "moe_gate" or
        "moe_joint".
      member: the local expert in ensemble and mixture: "best", at its best check; or "last", at its
        last epoch, as in the official code, which keeps a reference to the weights instead of a
        copy. "local" is always the best.
      personal_clients: number of clients of a group that train on their own, the first ones, at
        least 1 (official code: 10); None is all.
      expert_set: the clusters' experts in ensembles and mixtures: "used", those that some seen
        client among `personal_clients` predicts with (official code), or "all" (equation 5).
    """

    cluster_init: str = "conv_only"
    stop: str = "all"
    expert: Task
    gate: Task
    local_lr: float
    gate_lr: float
    finetune_lr: float = 1e-4
    local_weight_decay: float = 0.0
    finetune_weight_decay: float = 0.0
    gate_weight_decay: float = 0.0
    local_epochs: int = 200
    local_check_every: int = 5
    local_patience: int = 10
    gate_epochs: int = 200
    gate_check_every: int = 2
    gate_patience: int = 20
    gate_only: bool = False
    both_mixtures: bool = False
    personal_clients: int | None = None
    member: str = "best"
    expert_set: str = "used"

    classifiers: ClassVar = frozenset({"expert"})
    look = "Adaptive Expert Models", "#CC3377", (4, 1, 0), "solid", 2.1
    choices: ClassVar = IFCA.choices | {"member": MEMBERS, "expert_set": EXPERT_SETS}
    ranges: ClassVar = IFCA.ranges | {"personal_clients": Range(1)}
    SPACE: ClassVar = {  # not the number of experts, which the gate's outputs must fit
        "epsilon": IFCA.SPACE["epsilon"],
        "gate_lr": LogUniform(1e-4, 1e-2),
    }
    alone: ClassVar[dict[str, str]] = {
        "ifca": "cluster_expert",
        "local": "local_experts",
        "finetuned": "finetune",
        "ensemble": "assemble",
        "moe": "mix",
    }

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        IFCA.__post_init__(self)
        # Each is checked when it is made.
        _ = self.own_training, self.networks
        _ = self.finetune_solver, self.gate_solver, self.gate_stopping

    @property
    def final_protocols(self) -> dict[str, dict[str, str]]:
        """The five protocols, and perhaps the other mixture, for seen and unseen clients."""
        other = {"moe_joint" if self.gate_only else "moe_gate": "mix_otherwise"}
        protocols = self.alone | (other if self.both_mixtures else {})
        return {"seen": protocols, "unseen": protocols}

    # -- local training after the federated training ------------------------------------

    @cached_property
    def finetune_solver(self) -> AdamW:
        """The solver of fine-tuning."""
        rates = {"lr": self.finetune_lr, "weight_decay": self.finetune_weight_decay}
        return replace(self.own_training.solver, **rates)

    @cached_property
    def gate_solver(self) -> AdamW:
        """The solver of mixtures, at a constant rate."""
        rates = {"lr": self.gate_lr, "weight_decay": self.gate_weight_decay}
        return replace(self.own_training.local, **rates)

    @cached_property
    def gate_stopping(self) -> early_stopping.EarlyStopping:
        """Early stopping of mixtures."""
        return replace(
            self.own_training.stopping,
            max_epochs=self.gate_epochs,
            check_every=self.gate_check_every,
            patience=self.gate_patience,
        )

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The first `personal_clients` of the group."""
        return self.own_training.finalists(federation, group)

    @cached_property
    def own_training(self) -> LocalExperts:
        """The training of local experts, which does not depend on the clusters' models."""
        return LocalExperts(
            task=replace(self.expert, class_weights=self.task.class_weights),
            local=AdamW(
                lr=self.local_lr,
                weight_decay=self.local_weight_decay,
                batch_size=self.local.batch_size,
                drop_last=self.local.drop_last,
            ),
            lr_decay=self.lr_decay,
            max_epochs=self.local_epochs,
            check_every=self.local_check_every,
            patience=self.local_patience,
            stop_split=self.stop_split,
            keep=tuple(dict.fromkeys(["best", self.member])),
            personal_clients=self.personal_clients,
        )

    def settle(self, state: State, cohort: Cohort) -> StateAndExperts:
        """Every client trains its local expert."""
        return StateAndExperts(state, self.own_training.train(cohort).models)

    def briefly(self) -> "AdaptiveExperts":
        """This method, with one epoch of local training."""
        return replace(self, local_epochs=1, gate_epochs=1)

    def cluster_expert(self, settled: StateAndExperts, cohort: Cohort) -> Params:
        """IFCA's prediction, as in "default"."""
        return self.personalise(settled.state, cohort)

    def local_experts(self, settled: StateAndExperts, cohort: Cohort) -> Alone:
        """Each client's local expert, at its best check."""
        return Alone(settled.own["best"])

    def finetune(self, settled: StateAndExperts, cohort: Cohort) -> Params:
        """IFCA's model for each client, fine-tuned on its shard."""
        trained = early_stopping.fit(
            cohort,
            self.task.losses,
            self.cluster_expert(settled, cohort),
            local=self.finetune_solver,
            stopping=self.own_training.stopping,
            stream="finetune",
        )
        return trained.models["best"]

    def assemble(self, settled: StateAndExperts, cohort: Cohort) -> Ensemble:
        """The clusters' experts and each client's local expert."""
        experts = tree.take(self.best_experts(settled.state), self.members(settled.state, cohort))
        return Ensemble(cohort.held(experts), settled.own[self.member])

    def mix(self, settled: StateAndExperts, cohort: Cohort) -> Mixture:
        """Each client's mixture, trained by `gate_only`."""
        return self._mix(settled, cohort, self.gate_only)

    def mix_otherwise(self, settled: StateAndExperts, cohort: Cohort) -> Mixture:
        """Each client's mixture, trained by the opposite of `gate_only`."""
        return self._mix(settled, cohort, not self.gate_only)

    def _mix(self, settled: StateAndExperts, cohort: Cohort, gate_only: bool) -> Mixture:
        """Train gates, with copies of the experts unless `gate_only`."""
        ensemble = self.assemble(settled, cohort)
        experts, gate = ensemble._asdict(), {"gate": self.draw_gates(cohort)}
        members = cohort.held(self.members(settled.state, cohort))
        if gate_only:
            losses, models, untrained = self.networks.gate_losses, gate, experts
            given = self.networks.freeze(*ensemble, cohort, self.stop_split), members
        else:
            losses, models, untrained = self.networks.mixture_losses, experts | gate, {}
            given = (members,)
        trained = early_stopping.fit(
            replace(cohort, task=self.networks.together),
            losses,
            models,
            *given,
            local=self.gate_solver,
            stopping=self.gate_stopping,
            stream="mixture",
        )
        return Mixture(**trained.models["best"], **untrained, members=members)

    @cached_property
    def networks(self) -> Networks:
        """The experts and the gate of a client, as functions of a batch."""
        return Networks(self.task, self.expert, self.gate, self.num_experts)

    def draw_gates(self, cohort: Cohort) -> Params:
        """A new gate for every client -> [C, ...]"""
        seeds = streams.keys(cohort.data.federation.num_clients, cohort.seed, "gate")
        return tree.stack([self.gate.init(int(seed)) for seed in seeds[cohort.host_ids]])

    # -- which experts ------------------------------------------------------------------

    def members(self, state: State, cohort: Cohort) -> Tensor:
        """Numbers of the clusters' experts in ensembles and mixtures, ascending -> [U]"""
        if self.expert_set == "all":
            return torch.arange(self.num_experts, device=cohort.ids.device)
        clients = torch.from_numpy(self.finalists(cohort.data.federation, "seen"))
        return state.choice[clients.to(state.choice.device)].unique()

    # -- prediction ---------------------------------------------------------------------

    def predict(self, personal: Params | Alone | Ensemble | Mixture, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        match personal:
            case Alone(own):
                return self.expert.log_probs(own, batch)
            case Ensemble():
                return self.networks.multiply(personal, batch)
            case Mixture():
                return self.networks.mix(personal, batch)
        return self.task.log_probs(personal, batch)

    def measure(self, protocol: str, personal: Any, cohort: Cohort) -> dict[str, Tensor]:
        """Mean gate weights of a mixture on test data: clusters' experts, then the local [C, J + 1]

        0 for experts that are not in use. They are "gate_weights" for "moe", and
        "<protocol>_weights" for the other mixture.
        """
        if not isinstance(personal, Mixture):
            return {}
        weights = self.networks.mean_weights(personal, cohort)
        return {"gate_weights" if protocol == "moe" else f"{protocol}_weights": weights}

    def personal_numbers(self) -> int:
        """Memory of ONE client in a final evaluation, in numbers: its mixture in training."""
        own = sum(tree.numel(task.init(0)) for task in (self.expert, self.gate))
        return ADAM_COPIES * (self.num_experts * tree.numel(self.task.init(0)) + own)
