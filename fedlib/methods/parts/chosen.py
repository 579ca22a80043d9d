"""The best model so far by a loss on validation data: a part of a method's state.

Put a `Chosen` into the state, `renewed` after every round (or more often), and predict with its
`params`. It is checkpointed with the state; what is trained later does not touch it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.journal import diverged
from fedlib.federation import SPLITS
from fedlib.tree import Tree


class Chosen(NamedTuple):
    """A model and why it was kept."""

    params: Tree  # a copy of its own
    loss: Tensor  # [] float64, the least so far; infinite before the first
    round: Tensor  # [] int64, rounds done when it was found; -1 before the first
    split: Tensor  # [] int64, number in `fedlib.federation.SPLITS` of what decides

    def renewed(self, params: Tree, loss: Tensor, round: int) -> "Chosen":
        """With a copy of `params`, if their `loss` [] is less than ever before.

        Waits for the device.

        Raises:
          DivergedError: for a loss that is not finite.
        """
        if not loss.isfinite():
            what = f"{SPLITS[int(self.split)]} loss is {loss.item()}"
            raise diverged("the server", f"in round {round}", what)
        if not loss < self.loss:
            return self
        return self._replace(
            params=tree.clone(params),
            loss=loss.detach().to(self.loss, copy=True),
            round=torch.full_like(self.round, round),
        )

    def diagnostics(self) -> dict[str, Tensor]:
        """Round, loss and split for a result to say, under the name that metrics know [3]"""
        return {"selected": torch.stack([x.double() for x in (self.round, self.loss, self.split)])}


def start(params: Tree, split: str = "val") -> Chosen:
    """`params` until something better is found; chosen by a loss on the examples of `split`."""
    device = tree.leaves(params)[0].device
    number = torch.tensor(SPLITS.index(split), device=device)
    infinite = torch.tensor(torch.inf, dtype=torch.float64, device=device)
    return Chosen(tree.clone(params), infinite, torch.full_like(number, -1), number)
