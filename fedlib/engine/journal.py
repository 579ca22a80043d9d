"""What happened in a round, and the refusal of losses that are not finite.

Wherever a loss chooses (the best model so far, an expert, a moment to stop) a loss that is not
finite must not pass for "not better": what was chosen before would stand for what diverged.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedlib.errors import DivergedError
from fedlib.federation import CLIENTS

ADVICE = "a lower learning rate usually helps"


@dataclass
class Journal:
    """What happened in a round that no method needs to hand on.

    Attributes:
      losses: per call of `fit`, mean training loss of each client [C].
      clients: whose each of these losses are [C].
      down, up: numbers sent to and from ONE client; the mean where clients differ in it.
      examples: training examples in the local steps of ALL clients, counting repeats.
      whole: whether the trained models of all clients existed at once.
      others: by group, what happened in the round to `Cohort.everyone` of that group.
    """

    losses: list[Tensor] = field(default_factory=list)
    clients: list[np.ndarray] = field(default_factory=list)
    down: int | float = 0
    up: int | float = 0
    examples: int = 0
    whole: bool = False
    others: dict[str, "Journal"] = field(default_factory=dict)

    def add(self, clients: np.ndarray, losses: Tensor, whole: bool = True) -> None:
        """Training losses [C] of these clients [C], and whether all of their models were there."""
        self.whole |= whole
        self.losses.append(losses)
        self.clients.append(clients)

    def refuse_diverged(
        self, when: str, group: str = "seen", since: Callable[[int], str] = lambda client: ""
    ) -> None:
        """Raise DivergedError unless all losses are finite; waits for the device.

        Args:
          when: as in "in round 3".
          group: whose journal this is.
          since: what to add on a client.
        """
        for clients, losses in zip(self.clients, self.losses, strict=True):
            refuse_diverged(losses, clients, when, group=group, since=since)
        for group, journal in self.others.items():
            journal.refuse_diverged(when, group)

    @contextlib.contextmanager
    def watched(self, when: str) -> Iterator[None]:
        """Refuse what diverges in this block, also where it led to another error; then forget it.

        Raises:
          DivergedError: as `refuse_diverged` does.
        """
        try:
            yield
        except Exception:
            self.refuse_diverged(when)
            raise
        self.refuse_diverged(when)
        self.losses, self.clients, self.others = [], [], {}


def refuse_diverged(
    losses: Tensor | np.ndarray,
    clients: np.ndarray,
    when: str,
    what: str = "training loss",
    *,
    group: str = "seen",
    since: Callable[[int], str] = lambda client: "",
) -> None:
    """Raise DivergedError, which names the first client, unless all losses are finite.

    Waits for the device.

    Args:
      losses: [C] or [C, E].
      clients: [C] whose they are.
      when: as in "in round 3".
      what: of which data or model the losses are.
      group: the clients', one of `fedlib.federation.GROUPS`.
      since: what to add on a client.
    """
    finite = torch.as_tensor(losses).isfinite().reshape(len(losses), -1)
    if finite.all():
        return
    row, column = (~finite).nonzero()[0].tolist()
    client, loss = int(clients[row]), losses.reshape(len(losses), -1)[row, column].item()
    who = f"client {client}" if group in CLIENTS else f"the {group}"
    raise diverged(who, when, f"{what} is {loss}{since(client)}")


def diverged(who: str, when: str, what: str) -> DivergedError:
    """The error, of `who` "client 3", `when` "in round 2" and `what` "training loss is nan"."""
    return DivergedError(f"{who} diverged {when}: {what}; {ADVICE}")
