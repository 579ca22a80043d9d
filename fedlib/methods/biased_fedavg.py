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
from typing import ClassVar

import torch

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Params
from fedlib.methods.fedavg_adam import FedAvgAdam, State
from fedlib.methods.parts.settings import Range


@dataclass(frozen=True, kw_only=True)
class BiasedFedAvg(FedAvgAdam):
    """FedAvg with a private output bias.

    Attributes:
      private: name of the output bias.
      new_client_epochs: epochs for which a new client fits its bias, at least 1. 10, as for a new
        gate in FedMix, is ours.
    """

    private: str = "head.bias"
    new_client_epochs: int = 10

    look = "Biased FedAvg", "#0077BB", (4, 0, 20), "long"
    ranges: ClassVar = FedAvgAdam.ranges | {"new_client_epochs": Range(1)}
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "mean_bias", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "mean_bias"},
    }

    def __post_init__(self):
        """Raises ValueError unless `private` is a bias of the head."""
        FedAvgAdam.__post_init__(self)
        biases = [n for n in self.task.split(self.task.init(0))[1] if n.endswith("bias")]
        if self.private not in biases:
            raise ValueError(f"private must be a bias of the head, {biases}, got {self.private!r}")

    def is_private(self, name: str) -> bool:
        """Whether this is the output bias."""
        return name == self.private

    def draw(self, seed: int) -> Params:
        """A new model with an output bias of zero."""
        drawn = self.task.init(seed)
        return drawn | {self.private: torch.zeros_like(drawn[self.private])}

    def mean_bias(self, state: State, cohort: Cohort) -> Params:
        """For a shard without labels: the mean bias of all seen clients."""
        seen = cohort.seen().ids
        mean = tree.map(lambda bias: bias[seen].mean(0), state.private)
        return cohort.held({**state.params, **mean})

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """A new client with labels fits a bias, from zero; the rest is the server's model."""
        return self.fit_private(state, cohort, self.new_client_epochs)
