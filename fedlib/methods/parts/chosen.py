"""The best model so far, by its loss on validation data: a part of a method's state.

Keep a `Chosen` in the state, call `renewed` after every round (or more often), and predict with its
`params`. It is checkpointed with the state; later training does not change it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.journal import diverged
from fedlib.federation import SPLITS
from fedlib.tree import Tree


class Chosen(NamedTuple):
    """The best model so far, with its loss and round."""

    params: Tree  # a copy
    loss: Tensor  # [] float64, the lowest so far; infinite before the first
    round: Tensor  # [] int64, number of rounds done at that time; -1 before the first
    split: Tensor  # [] int64, the split of the loss, as an index of `fedlib.federation.SPLITS`

    def renewed(self, params: Tree, loss: Tensor, round: int) -> "Chosen":
        """`self` with a copy of `params`, if their `loss` [] is the lowest so far.

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
        """Round, loss and split [3], under the name that metrics expect."""
        return {"selected": torch.stack([x.double() for x in (self.round, self.loss, self.split)])}


def start(params: Tree, split: str = "val") -> Chosen:
    """A `Chosen` with `params`, before the first choice; losses are on the examples of `split`."""
    device = tree.leaves(params)[0].device
    number = torch.tensor(SPLITS.index(split), device=device)
    infinite = torch.tensor(torch.inf, dtype=torch.float64, device=device)
    return Chosen(tree.clone(params), infinite, torch.full_like(number, -1), number)
