"""pFedMoE: for each example, a gate mixes a small shared extractor with the client's own.

    r(x)    = a_G(x) G(x; theta) + a_F(x) F_k^ex(x)      a = softmax of the gate H(x; phi_k)
    p(y|x)  = softmax F_k^hd(r(x))                       F_k^hd: the client's header
    client  trains theta_k, omega_k (F_k's extractor and header) and phi_k together on the
            cross-entropy of p; returns theta_k
    server  averages the cohort's theta_k by numbers of examples

Clients may have different F_k, if all extractors have the same number of features. Only theta, the
body of `task`, leaves a client; header and gate, with its running statistics, stay.

Source: Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350); section 1 of
fedlib/papers/pfedmoe/README.md. pFedMM's code uses the name pFedMoE for a different method, a
mixture of whole models: see `gated_experts`.
Deviation: none known in the algorithm, of which we had two summaries, not the paper; the solver is
the sibling paper's (pFedES), and the gate's normalisation, width and rate are ours. In the sibling
papers' code a single optimiser of the small model lives for the whole run and carries its momentum
from client to client; here each client has its own solver. To average the cohort only, as in the
paper, a run needs the `aggregation` "renormalised".
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import expert_seed
from fedlib.engine.solvers import Memory
from fedlib.engine.task import Batch, JointTask, Params, Task, log_probs, nll
from fedlib.methods.base import LogUniform, Method, Range
from fedlib.methods.parts import recording
from fedlib.methods.parts.own_models import is_untrained, put_parts, refuse_no_extractor
from fedlib.methods.private_models import PrivateModels
from fedlib.tree import Rows

EXPERTS = 2  # the global and the local expert
FIXED = "fixed:"  # prefix of a gate_mode, before the weight of the global expert
# Weight of the global expert by gate_mode; None where the gate gives it.
MODES = {"learned": None, "global_only": 1.0, "local_only": 0.0}

Model = dict[str, Params]  # {"small": theta_k, "large": omega_k, "gate": phi_k} of ONE client


class State(NamedTuple):
    """The server's extractor, every client's `Model`, and the memory of the solvers."""

    small: Params  # theta
    models: dict[str, Rows]  # `Model` of all clients after their last training; private
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class PFedMoE(PrivateModels):
    """A mixture of two representations.

    An unseen client has neither header nor gate, so there is no protocol for it.

    Attributes:
      local: solver of everything that a client trains, run once per round (sibling paper: SGD
        with rate 0.01); `clip_norm` applies to small extractor, client's model and gate separately.
      gate: architecture of the gate on the input, with two outputs: global and local expert.
      gate_mode: "learned"; or the ablations "fixed:<weight of the global expert>" with a weight in
        [0, 1], "global_only" and "local_only", which ignore the gate.
      gate_lr_scale: factor of the gate's learning rate, at least 0; 1 is the rate of all parts.
      recorded: number of test examples of each of the first clients whose representations the final
        evaluation keeps, at least 0.
    """

    gate: Task
    gate_mode: str = "learned"
    gate_lr_scale: float = 1.0
    recorded: int = 0

    look = "pFedMoE", "#6A3D9A", (8, 1, 0), "solid", 2.1
    ranges: ClassVar = dict.fromkeys(("gate_lr_scale", "recorded"), Range(0))
    SPACE: ClassVar = {"gate_lr_scale": LogUniform(1e-2, 3)}
    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "aggregate"},
        "unseen": {},
    }
    shared: ClassVar = ("small",)
    alike: ClassVar = frozenset({"default", "aggregated"})  # all but the small extractor

    def __post_init__(self):
        """Raises ValueError for an invalid gate mode, or parts that do not fit together."""
        Method.__post_init__(self)
        refuse_no_extractor(self.task)
        _ = self.fixed_weight  # raises for an invalid gate mode
        if (outputs := self.gate.num_outputs) != EXPERTS:
            raise ValueError(f"the gate of pFedMoE needs {EXPERTS} outputs, got {outputs}")
        features = [task.num_features for task in (self.task, *self.own.tasks)]
        if len({*features}) > 1:
            raise ValueError(f"all extractors must end in as many features, got {features}")

    @cached_property
    def fixed_weight(self) -> float | None:
        """Weight of the global expert for every input; None if the gate is learned."""
        mode = self.gate_mode
        if mode in MODES:
            return MODES[mode]
        with suppress(ValueError):  # of a weight that is no number
            weight = float(mode.removeprefix(FIXED))
            if mode.startswith(FIXED) and 0 <= weight <= 1:
                return weight
        raise ValueError(
            f"gate_mode must be one of {[*MODES]} or '{FIXED}<weight in [0, 1]>', got {mode!r}"
        )

    @cached_property
    def joint(self) -> JointTask:
        """The task of cohorts that train small extractors, clients' models and gates."""
        return self.own.joint(self.task, self.gate)

    def init(self, num_clients: int, seed: int) -> State:
        """One draw of each architecture, of the small extractor and of the gate.

        Their seeds are those of experts 0, 1 and 2. So two extractors of the same architecture do
        not start as the same function, between which a gate could not choose.
        """
        small, _ = self.task.split(self.task.init(expert_seed(seed, 1)))
        models = {
            "small": Rows([small] * num_clients),
            "large": self.own.init(num_clients, seed),
            "gate": Rows([self.gate.init(expert_seed(seed, EXPERTS))] * num_clients),
        }
        return State(small, models, self.local.memory(self.joint.trainable(models), num_clients))

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Broadcast the small extractor, train all parts together, average the small extractors."""
        own = tree.take(state.models, cohort.host_ids)
        trained, memory = replace(cohort, task=self.joint).fit(
            self.loss,
            own | {"small": put_parts(own["small"], cohort.broadcast(state.small))},
            self.own.of(cohort),
            local=self.local,
            memory=state.memory,
            lr_scale={"gate": self.gate_lr_scale},
        )
        models = cohort.put(state.models, trained)
        return State(cohort.average(trained["small"], state.small), models, memory)

    def loss(self, model: Model, task: Task, batch: Batch) -> Tensor:
        """Cross-entropy of p, see `decide`; the only loss term -> []"""
        predicted = self.predict({"model": model, "task": task}, batch)
        return batch.mean(nll(predicted, batch.y, task.class_weights))

    def weights(self, gate: Params, batch: Batch) -> Tensor:
        """Weights a_G and a_F of the global and the local expert -> [B, 2]"""
        if self.fixed_weight is None:
            return self.gate.logits(gate, batch).softmax(-1)
        # Of the model's type: inputs may be tokens, which are integers.
        ones = batch.x.new_ones(len(batch.x), dtype=self.task.dtype)
        return torch.stack([self.fixed_weight * ones, (1 - self.fixed_weight) * ones], dim=-1)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> dict[str, Any]:
        """Each client's parts after its last training; before that, the server's extractor."""
        return self._assemble(state, cohort, is_untrained(state.memory, cohort).tolist())

    def aggregate(self, state: State, cohort: Cohort) -> dict[str, Any]:
        """Each client's model and gate with the server's extractor."""
        return self._assemble(state, cohort, [True] * cohort.size)

    def outputs(self, personal: dict[str, Any], batch: Batch) -> tuple[Tensor, Tensor]:
        """The gate's weights [B, 2] and r_F [B, F] of every example."""
        model, task = personal["model"], personal["task"]
        body, _ = task.split(model["large"])
        return self.weights(model["gate"], batch), task.features(body, batch)

    def decide(
        self, personal: dict[str, Any], outputs: tuple[Tensor, Tensor], batch: Batch
    ) -> Tensor:
        """Log-probabilities of the client's header on the mixed representation -> [B, L]"""
        (weights, own), model, task = outputs, personal["model"], personal["task"]
        _, head = task.split(model["large"])
        mixed = mix(weights, self.task.features(model["small"], batch), own)
        return log_probs(task.head_logits(head, mixed, batch))

    def measure(self, protocol: str, personal: dict[str, Any], cohort: Cohort) -> dict[str, Tensor]:
        """Gate weights and representations of test examples.

        "gate_weights" [C, 2] are means for the global and the local expert. "local_weights" [C, L]
        are means for the local expert by label, NaN where the client has no example of the label.
        "local_weight_bins" [C, bins] is a histogram of the local expert's weight over examples.
        "representations" [C, n, 3, F] are r_G, r_F and r of the `recorded` examples, see
        `parts.recording`.
        """
        if protocol != "default":  # all protocols have the same gate
            return {}
        model, task = personal["model"], personal["task"]
        num_labels = cohort.data.federation.num_classes
        of_gate = partial(self.of_gate, num_labels)
        scored = cohort.score(of_gate, model["gate"], split="test")  # runs the gate only once
        sizes = [EXPERTS, 2 * num_labels, recording.BINS]
        weights, by_label, bins = (part.contiguous() for part in scored.split(sizes, dim=-1))
        of_labels = by_label.sum(1).unflatten(-1, (num_labels, 2))  # [C, L, 2]
        found = {
            "gate_weights": cohort.example_mean(weights, "test"),
            "local_weights": of_labels[..., 0] / of_labels[..., 1],
            "local_weight_bins": bins.sum(1),
        }
        if not self.recorded:
            return found
        vectors = cohort.score(self.all_representations, model, task, split="test")
        return found | recording.some_examples(vectors, cohort, self.recorded)

    def of_gate(self, num_labels: int, gate: Params, batch: Batch) -> Tensor:
        """For each example its weights, then terms of sums over examples -> [B, 2 + 2 L + bins]

        The terms are the local expert's weight and a 1, in the row of the label, and a 1 in the bin
        of this weight.
        """
        weights = self.weights(gate, batch)
        local = weights[:, 1]
        label = one_hot(batch.y.long(), num_labels).to(local.dtype)
        entry = torch.stack([local, torch.ones_like(local)], -1)
        by_label = label.unsqueeze(-1) * entry.unsqueeze(1)
        return torch.cat([weights, by_label.flatten(1), recording.in_bins(local)], dim=1)

    def all_representations(self, model: Model, task: Task, batch: Batch) -> Tensor:
        """r_G, r_F and r of every example -> [B, 3, F]"""
        weights, own = self.outputs({"model": model, "task": task}, batch)
        shared = self.task.features(model["small"], batch)
        return torch.stack([shared, own, mix(weights, shared, own)], dim=1)

    def _assemble(self, state: State, cohort: Cohort, served: list[bool]) -> dict[str, Any]:
        """The clients' models, with the server's small extractor for those `served`."""
        own = tree.take(state.models, cohort.host_ids)
        small = put_parts(own["small"], cohort.held(state.small), served)
        return {"model": own | {"small": small}, "task": self.own.of(cohort)}


def mix(weights: Tensor, shared: Tensor, own: Tensor) -> Tensor:
    """r, the sum of both experts' representations [B, F] with weights [B, 2] -> [B, F]"""
    return weights[:, :1] * shared + weights[:, 1:] * own
