"""The record of a round, and errors for losses that are not finite.

If losses choose (the best model so far, an expert, the end of training), a loss that is not finite
must not count as "not better": an earlier choice would then hide the divergence.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedlib.errors import DivergedError
from fedlib.federation import CLIENTS

ADVICE = "a lower learning rate usually helps"


@dataclass
class Journal:
    """Traffic and training of a round, which methods need not pass on.

    Attributes:
      losses: per call of `fit`, mean training loss of each client [C].
      clients: per call of `fit`, the clients of these losses [C].
      down, up: numbers sent to and from ALL clients.
      examples: training examples in the local steps of ALL clients, with repeats.
      others: by group, the journal of `Cohort.everyone` of that group.
    """

    losses: list[Tensor] = field(default_factory=list)
    clients: list[np.ndarray] = field(default_factory=list)
    down: int = 0
    up: int = 0
    examples: int = 0
    others: dict[str, "Journal"] = field(default_factory=dict)

    def add(self, clients: np.ndarray, losses: Tensor) -> None:
        """Add training losses [C] of clients [C]."""
        self.losses.append(losses)
        self.clients.append(clients)

    def refuse_divergence(self, when: str, group: str = "seen") -> None:
        """Raise DivergedError unless all losses are finite; waits for the device.

        Args:
          when: such as "in round 3".
          group: the group to which this journal belongs.
        """
        for clients, losses in zip(self.clients, self.losses, strict=True):
            refuse_divergence(losses, clients, when, group=group)
        for group, journal in self.others.items():
            journal.refuse_divergence(when, group)

    @contextlib.contextmanager
    def watch(self, when: str) -> Iterator[None]:
        """Call `refuse_divergence` after this block, also after an error; then forget the losses.

        Raises:
          DivergedError: if a loss is not finite, in place of any other error of the block.
        """
        try:
            yield
        except Exception:
            self.refuse_divergence(when)
            raise
        self.refuse_divergence(when)
        self.losses, self.clients, self.others = [], [], {}


def refuse_divergence(
    losses: Tensor | np.ndarray,
    clients: np.ndarray,
    when: str,
    what: str = "training loss",
    *,
    group: str = "seen",
) -> None:
    """Raise DivergedError, which names the first client, unless all losses are finite.

    Waits for the device.

    Args:
      losses: [C] or [C, E].
      clients: [C] the clients of these losses.
      when: such as "in round 3".
      what: name of the losses.
      group: of the clients, one of `fedlib.federation.GROUPS`.
    """
    finite = torch.as_tensor(losses).isfinite().reshape(len(losses), -1)
    if finite.all():
        return
    row, column = (~finite).nonzero()[0].tolist()
    client, loss = int(clients[row]), losses.reshape(len(losses), -1)[row, column].item()
    who = f"client {client}" if group in CLIENTS else f"the {group}"
    raise divergence_error(who, when, f"{what} is {loss}")


def divergence_error(who: str, when: str, what: str) -> DivergedError:
    """The error for, say, "client 3", "in round 2" and "training loss is nan"."""
    return DivergedError(f"{who} diverged {when}: {what}; {ADVICE}")
