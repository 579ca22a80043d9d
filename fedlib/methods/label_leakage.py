"""Label leakage: the server estimates a client's label shares from its first update of FedAvg.

A gradient step changes the output bias of label k by lr * (share of k - mean predicted probability
of k). A new model predicts all labels with about equal probability, so

    share of k  ~  change of bias k / (lr * steps) + 1 / L

In the first round, when all clients start from the new model, the server records this estimate for
every client; everything else is FedAvg. One full-batch step (a batch_size of at least the largest
shard, one epoch) is the paper's Figure 9; mini-batches are its Figure 10.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix C; section 7.5 of fedlib/papers/fedmix/README.md.
Deviation: for several steps the paper reads the change, normalised in an unspecified way, as a
distribution. Here it is divided by the number of steps, negative shares become 0, and the rest is
scaled to sum to 1. After one step the estimate sums to 1 and is not changed, even where negative.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib.engine.batches import cut
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import SGD, Memory
from fedlib.engine.task import Params
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.parts.output_bias import output_bias


class State(NamedTuple):
    """The server's model, the memory of the clients' solvers, and the server's estimates."""

    params: Params
    memory: Memory
    recovered: Tensor  # [num_clients, L], zeros for clients absent from the first round


@dataclass(frozen=True, kw_only=True)
class LabelLeakage(FedAvg):
    """FedAvg with a curious server.

    Attributes:
      local: plain SGD at a constant rate, as the estimate depends on the step size.
    """

    look = "Label leakage", "#4B4B8F", (7, 0, 0), "dotted"
    shared: ClassVar = ()  # without a server nobody estimates

    def __post_init__(self):
        """Raises ValueError if steps are not the rate times the gradient of the plain loss.

        Also for a head without a single bias, or with one logit for two labels.
        """
        local = self.local
        changed = local.weight_decay or local.clip_norm or self.task.class_weights is not None
        plain = isinstance(local, SGD) and not local.momentum and not changed
        if not plain or local.schedule.kind != "constant" or not local.lr > 0:
            raise ValueError(
                "label leakage is read from steps of SGD with a constant lr above 0, without "
                f"momentum, weight decay, clipping or class weights, got {local}"
            )
        if self.task.shapes[self.bias] == (1,):
            raise ValueError("label leakage needs a bias with a number for each label, got [1]")

    @cached_property
    def bias(self) -> str:
        """Name of the bias of the output layer."""
        return output_bias(self.task)

    def init(self, num_clients: int, seed: int) -> State:
        """A new model; no estimates."""
        params, memory = FedAvg.init(self, num_clients, seed)
        return State(params, memory, params[self.bias].new_zeros(num_clients, self.task.num_labels))

    def round(self, state: State, cohort: Cohort) -> State:
        """A round of FedAvg; in the first one the server estimates the label shares."""
        (sent, bias), memory = cohort.fit(
            self.task.loss,
            cohort.broadcast(state.params),
            local=self.local,
            memory=state.memory,
            returns=lambda part, trained: (part.total(trained), trained[self.bias]),
        )
        recovered = state.recovered
        if cohort.round == 0:
            shares = self.read(bias - state.params[self.bias], self.num_steps(cohort))
            recovered = cohort.put(recovered, shares)
        return State(cohort.average(sent, state.params), memory, recovered)

    def num_steps(self, cohort: Cohort) -> Tensor:
        """Local steps of each client in a round -> [C]"""
        sizes = cohort.data.federation.train.sizes[cohort.host_ids].tolist()
        return cohort.tensor(torch.tensor([len(cut(size, self.local).steps) for size in sizes]))

    def read(self, change: Tensor, steps: Tensor) -> Tensor:
        """Estimated shares of the labels -> [C, L]

        Args:
          change: [C, L] of the output layer's bias, new minus old.
          steps: [C] number of local steps, at least 1.
        """
        steps = steps[:, None].to(change.dtype)
        shares = change / (self.local.lr * steps) + 1 / change.shape[1]
        positive = shares.clamp(min=0)
        return torch.where(steps == 1, shares, positive / positive.sum(1, keepdim=True))

    def measure(self, protocol: str, personal: Params, cohort: Cohort) -> dict[str, Tensor]:
        """True shares of the labels in each client's training examples [C, L]."""
        return {"labels": cohort.shares("label", cohort.data.federation.num_classes)}

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Estimated shares [num_clients, L], NaN for clients absent from the first round."""
        known = state.recovered.any(1, keepdim=True)
        return {"recovered": torch.where(known, state.recovered, torch.nan)}
