"""Model and objective of FedMix: a mixture of whole models with a table of q(e|y).

    p(y|x, s) = sum_e p_e(y|x) p_s(e|x)     with a gate p_s(e|x) on features pooled by q(e|s)
    objective: mean of sum_e q(e|y) (log p_e(y|x) + log p_s(e|x)),   q(e|y) = softmax_e phi[y]

A `TableMixture` defines a client's prediction and objective; methods derived from it define the
communication and the server's update.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724);
sections 1, 2.1 and 3 of fedlib/papers/fedmix/README.md.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import expert_losses
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Range
from fedlib.methods.parts import gating, variational
from fedlib.methods.parts.gating import Known
from fedlib.methods.pooled_mixture import PooledMixture
from fedlib.tree import Tree

Model = dict[str, Tree]  # "experts" [E, ...], "phi" [R, E], "gate", and "bias" [L] if private
Facts = dict[str, Tensor]  # "shares" [R], "received" [E] bool, and "side" [N] if q depends on it


@dataclass(frozen=True, kw_only=True)
class TableMixture(PooledMixture):
    """Settings, objective and prediction of a client.

    Attributes:
      condition: the condition of q: an example's "label", or its "side" information (the rotation,
        in Figures 5 and 6).
      num_sides: R, number of values of the side information, at least 1; 0 for labels.
      local_entropy: whether clients also maximise the entropy of q(e|y); then experts do not
        specialise (the paper's ablation, Figure 3).
      gates: "private": each client has its own gate, never sent; or "shared": trained and sent like
        the experts (the paper's choice for FEMNIST).
      private_bias: whether each client has its own output bias, the same for all its experts
        ("biased FedMix"); starting at zero is ours.
      pruning: the paper's eta, in [0, 1]: clients use the experts with q(e|s) >= eta / E. 0 keeps
        all (Algorithm 2; Figure 11 b and d).
    """

    condition: str = "label"
    num_sides: int = 0
    local_entropy: bool = False
    gates: str = "private"
    private_bias: bool = False
    pruning: float = 0.0

    choices: ClassVar = {"condition": ("label", "side"), "gates": ("private", "shared")}
    ranges: ClassVar = PooledMixture.ranges | {"pruning": Range(0, 1)}

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        PooledMixture.__post_init__(self)
        _ = self.bias  # raises if the head has no single bias
        if self.num_sides < 0 or (self.num_sides > 0) != (self.condition == "side"):
            raise ValueError(
                f"num_sides must be at least 1 for condition 'side' and 0 for 'label', got "
                f"{self.num_sides} for {self.condition!r}"
            )

    @cached_property
    def bias(self) -> str | None:
        """Name of the private bias, or None."""
        biases = [n for n in self.task.split(self.task.init(0))[1] if n.endswith("bias")]
        if self.private_bias and len(biases) != 1:
            raise ValueError(f"private_bias needs a head with one bias, got {biases or 'none'}")
        return biases[0] if self.private_bias else None

    @cached_property
    def num_rows(self) -> int:
        """R, rows of the table: labels or values of the side information."""
        return self.num_sides or max(2, self.task.num_outputs)  # a single logit is of two classes

    def shares(self, cohort: Cohort) -> Facts:
        """Each client's shares p(c|s) and, if q depends on it, its side information."""
        side = {"side": cohort.side()} if self.condition == "side" else {}
        return {"shares": cohort.shares(self.condition, self.num_rows), **side}

    def loss(self, model: Model, facts: Facts, batch: Batch) -> Tensor:
        """One client's objective, negated -> []"""
        phi = model["phi"]
        q = variational.marginal(facts["shares"], phi.detach())
        keep = variational.keep(q, facts["received"], self.pruning)
        features, log_probs = gating.outputs(self.task, self.whole(model), batch)
        pooled = gating.pool(self.pooling(q, keep), features)
        given = batch.y.long() if self.condition == "label" else facts["side"][batch.index]
        bound = variational.bound(
            phi.softmax(-1)[given],
            log_likelihood=-expert_losses(log_probs, batch.y, self.task.class_weights),
            log_gate=gating.log_weights(model["gate"], pooled),
            kept=variational.kept_table(phi, keep)[given] if self.pruning else None,
        )
        if self.local_entropy:
            bound = bound + variational.entropy(phi)[given]
        return -batch.mean(bound)

    def pooling(self, q: Tensor, keep: Tensor) -> Tensor:
        """Pooling weights of the experts' features, from marginals q [..., E] -> [..., E]"""
        return variational.kept_part(q, keep) if self.pruning else q

    def whole(self, model: Model) -> Params:
        """The experts with their bias, private or not -> [..., E, ...]"""
        if not self.bias:
            return model["experts"]
        bias = model["bias"].unsqueeze(-2)
        sizes = *bias.shape[:-2], self.num_experts, bias.shape[-1]
        return {**model["experts"], self.bias: bias.expand(sizes)}

    def known(self, model: Model, facts: Facts) -> Known:
        """The clients' predictors, from their models [C, ...]."""
        q = variational.marginal(facts["shares"], model["phi"])
        keep = variational.keep(q, facts["received"], self.pruning)
        return Known(self.whole(model), model["gate"], self.pooling(q, keep), keep)

    @property
    def alike(self) -> frozenset[str]:
        """Protocols with the same experts; none with a private bias."""
        return frozenset() if self.bias else frozenset({"default", "new_shard"})
