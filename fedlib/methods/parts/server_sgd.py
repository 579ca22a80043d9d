"""Training at the server on vectors that clients have sent.

Source: FedGH (Yi et al., ACM MM 2023) and FedTGP (Zhang et al., AAAI 2024), whose servers train a
header and prototypes; section 8 of fedlib/papers/pfedmoe/README.md.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from fedlib import tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import upload
from fedlib.engine.journal import Journal
from fedlib.engine.solvers import SGD, Solver, gradient
from fedlib.engine.task import Params


def solver(local: Solver, lr: float | None, epochs: int, batch_size: int) -> SGD:
    """Plain SGD, clipped as the clients' solver; its rate is theirs if `lr` is None.

    Raises:
      ValueError: for a value that a solver may not have.
    """
    lr = local.lr if lr is None else lr
    return SGD(lr=lr, epochs=epochs, batch_size=batch_size, clip_norm=local.clip_norm)


def train(
    loss: Callable, params: Params, examples: tuple[Tensor, ...], sgd: SGD,
    cohort: Cohort, stream: str,
) -> Params:  # fmt: skip
    """`params` after the epochs of a new `sgd`, at its constant rate.

    The cohort's journal gets the sum of the losses, which the end of the round checks.

    Args:
      loss: (params, *batch) -> [], on a batch of rows of the examples.
      params: not changed.
      examples: [M, ...] each; if M is 0, nothing is trained.
      cohort: of the round.
      stream: random stream of the shuffling.
    """
    plan = draw_batches(len(examples[0]), sgd, cohort.seed, cohort.round, stream)
    order = upload(plan.order, examples[0].device)
    params = tree.clone(params)
    buffers = sgd.init(params)
    total = examples[0].new_zeros(())
    for step in plan.steps:
        index = order[step.start : step.stop]
        grads, value = gradient(loss, params, *(x[index] for x in examples))
        total = total + value
        sgd.step_(params, sgd.clip(grads), buffers, sgd.lr, {})
    cohort.journal.others.setdefault("server", Journal()).add(np.zeros(1, np.int64), total[None])
    return params
