"""Adam at the server, on the clients' differences.

A difference is the parameters sent minus the parameters returned. The server averages the clients'
differences and uses the average as a gradient in one step of Adam.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
Algorithm 1 and "generalised FedAvg"; section 2 of fedlib/papers/fedmix/README.md. Adam has the
default hyper-parameters and bias correction of Kingma and Ba, ICLR 2015, not those of FedAdam
(Reddi et al., ICLR 2021).
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from fedlib import tree
from fedlib.engine.solvers import Adam
from fedlib.tree import Tree


@dataclass(frozen=True, kw_only=True)
class ServerAdam:
    """Adam on differences, as `torch.optim.Adam` on gradients.

    Attributes:
      lr: step size, at least 0: about the most that a parameter moves in a round. The paper has
        Adam's default, 1e-3.
    """

    lr: float = 1e-3

    def init(self, params: Tree, num_experts: int | None = None) -> Tree:
        """Memory before the first step: moments like `params` and a step count, all zero.

        Args:
          params: a tree, or a single tensor.
          num_experts: E, if the leaves are [E, ...] and some steps are for some rows only; each row
            then has its own step count.
        """
        memory = self._adam.init({"params": params})
        return memory if num_experts is None else memory | {"t": memory["t"].repeat(num_experts)}

    def step(
        self, params: Tree, difference: Tree, memory: Tree, active: Tensor | None = None
    ) -> tuple[Tree, Tree]:
        """(params, memory) after one step; the arguments are left as they are.

        Args:
          params: before the step.
          difference: old minus new, averaged over clients; shaped like `params`.
          memory: see `init`.
          active: [E] bool, the rows of leaves [E, ...] that step; None is all. The other rows keep
            parameters, moments and count.
        """
        named = {"params": params}, {"params": difference}
        stepped, renewed = self._adam.step(*named, memory, self.lr)
        after = stepped["params"], renewed
        return after if active is None else tree.where(active, after, (params, memory))

    @cached_property
    def _adam(self) -> Adam:
        return Adam(lr=self.lr)
