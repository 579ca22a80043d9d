"""Biased FedAvg: every client has its own output bias b_s; the rest is federated.

    client  trains the shared w and its b_s; returns w_s, keeps b_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) )

The bias can represent a client's own distribution of labels.

Source: the baseline "biased FedAvg" of Reisser et al., "Federated Mixture of Experts", ICLR 2021
submission (arXiv:2107.06724); sections 3 and 4 of fedlib/papers/fedmix/README.md. The traffic in
Table 1 shows that the bias is not sent (section 8 there).
Deviation: the paper does not specify the start of b_s, here zero, or new clients with labels, which
here fit only the bias, with the local solver.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Params
from fedlib.methods.fedavg_adam import FedAvgAdam, State
from fedlib.methods.parts.output_bias import output_bias


@dataclass(frozen=True, kw_only=True)
class BiasedFedAvg(FedAvgAdam):
    """FedAvg with a private output bias."""

    look = "Biased FedAvg", "#0077BB", (4, 0, 20), "long"
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "mean_bias", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "mean_bias"},
    }

    def __post_init__(self):
        """Raises ValueError for a model without an output bias."""
        FedAvgAdam.__post_init__(self)
        _ = self.bias

    @cached_property
    def bias(self) -> str:
        """Name of the output bias."""
        return output_bias(self.task)

    def is_private(self, name: str) -> bool:
        """Whether this is the output bias."""
        return name == self.bias

    def draw(self, seed: int) -> Params:
        """A new model with an output bias of zero."""
        drawn = self.task.init(seed)
        return drawn | {self.bias: torch.zeros_like(drawn[self.bias])}

    def mean_bias(self, state: State, cohort: Cohort) -> Params:
        """For a shard without labels: the mean bias of all seen clients."""
        seen = cohort.seen().ids
        mean = tree.map(lambda bias: bias[seen].mean(0), state.private)
        return cohort.held({**state.params, **mean})
