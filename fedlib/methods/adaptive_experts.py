"""Adaptive Expert Models: clusters as in IFCA, and each client's own mixture of their models.

    together   IFCA with exploration trains J models
    then each  trains an expert of its own, and a gate that weighs all experts by the input:
    client     y(x) = g_l(x) f_l(x) + sum_j g_j(x) f_j(x), of probabilities

One training is evaluated five ways: "ifca" is IFCA's prediction, "local" the client's own expert,
"finetuned" IFCA's model after training on the client's shard, "ensemble" all experts with equal
weights, "moe" the mixture; all five for the clients that train on their own, which may be some of
them ("default" is IFCA's prediction for all). What a client trains here is neither sent nor kept in
the state.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
FL-IJCAI 2022 (arXiv:2206.07832), Algorithm 1 and equations 4 and 5.
Official code: EricssonResearch/fl-moe, main_fed.py and models/ClientUpdate.py; specification
section 3.
Deviation: experts predict in evaluation mode (the official ensemble may not). A mixture is computed
from log-probabilities, which need no clamp at 0. The gate has J + 1 outputs, of which those of the
experts in use count, where the official one has as many outputs as experts in use.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import mixture_log_probs
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import AdamW
from fedlib.engine.task import Batch, Params, Task, log_probs, nll
from fedlib.federation import Federation
from fedlib.methods import local_experts
from fedlib.methods.ifca import IFCA, State
from fedlib.methods.local_experts import LocalExperts
from fedlib.methods.parts import early_stopping
from fedlib.methods.parts.own_experts import (
    Alone,
    Ensemble,
    ExpertsTask,
    Frozen,
    Mixture,
    Networks,
)
from fedlib.methods.parts.settings import Range

MEMBERS = ("best", "last")
SPACES = ("logits", "probabilities")
EXPERT_SETS = ("used", "all")
# Of a model in training: itself, its start and its best, gradient and step, and two moments, which
# are copied to and from a stack.
ADAM_COPIES = 12


class Settled(NamedTuple):
    """The end of training, and what the clients of a final evaluation have trained since."""

    state: State
    own: dict[str, Params]  # their local experts, "best" and "last", leaves [C, ...]


@dataclass(frozen=True, kw_only=True)
class AdaptiveExperts(IFCA):
    """IFCA, whose models become the experts of every client's mixture.

    Batches and the split on which anything stops are those of the federated training. Local experts
    are trained as by `LocalExperts`, and start alike; every gate is drawn for itself.

    Attributes:
      expert: architecture of the local experts.
      gate: architecture of the gates, with an output for each of the J clusters' experts, then one
        for the local one; a single output for two experts.
      local_lr, local_weight_decay: of AdamW for local experts. The official code never passes the
        weight decay that its configurations have (X3): 0 is what it does.
      finetune_lr, finetune_weight_decay: likewise, of fine-tuning.
      gate_lr, gate_weight_decay: of AdamW for a mixture.
      local_epochs, local_check_every, local_patience: see
        `fedlib.methods.parts.early_stopping.EarlyStopping`; of local experts and fine-tuning.
      gate_epochs, gate_check_every, gate_patience: likewise, of mixtures.
      gate_only: whether a mixture trains its gate alone, or the client's copies of all experts too
        (X10).
      both_mixtures: whether the other of the two is evaluated as well, as "moe_gate" or
        "moe_joint".
      member: the local expert that joins ensemble and mixture: "best", that of its best check; or
        "last", that at its last epoch, as in the official code, which keeps a reference to the
        weights where it means to keep a copy. "local" is always the best.
      personal_clients: how many clients of a group train on their own, the first ones (official
        code: 0 to 9); None is all of them.
      expert_set: the clusters' experts in ensembles and mixtures: "used", those that some seen
        client among `personal_clients` predicts with (official code), or "all" (equation 5).
      ensemble_space: what an ensemble averages: "logits", as the official code, or "probabilities".
    """

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
    ensemble_space: str = "logits"

    choices: ClassVar = IFCA.choices | {
        "member": MEMBERS,
        "expert_set": EXPERT_SETS,
        "ensemble_space": SPACES,
    }
    ranges: ClassVar = IFCA.ranges | {"personal_clients": Range(1)}
    alone: ClassVar[dict[str, str]] = {
        "ifca": "chosen",
        "local": "local_experts",
        "finetuned": "finetune",
        "ensemble": "assemble",
        "moe": "mix",
    }

    def __post_init__(self):
        """Raises ValueError for settings that mean nothing."""
        IFCA.__post_init__(self)
        # These check themselves.
        _ = self.settler.local, self.finetune_solver, self.gate_solver
        _ = self.local_stopping, self.gate_stopping
        outputs, wanted = self.gate_outputs, _outputs(self.num_experts + 1)
        if outputs != wanted:
            raise ValueError(
                f"the gate of {self.num_experts} clusters' experts and a local one needs {wanted} "
                f"output{'s' * (wanted > 1)}, got {outputs}"
            )

    @property
    def final_protocols(self) -> dict[str, dict[str, str]]:
        """What is evaluated at the end, for seen and unseen clients alike."""
        other = {"moe_joint" if self.gate_only else "moe_gate": "mix_otherwise"}
        protocols = self.alone | (other if self.both_mixtures else {})
        return {"seen": protocols, "unseen": protocols}

    # -- what clients train on their own ------------------------------------------------

    @cached_property
    def finetune_solver(self) -> AdamW:
        """Of the clusters' models."""
        return self._adamw(self.finetune_lr, self.finetune_weight_decay, self.lr_decay)

    @cached_property
    def gate_solver(self) -> AdamW:
        """Of mixtures, at a constant rate."""
        return self._adamw(self.gate_lr, self.gate_weight_decay, decays=False)

    def _adamw(self, lr: float, weight_decay: float, decays: bool) -> AdamW:
        schedule = early_stopping.SlowDecay() if decays else Schedule()
        return AdamW(
            lr=lr,
            weight_decay=weight_decay,
            batch_size=self.local.batch_size,
            drop_last=self.local.drop_last,
            schedule=schedule,
        )

    @cached_property
    def local_stopping(self) -> early_stopping.EarlyStopping:
        """Of local experts and fine-tuning."""
        return early_stopping.EarlyStopping(
            max_epochs=self.local_epochs,
            check_every=self.local_check_every,
            patience=self.local_patience,
            split=self.stop_split,
        )

    @cached_property
    def gate_stopping(self) -> early_stopping.EarlyStopping:
        """Of mixtures."""
        return early_stopping.EarlyStopping(
            max_epochs=self.gate_epochs,
            check_every=self.gate_check_every,
            patience=self.gate_patience,
            split=self.stop_split,
        )

    def finalists(self, federation: Federation, group: str) -> np.ndarray:
        """The first `personal_clients` of the group."""
        return federation.ids(group)[: self.personal_clients]

    @cached_property
    def settler(self) -> LocalExperts:
        """How clients train their local experts, which no cluster's model enters."""
        return LocalExperts(
            task=self.expert,
            local=self._adamw(self.local_lr, self.local_weight_decay, decays=False),
            lr_decay=self.lr_decay,
            max_epochs=self.local_epochs,
            check_every=self.local_check_every,
            patience=self.local_patience,
            stop_split=self.stop_split,
            keep=tuple(dict.fromkeys(["best", self.member])),
            personal_clients=self.personal_clients,
        )

    def settle(
        self, state: State, cohort: Cohort, settled: local_experts.State | None = None
    ) -> Settled:
        """Every client trains its local expert, unless all of them are there."""
        own = None if settled is None else self.settler.trained(settled, cohort)
        if own is None:
            return Settled(state, self.settler.train(cohort).models)
        cohort.journal.examples += self.settler.examples(settled, cohort)
        return Settled(state, own)

    def briefly(self) -> "AdaptiveExperts":
        """Clients that train for one epoch."""
        return replace(self, local_epochs=1, gate_epochs=1)

    def chosen(self, settled: Settled, cohort: Cohort) -> Params:
        """The model that each client would predict with, as in "default"."""
        return self.personalise(settled.state, cohort)

    def local_experts(self, settled: Settled, cohort: Cohort) -> Alone:
        """Each client's own expert, at its best."""
        return Alone(settled.own["best"])

    def finetune(self, settled: Settled, cohort: Cohort) -> Params:
        """The model that each client would predict with, trained on its shard."""
        trained = early_stopping.fit(
            cohort,
            self.task.losses,
            self.chosen(settled, cohort),
            local=self.finetune_solver,
            stopping=self.local_stopping,
            stream="finetune",
        )
        return trained.models["best"]

    def assemble(self, settled: Settled, cohort: Cohort) -> Ensemble:
        """The clusters' experts and each client's own."""
        experts = tree.take(self.restored(settled.state), self.members(settled.state, cohort))
        return Ensemble(cohort.held(experts), settled.own[self.member])

    def mix(self, settled: Settled, cohort: Cohort) -> Mixture:
        """Each client's mixture, trained as `gate_only` says."""
        return self._mix(settled, cohort, self.gate_only)

    def mix_otherwise(self, settled: Settled, cohort: Cohort) -> Mixture:
        """Each client's mixture, trained as `gate_only` does not say."""
        return self._mix(settled, cohort, not self.gate_only)

    def _mix(self, settled: Settled, cohort: Cohort, gate_only: bool) -> Mixture:
        """Train gates, with copies of the experts unless `gate_only`."""
        experts, own = self.assemble(settled, cohort)
        members = cohort.held(self.members(settled.state, cohort))
        models = {"experts": experts, "own": own, "gate": self.draw_gates(cohort)}
        untrained = {name: models.pop(name) for name in ("experts", "own")} if gate_only else {}
        trained = early_stopping.fit(
            replace(cohort, task=self.together),
            self.gate_losses if gate_only else self.mixture_losses,
            models,
            *([self.networks.frozen(experts, own, cohort, self.stop_split)] if gate_only else []),
            members,
            local=self.gate_solver,
            stopping=self.gate_stopping,
            stream="mixture",
        )
        return Mixture(**trained.models["best"], **untrained, members=members)

    def mixture_losses(self, models: dict, members: Tensor, batch: Batch) -> Tensor:
        """Negative log-likelihoods of ONE client's mixture -> [B]"""
        mixture = Mixture(**models, members=members)
        return nll(self.mixed(mixture, batch), batch.y, self.task.class_weights)

    def gate_losses(self, models: dict, frozen: Frozen, members: Tensor, batch: Batch) -> Tensor:
        """Likewise, with experts that nobody trains -> [B]"""
        experts = log_probs(self.networks.frozen_logits(frozen, batch))
        weights = self.log_weights(models["gate"], members, batch)
        return nll(mixture_log_probs(weights, experts), batch.y, self.task.class_weights)

    @cached_property
    def networks(self) -> Networks:
        """What experts make of a batch."""
        return Networks(self.task, self.expert, self.num_experts)

    @cached_property
    def together(self) -> ExpertsTask:
        """Experts and gate, as they are trained in one."""
        return self.task.extended(ExpertsTask, others=(self.expert, self.gate))

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

    @cached_property
    def gate_outputs(self) -> int:
        """Outputs of a gate: as many as the last bias of its head has numbers."""
        _, head = self.gate.split(self.gate.init(0))
        return len(list(head.values())[-1])

    def outputs(self, members: Tensor) -> Tensor:
        """The gate's outputs for these experts and the local one; of two, that of the local one."""
        local = members.new_tensor([self.gate_outputs - 1])
        return local if len(members) == 1 else torch.cat([members, local])

    # -- prediction ---------------------------------------------------------------------

    def predict(self, personal: Params | Alone | Ensemble | Mixture, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        match personal:
            case Alone(own):
                return self.expert.log_probs(own, batch)
            case Ensemble():
                return self.agreed(personal, batch)
            case Mixture():
                return self.mixed(personal, batch)
        return self.task.log_probs(personal, batch)

    def agreed(self, ensemble: Ensemble, batch: Batch) -> Tensor:
        """Equal weights: a product of experts of logits, or the mean of probabilities -> [B, L]"""
        logits = self.networks.logits(ensemble.experts, ensemble.own, batch)
        if self.ensemble_space == "logits":
            return log_probs(logits.sum(1))
        return log_probs(logits).logsumexp(1).log_softmax(-1)

    def mixed(self, mixture: Mixture, batch: Batch) -> Tensor:
        """Equation 5: the mean of the experts' probabilities, weighed by the gate -> [B, L]"""
        experts = log_probs(self.networks.logits(mixture.experts, mixture.own, batch))
        weights = self.log_weights(mixture.gate, mixture.members, batch)
        return mixture_log_probs(weights, experts)

    def log_weights(self, gate: Params, members: Tensor, batch: Batch) -> Tensor:
        """Logarithms of the gate's weights: the clusters' experts, then the local one -> [B, E + 1]

        A single output is the logit of the local expert of two.
        """
        outputs = self.outputs(members)
        with ambient.expert(self.num_experts + 1):  # dropout of its own
            return log_probs(self.gate.logits(gate, batch)[:, outputs])

    def measure(self, protocol: str, personal: Any, cohort: Cohort) -> dict[str, Tensor]:
        """Of mixtures the weights on test data: of every cluster's expert, of the local one [C, E]

        Those of experts that are not in use are 0. "gate_weights" are those of "moe".
        """
        if not isinstance(personal, Mixture):
            return {}
        gates = personal.gate, personal.members
        by_example = cohort.score(lambda *own: self.log_weights(*own).exp(), *gates, split="test")
        local = personal.members.new_tensor([self.num_experts])
        weights = by_example.new_zeros(cohort.size, self.num_experts + 1)
        weights[:, torch.cat([personal.members[0], local])] = cohort.example_mean(
            by_example, "test"
        )
        return {"gate_weights" if protocol == "moe" else f"{protocol}_weights": weights}

    def personal_numbers(self) -> int:
        """Numbers that a client of a final evaluation needs at once: its mixture in training."""
        seed = 0
        experts = self.num_experts * tree.numel(self.task.init(seed))
        own = tree.numel(self.expert.init(seed))
        return ADAM_COPIES * (experts + own + tree.numel(self.gate.init(seed)))


def _outputs(num_experts: int) -> int:
    """Outputs of a gate of so many experts."""
    return 1 if num_experts == 2 else num_experts
