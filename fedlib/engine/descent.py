"""One local step of training, which `Cohort.fit` folds over a client's batches."""

from collections.abc import Callable

from torch import Tensor

from fedlib.engine.solvers import Solver, gradient


def descent(
    loss: Callable, local: Solver, common: list[float] | None, lr_scale: dict[str, float]
) -> Callable:
    """The step that an executor folds in `Cohort.fit`: one step of descent on `loss`, in place.

    Args:
      loss: `loss(weights, statistics, *args, batch)`, lifted by the executor.
      local: the solver.
      common: learning rate of each epoch if it is the same for all clients; None if each client has
        a row of rates.
      lr_scale: see `Cohort.fit`.
    """

    def step(carry, rates, *args_and_batch):
        weights, statistics, total, count, buffers = carry
        batch = args_and_batch[-1]
        grads, value = gradient(loss, weights, statistics, *args_and_batch)
        grads = local.clip(grads, stacked=value.dim() > 0)
        if isinstance(batch.epoch, Tensor):
            epoch = batch.epoch[:1].clamp(max=local.epochs - 1)
            lr = rates.index_select(-1, epoch).squeeze(-1)
        else:
            epoch = min(batch.epoch, local.epochs - 1)
            lr = rates[..., epoch] if common is None else common[epoch]
        local.step_(weights, grads, buffers, lr, lr_scale)
        total += value * batch.size
        count += batch.size
        return carry

    return step
