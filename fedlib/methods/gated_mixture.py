"""The common base of Fed-MoE and its baselines: a mixture of experts with a gate.

    y(x) = (1 - alpha) E_0(x) + alpha sum_i g_i(x) E_i(x)

A `GatedMixture` defines the mixture's prediction and training objective; methods derived from it
define who trains it, and on which data.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Equations 1 and 7 to 10.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025; "(code)" marks what the paper does not have. Section
3.1 of fedlib/papers/fedmoe/README.md has its values of all settings.
Deviation: experts in training get whole batches, not only the examples that the gate sends them,
which matters only for batch normalisation. The L2 loss is only of parameters in training.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine import ambient
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import draw_experts, each_expert
from fedlib.engine.task import Batch, JointTask, Params, Task, nll
from fedlib.fields import check
from fedlib.methods.base import LogUniform, Method, Range
from fedlib.methods.parts import chosen, server_mixture

# "routed" [K, ...], "main" [R, ...] or empty, "gate", "noise" and "alpha" []
Model = dict[str, Params | Tensor]
GATE = ("gate", "noise", "alpha")  # entries in training with frozen experts


def predictor(model: Model) -> Model:
    """The entries of a mixture that a prediction needs."""
    return {name: model[name] for name in ("routed", "main", "gate", "alpha")}


@dataclass(frozen=True)
class MixtureTask(JointTask):
    """The task of training gates and alpha, and perhaps the experts."""

    may_pad = False  # entropies and loads are of the whole batch


@dataclass(frozen=True, kw_only=True)
class GatedMixture(Method):
    """Settings, objective and prediction of a mixture.

    Attributes:
      gate: architecture of the gate and of the noise network, with an output for each of the K
        routed experts (Table 3 has 5 to 30).
      num_main: main experts, which are always active: 0 to 3; the paper's baselines have none.
      top_k: experts that the gate keeps, in [1, K]: the paper's L at inference, 1 is best (Table
        6); k in sparse training (code: 1).
      training_gate: in training, mix all experts ("soft", paper) or the kept ones ("top_k", code).
      gate_value: values of kept experts in training; see `server_mixture.top_k_gates`. At
        inference, it is "renorm" (Equation 10).
      combine: whether "probabilities" (paper) or "logits" (code) of experts are summed.
      alpha: initial share of the routed experts; 0.5, and 0.9 on CIFAR-10, in the code.
      entropy_weight: the paper's beta of Equation 9, at least 0; 1e-3 (Table 5).
      entropy: of the gate for each example ("per_example", Equation 8), or of the classes for each
        expert ("per_expert", code).
      balance_weight: weight of the load-balancing loss, at least 0 (code).
      load: the load in this loss; see `server_mixture.smooth_load` (code).
      l2_weight: weight of the squared norm of all parameters in training, at least 0 (code: 1e-7).
      label_smoothing: of the cross-entropy, in [0, 1] (code, CIFAR-10: 0.1).
    """

    gate: Task
    num_main: int = 0
    top_k: int = 1
    training_gate: str = "soft"
    gate_value: str = "straight_through"
    combine: str = "probabilities"
    alpha: float = 0.5
    entropy_weight: float = 1e-3
    entropy: str = "per_example"
    balance_weight: float = 0.0
    load: str = "canonical"
    l2_weight: float = 0.0
    label_smoothing: float = 0.0

    choices: ClassVar = {
        "training_gate": ("soft", "top_k"),
        "gate_value": server_mixture.GATE_VALUES,
        "combine": server_mixture.COMBINATIONS,
        "entropy": server_mixture.ENTROPIES,
        "load": server_mixture.LOADS,
    }
    ranges: ClassVar = {
        **dict.fromkeys(("entropy_weight", "balance_weight", "l2_weight"), Range(0)),
        **{"num_main": Range(0, 3), "label_smoothing": Range(0, 1)},
    }
    SPACE: ClassVar = {"entropy_weight": LogUniform(1e-4, 1)}
    protocols: ClassVar = {**Method.protocols, "server": {"default": "personalise"}}

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        Method.__post_init__(self)
        check(self, {}, {"top_k": Range(1, self.num_routed)})

    @cached_property
    def num_routed(self) -> int:
        """K, the number of outputs of the gate."""
        return self.gate.num_outputs

    @property
    def trains_experts(self) -> bool:
        """Whether the objective trains the experts too."""
        return True

    @cached_property
    def mixture_task(self) -> MixtureTask:
        """The task of the parameters in training."""
        if self.trains_experts:
            return self.task.extend(MixtureTask, others=(self.gate,))
        return self.gate.extend(MixtureTask)

    def assemble(self, routed: Params, main: Params, seed: int, noise_seed: int) -> Model:
        """A mixture of these experts, with a new gate."""
        return {
            "routed": routed,
            "main": main,
            "gate": self.gate.init(seed),
            "noise": self.gate.init(noise_seed),
            "alpha": next(iter(routed.values())).new_tensor(self.alpha),
        }

    def draw_mixture(self, seed: int) -> Model:
        """A mixture of independently drawn experts, with a new gate."""
        experts = draw_experts(self.task, self.num_routed + self.num_main, seed)
        routed = tree.map(lambda x: x[: self.num_routed], experts)
        main = tree.map(lambda x: x[self.num_routed :], experts) if self.num_main else {}
        return self.assemble(routed, main, seed, int(streams.keys(1, seed, "noise network")[0]))

    def server_parameters(self, state: Any) -> int:
        """Parameters of experts, gate and noise network, and alpha if there is one main expert."""
        model = state.model
        experts = [self.task.trainable(model[name]) for name in ("routed", "main") if model[name]]
        gates = [self.gate.trainable(model[name]) for name in ("gate", "noise")]
        return sum(map(tree.numel, experts + gates)) + (self.num_main == 1)

    # -- training ----------------------------------------------------------------------------

    def trained_part(self, model: Model) -> Model:
        """The entries of the model that the objective trains."""
        experts = ("routed", "main") if self.trains_experts else ()
        return {name: model[name] for name in (*GATE, *experts)}

    def gate_loss(self, model: Model, outputs: Tensor, batch: Batch) -> Tensor:
        """The objective, given the experts' outputs for the server's examples [N, K + R, L]: []"""
        return self.objective(model, outputs[batch.index], batch)

    def joint_loss(self, model: Model, batch: Batch) -> Tensor:
        """The objective, if experts are trained too -> []"""
        return self.objective(model, self.expert_outputs(model, batch), batch)

    def objective(self, model: Model, outputs: Tensor, batch: Batch) -> Tensor:
        """L_gate (Equation 9), with the terms that the code adds -> []"""
        with ambient.expert(self.num_routed):  # dropout masks differ from all experts'
            clean = self.gate.logits(model["gate"], batch)
        with ambient.expert(self.num_routed + 1):
            scale = server_mixture.noise_scale(self.gate.logits(model["noise"], batch))
        noisy = server_mixture.noisy(clean, scale, batch.key)
        gates = self.training_gates(noisy)
        log_probs = self.mix(gates, outputs, model["alpha"])
        errors = server_mixture.cross_entropy(log_probs, batch.y, self.label_smoothing)
        if self.task.class_weights is not None:
            errors = errors * self.task.class_weights[batch.y.long()]
        loss = batch.mean(errors)
        if self.entropy_weight:
            entropy = self.gate_entropy(gates, noisy, batch.y, log_probs.shape[-1])
            loss = loss + self.entropy_weight * entropy
        if self.balance_weight:
            balance = server_mixture.load_balance(gates, self.loads(gates, clean, noisy, scale))
            loss = loss + self.balance_weight * balance
        if self.l2_weight:
            loss = loss + self.l2_weight * tree.sqnorm(self.mixture_task.trainable(model))
        return loss

    def training_gates(self, logits: Tensor) -> Tensor:
        """Gate values in training from noisy logits -> [B, K]"""
        if self.training_gate == "soft":
            return logits.softmax(-1)
        return server_mixture.top_k_gates(logits, self.top_k, self.gate_value)

    def gate_entropy(self, gates: Tensor, logits: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """The entropy loss -> []"""
        if self.entropy == "per_example":
            return server_mixture.entropy_per_example(logits.softmax(-1))
        return server_mixture.entropy_per_expert(gates, y, num_classes)

    def loads(self, gates: Tensor, clean: Tensor, noisy: Tensor, scale: Tensor) -> Tensor:
        """Load of the experts; the smooth one if noise decides which experts are kept -> [K]"""
        if self.training_gate == "soft" or self.top_k == self.num_routed:
            return server_mixture.hard_load(gates)
        return server_mixture.smooth_load(clean, noisy, scale, self.top_k, self.load)

    # -- the mixture -------------------------------------------------------------------------

    def personalise(self, state: Any, cohort: Cohort) -> Model:
        """The mixture, for all clients and the server."""
        return self.last_mixture(state, cohort)

    def last_mixture(self, state: Any, cohort: Cohort) -> Model:
        """The mixture of the last round."""
        return cohort.broadcast(predictor(state.model))

    def predict(self, personal: Model, batch: Batch) -> Tensor:
        """Log-probabilities of the mixture of the experts that the gate keeps -> [B, L]"""
        gates = self.gates(personal["gate"], batch)
        return self.mix(gates, self.expert_outputs(personal, batch), personal["alpha"])

    def losses(self, model: Model, outputs: Tensor, batch: Batch) -> Tensor:
        """Losses of the mixture, given the experts' outputs for all examples [N, K + R, L]: [B]"""
        gates = self.gates(model["gate"], batch)
        return nll(self.mix(gates, outputs[batch.index], model["alpha"]), batch.y)

    def gates(self, gate: Params, batch: Batch) -> Tensor:
        """Gate values at inference, without noise -> [B, K]"""
        return server_mixture.top_k_gates(self.gate.logits(gate, batch), self.top_k, "renorm")

    def soft_gates(self, gate: Params, batch: Batch) -> Tensor:
        """Probabilities of all experts -> [B, K]"""
        return self.gate.logits(gate, batch).softmax(-1)

    def mix(self, gates: Tensor, outputs: Tensor, alpha: Tensor) -> Tensor:
        """Log-probabilities from gates [B, K] and the experts' outputs [B, K + R, L] -> [B, L]"""
        routed, main = outputs[:, : self.num_routed], outputs[:, self.num_routed :]
        combined = server_mixture.combine(gates, routed, main, alpha)
        return server_mixture.combined_log_probs(combined, self.combine)

    def expert_outputs(self, model: Model, batch: Batch) -> Tensor:
        """Outputs of routed and main experts for a batch -> [B, K + R, L]

        In training, main expert r has the dropout masks of routed expert r.
        """
        kinds = [model[name] for name in ("routed", "main") if model[name]]
        outputs = [each_expert(lambda e: self.output_of_expert(e, batch), kind) for kind in kinds]
        return torch.cat(outputs, 1)

    def output_of_expert(self, expert: Params, batch: Batch) -> Tensor:
        """An expert's probabilities or logits -> [B, L]"""
        if self.combine == "logits":
            return self.task.logits(expert, batch)
        return self.task.log_probs(expert, batch).exp()

    def validation_loss(self, model: Model, outputs: Tensor, server: Cohort) -> Tensor:
        """Mean loss of the mixture on the server's validation examples -> []

        Args:
          outputs: `validation_outputs`.
        """
        routing = tree.broadcast({name: model[name] for name in ("gate", "alpha")}, 1)
        losses = server.score(self.losses, routing, outputs, split="val")
        return server.example_mean(losses, "val")[0]

    def validation_outputs(self, model: Model, server: Cohort) -> Tensor:
        """Outputs of all experts for the server's validation examples -> [1, N, K + R, L]

        Raises:
          DataError: if the server has none.
        """
        chosen.refuse_nothing_to_choose_by(server, "mixture")
        return self.outputs_in_turn(model, server, "val")

    def outputs_in_turn(self, model: Model, server: Cohort, split: str) -> Tensor:
        """Outputs of all experts for the server's examples, one at a time -> [1, N, K + R, L]"""
        kinds = [model[name] for name in ("routed", "main") if model[name]]
        experts = [tree.broadcast(one, 1) for kind in kinds for one in tree.unstack(kind)]
        scores = [server.score(self.output_of_expert, one, split=split) for one in experts]
        return torch.stack(scores, dim=2)
