"""Natural clients of the data set, with their official parts.

Source: FedEM (Marfoq et al., NeurIPS 2021), synthetic data and Shakespeare of the official code;
  pFedMM's specification, sections 3.9 and 3.10.
"""

from dataclasses import dataclass

import numpy as np

from fedlib.data.checks import Checked
from fedlib.data.draws import divide, draw_some, last_are_unseen
from fedlib.data.examples import TEST, TRAIN, VAL, Dealt, Examples
from fedlib.errors import ConfigError
from fedlib.federation import CLIENTS, GROUPS


@dataclass(frozen=True)
class Natural(Checked):
    """The natural clients: roles of a play, or clients of a synthetic federation.

    A data set's server and probe come last, and are never left out.

    Attributes:
      order: of the clients: "given" by the data set, or "random".
      val_fraction: of a client's training examples, drawn at random, which also shuffles the
        others; None keeps the data set's parts.
      unseen_fraction: of the clients, the last ones in this order.
    """

    needs = ("owner", "part")

    order: str = "given"
    val_fraction: float | None = None
    unseen_fraction: float = 0.0

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients; the pool has their examples in the order of the clients.

        Raises:
          ConfigError: for a `val_fraction` if the data set has a validation part.
        """
        train, val, test = (examples.of_owner(part) for part in (TRAIN, VAL, TEST))
        if self.val_fraction is not None:
            if any(map(len, val)):
                raise ConfigError("val_fraction must be absent: the data set has a validation part")
            halves = [divide(rows, 1 - self.val_fraction, seed) for rows in train]
            train, val = map(list, zip(*halves, strict=True))
        others = _others(examples)
        chosen = list(range(examples.num_owners - len(others)))
        if self.order == "random":
            chosen = draw_some(chosen, 1.0, seed)
        group = last_are_unseen(len(chosen), self.unseen_fraction)
        if others:
            chosen, group = [*chosen, *others], np.append(group, examples.group[others])
        parts = ([rows[c] for c in chosen] for rows in (train, val, test))
        cluster = None if examples.cluster is None else examples.cluster[chosen]
        dealt = Dealt(examples, *parts, group)._replace(cluster=cluster, known=True)
        return _pack(dealt.without_the_untestable())


def _others(examples: Examples) -> list[int]:
    """The owners that are no clients, which are the last ones."""
    groups = () if examples.group is None else examples.group
    return [c for c, group in enumerate(groups) if GROUPS[group] not in CLIENTS]


def _pack(dealt: Dealt) -> Dealt:
    """The same clients, with adjacent examples in the pool."""
    own = [np.sort(np.concatenate(parts)) for parts in zip(*dealt[1:4], strict=True)]
    order = np.concatenate(own)
    if np.array_equal(order, np.arange(len(dealt.examples.y))):
        return dealt
    place = np.empty(len(dealt.examples.y), np.int64)
    place[order] = np.arange(len(order))
    train, val, test = ([place[rows] for rows in part] for part in dealt[1:4])
    return dealt._replace(examples=dealt.examples.take(order), train=train, val=val, test=test)
