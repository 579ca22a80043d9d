"""Local/Global: every client has the lower part of the model for itself, the upper is federated.

    client  trains its own lower part l_s and the shared upper part w; returns w_s, keeps l_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) )

Source: Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
Representations", 2020 (LG-FedAvg), as the baseline of Reisser et al., "Federated Mixture of
Experts", ICLR 2021 submission (arXiv:2107.06724); specification sections 3 and 4. How much is
private follows from the bytes of Table 1 (section 8): the first convolution of LeNet-5, stem and
first stage of ResNet-20.
Official code: pliangLG/LG-FedAvg has another protocol, which is not used here: it begins with a
model pre-trained by FedAvg, averages without weights and lets new devices average outputs.
Deviation: the paper is silent on where l_s starts, here with the same draw for all [R], and on new
clients with labels, who here train a lower part from that draw, with the local solver [R].
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params, log_probs
from fedlib.methods.fedavg_adam import FedAvgAdam, State
from fedlib.methods.parts.settings import Range


class Everybody(NamedTuple):
    """What a shard without labels is predicted with."""

    upper: Params  # shared
    lower: Params  # [S, ...], of all S clients that may train


@dataclass(frozen=True, kw_only=True)
class LocalGlobal(FedAvgAdam):
    """FedAvg with a private lower part.

    Attributes:
      private: the last part of the body, which is Sequential, that clients have for themselves;
        they have those before it, too.
      private_lr_scale: multiplies the rate of the lower part. Ours; 1 is the paper's single rate.
      new_client_epochs: for which a new client trains its lower part; 10 are those of a new gate in
        FedMix [R].
    """

    private: str = "body.0"
    private_lr_scale: float = 1.0
    new_client_epochs: int = 10

    ranges: ClassVar = FedAvgAdam.ranges | {"new_client_epochs": Range(1)}
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "everybody", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "everybody"},
    }

    def __post_init__(self):
        """Raises ValueError for a part that the body has not, or that has nothing to train."""
        FedAvgAdam.__post_init__(self)
        parts = list(self.task.parts)
        if self.private not in parts:
            raise ValueError(
                f"private must be a part of a body that is Sequential, {parts}, got "
                f"{self.private!r}"
            )
        if not any(map(self.is_private, self.task.trainable(self.task.init(0)))):
            raise ValueError(f"private {self.private!r} has no parameters; choose a later part")

    @cached_property
    def lower_parts(self) -> tuple[str, ...]:
        """What clients have for themselves, in order."""
        parts = self.task.parts
        return parts[: parts.index(self.private) + 1]

    @cached_property
    def upper_parts(self) -> tuple[str, ...]:
        """The rest of the body, in order."""
        return self.task.parts[len(self.lower_parts) :]

    def is_private(self, name: str) -> bool:
        """Whether an entry of the parameters belongs to a lower part."""
        return any(name.startswith(f"{part}.") for part in self.lower_parts)

    def everybody(self, state: State, cohort: Cohort) -> Everybody:
        """Of a shard without labels: the lower parts of all clients that may train."""
        seen = cohort.seen().ids
        return cohort.held(Everybody(state.params, tree.take(state.private, seen)))

    def welcome(self, state: State, cohort: Cohort) -> Params:
        """A new client with labels trains a lower part; the upper is the server's."""
        return self.fit_private(state, cohort, self.new_client_epochs)

    def predict(self, personal: Params | Everybody, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        if not isinstance(personal, Everybody):
            return self.task.log_probs(personal, batch)
        mean = self.mean_representation(personal.lower, batch)
        features = self.through(self.upper_parts, personal.upper, mean, batch)
        head = self.task.split(personal.upper)[1]
        return log_probs(self.task.head_logits(head, features, batch))

    def mean_representation(self, lower: Params, batch: Batch) -> Tensor:
        """Mean over clients of what their lower parts [S, ...] make of a batch -> [B, ...]"""
        everyone = tree.unstack(lower)
        total = 0  # one client after the other: together they would not fit into memory
        for own in everyone:
            total = total + self.through(self.lower_parts, own, batch.x, batch)
        return total / len(everyone)

    def through(
        self, parts: tuple[str, ...], params: Params, inputs: Tensor, batch: Batch
    ) -> Tensor:
        """What these parts of the body, in turn, make of `inputs` -> [B, ...]"""
        for part in parts:
            inputs = self.task.part(part, params, inputs, batch)
        return inputs
