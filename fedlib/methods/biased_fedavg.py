"""Biased FedAvg: every client has an output bias b_s of its own, the rest is federated.

    client  trains the shared w and its b_s; returns w_s, keeps b_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) )

A client whose labels are distributed in its own way can say so with the bias alone.

Source: the baseline "biased FedAvg" of Reisser et al., "Federated Mixture of Experts", ICLR 2021
submission (arXiv:2107.06724); specification sections 3 and 4. That the bias is not sent follows
from the bytes of Table 1 (section 8).
Deviation: the paper is silent on where b_s starts, here at zero [R], and on new clients with
labels, who here fit the bias alone, with the local solver [R].
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
      private_lr_scale: multiplies the rate of the bias. Ours; 1 is the paper's single rate.
      new_client_epochs: for which a new client fits its bias; 10 are those of a new gate in FedMix
        [R].
    """

    private: str = "head.bias"
    private_lr_scale: float = 1.0
    new_client_epochs: int = 10

    ranges: ClassVar = FedAvgAdam.ranges | {"new_client_epochs": Range(1)}
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "mean_bias", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "mean_bias"},
    }

    def __post_init__(self):
        """Raises ValueError for a bias that the head has not."""
        FedAvgAdam.__post_init__(self)
        biases = [n for n in self.task.split(self.task.init(0))[1] if n.endswith("bias")]
        if self.private not in biases:
            raise ValueError(f"private must be a bias of the head, {biases}, got {self.private!r}")

    def is_private(self, name: str) -> bool:
        """Whether this is the output bias."""
        return name == self.private

    def draw(self, seed: int) -> Params:
        """A drawn model, its bias zero [R]."""
        drawn = self.task.init(seed)
        return drawn | {self.private: torch.zeros_like(drawn[self.private])}

    def mean_bias(self, state: State, cohort: Cohort) -> Params:
        """Of a shard without labels: the mean of the biases of all clients that may train."""
        seen = cohort.seen().ids
        mean = tree.map(lambda bias: bias[seen].mean(0), state.private)
        return cohort.held({**state.params, **mean})

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """A new client with labels fits a bias from zero; everything else is the server's."""
        return self.fit_private(state, cohort, self.new_client_epochs)
