"""The best model so far, by its loss on validation data: a part of a method's state.

Keep a `Chosen` in the state, call `update` after every round (or more often), and predict with its
`params`. It is checkpointed with the state; later training does not change it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.journal import divergence_error
from fedlib.errors import DataError
from fedlib.federation import SPLITS
from fedlib.tree import Tree


class Chosen(NamedTuple):
    """The best model so far, with its loss and round."""

    params: Tree  # a copy
    loss: Tensor  # [] float64, the lowest so far; infinite before the first
    round: Tensor  # [] int64, number of rounds done at that time; -1 before the first

    def update(self, params: Tree, loss: Tensor, round: int) -> "Chosen":
        """`self` with a copy of `params`, if their `loss` [] is the lowest so far.

        Waits for the device.

        Raises:
          DivergedError: for a loss that is not finite.
        """
        if not loss.isfinite():
            raise divergence_error("the server", f"in round {round}", f"val loss is {loss.item()}")
        if not loss < self.loss:
            return self
        return self._replace(
            params=tree.clone(params),
            loss=loss.detach().to(self.loss, copy=True),
            round=torch.full_like(self.round, round),
        )

    def diagnostics(self) -> dict[str, Tensor]:
        """Round, loss and its split [3], under the name that metrics expect."""
        split = torch.full_like(self.loss, SPLITS.index("val"))
        return {"selected": torch.stack([self.round.double(), self.loss, split])}


def start(params: Tree) -> Chosen:
    """A `Chosen` with `params`, before the first choice."""
    infinite = tree.leaves(params)[0].new_full((), torch.inf, dtype=torch.float64)
    return Chosen(tree.clone(params), infinite, torch.full_like(infinite, -1, dtype=torch.int64))


def refuse_nothing_to_choose_by(server: Cohort, what: str) -> None:
    """Raises DataError for a server without validation examples, by which `what` is chosen."""
    if not server.data.federation.val.sizes[server.host_ids].all():
        raise DataError(
            f"the server has no validation examples, by which its {what} is chosen; use a "
            "partition that gives it some"
        )
