"""Local/Global: every client has its own lower part of the model; the upper part is federated.

    client  trains its own lower part l_s and the shared upper part w; returns w_s, keeps l_s
    server  w <- w - Adam( sum_s p(s) (w - w_s) )

Source: Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
Representations", 2020 (LG-FedAvg), as the baseline of Reisser et al., "Federated Mixture of
Experts", ICLR 2021 submission (arXiv:2107.06724); sections 3 and 4 of
fedlib/papers/fedmix/README.md. The traffic in Table 1 shows which part is private (section 8
there): the first convolution of LeNet-5, stem and first stage of ResNet-20.
Official code: pliangLG/LG-FedAvg, with a different protocol: it starts from a model pre-trained by
FedAvg, averages without weights, and new devices average outputs.
Deviation: the paper does not specify the start of l_s, here the same draw for all clients, or new
clients with labels, which here train a lower part from that draw, with the local solver.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.task import Batch, Params, log_probs
from fedlib.methods.fedavg_adam import FedAvgAdam, State


class Everybody(NamedTuple):
    """The predictor for a shard without labels."""

    upper: Params  # shared
    lower: Params  # [S, ...], of all S seen clients


@dataclass(frozen=True, kw_only=True)
class LocalGlobal(FedAvgAdam):
    """FedAvg with a private lower part.

    Attributes:
      private: name of the last private part of the body, which is Sequential; all parts before it
        are private too.
    """

    private: str = "body.0"

    look = "Local/Global", "#C9A227", (5, 0, 36), "dashdot"
    ways: ClassVar = {
        "seen": {"default": "personalise", "new_shard": "everybody", "finetuned": "finetune"},
        "unseen": {"default": "welcome", "new_shard": "everybody"},
    }

    def __post_init__(self):
        """Raises ValueError unless `private` is a part of the body, and both sides can train."""
        FedAvgAdam.__post_init__(self)
        parts = list(self.task.parts)
        if self.private not in parts:
            raise ValueError(
                f"private must be a part of a body that is Sequential, {parts}, got "
                f"{self.private!r}"
            )
        private = list(map(self.is_private, self.task.trainable(self.task.shapes)))
        if not any(private):
            raise ValueError(f"private {self.private!r} trains nothing; choose a later part")
        if all(private):
            raise ValueError(f"no trained parameters to share come after private {self.private!r}")

    @cached_property
    def lower_parts(self) -> tuple[str, ...]:
        """The private parts of the body, in order."""
        parts = self.task.parts
        return parts[: parts.index(self.private) + 1]

    @cached_property
    def upper_parts(self) -> tuple[str, ...]:
        """The shared parts of the body, in order."""
        return self.task.parts[len(self.lower_parts) :]

    def is_private(self, name: str) -> bool:
        """Whether an entry of the parameters belongs to a private part."""
        return any(name.startswith(f"{part}.") for part in self.lower_parts)

    def everybody(self, state: State, cohort: Cohort) -> Everybody:
        """For a shard without labels: the lower parts of all seen clients."""
        return cohort.held(Everybody(state.params, tree.take(state.private, cohort.seen().ids)))

    def predict(self, personal: Params | Everybody, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        if not isinstance(personal, Everybody):
            return self.task.log_probs(personal, batch)
        mean = self.mean_representation(personal.lower, batch)
        features = self.through(self.upper_parts, personal.upper, mean, batch)
        return log_probs(self.task.head_logits(self.task.split(personal.upper)[1], features, batch))

    def mean_representation(self, lower: Params, batch: Batch) -> Tensor:
        """Mean output of the clients' lower parts [S, ...] for a batch -> [B, ...]"""
        everyone = tree.unstack(lower)
        # One client at a time, as all together may not fit into memory.
        outputs = (self.through(self.lower_parts, own, batch.x, batch) for own in everyone)
        return sum(outputs) / len(everyone)

    def through(
        self, parts: tuple[str, ...], params: Params, inputs: Tensor, batch: Batch
    ) -> Tensor:
        """Output of these parts of the body, in turn, for `inputs` -> [B, ...]"""
        for part in parts:
            inputs = self.task.part(part, params, inputs, batch)
        return inputs
