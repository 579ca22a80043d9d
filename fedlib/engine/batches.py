"""The examples of each step of a client: a function of (seed, round, stream, client) alone.

NumPy only. The order of a client's examples does not depend on the rest of the cohort, on its
order, or on the executor.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedlib import streams
from fedlib.engine.solvers import Solver
from fedlib.environment import memory
from fedlib.errors import ConfigError

STEP_BYTES = 160  # of a `Step`, its numbers and its key
ALWAYS = 2**30  # bytes that every machine has


class Step(NamedTuple):
    """One mini-batch of one client: a slice of its order of examples."""

    start: int
    stop: int
    epoch: int  # local epoch of this call, from 0

    @property
    def size(self) -> int:
        """Examples in the batch."""
        return self.stop - self.start


@dataclass(frozen=True)
class Batches:
    """The shuffled examples of one client in one call of `fit`, cut into steps.

    Attributes:
      order: [epochs * N] int64, positions in the client's shard, epoch after epoch.
      keys: one int64 per step, for dropout.
      steps: the mini-batches, in order.
    """

    order: np.ndarray
    keys: np.ndarray
    steps: tuple[Step, ...]


def draw_batches(num_examples: int, solver: Solver, *stream: int | str) -> Batches:
    """Shuffled epochs of a client with `num_examples` examples, cut into steps.

    Raises:
      ConfigError: for more steps than fit into this machine's memory.
    """
    _refuse_endless(num_examples, solver)
    draw = streams.generator(*stream)
    orders, steps = [], []
    for epoch in range(_epochs(num_examples, solver)):
        orders.append(draw.permutation(num_examples))
        first = epoch * num_examples
        for start in range(0, num_examples, solver.batch_size):
            size = min(solver.batch_size, num_examples - start)
            if size < solver.batch_size and solver.drop_last and start > 0:
                continue
            steps.append(Step(first + start, first + start + size, epoch))
    steps = tuple(steps[: solver.steps])
    keys = draw.integers(0, 2**62, size=len(steps), dtype=np.int64)
    order = np.concatenate(orders) if orders else np.empty(0, np.int64)
    return Batches(order, keys, steps)


def _epochs(num_examples: int, solver: Solver) -> int:
    """Epochs to draw: as declared, or as many as the declared number of steps needs."""
    if solver.steps is None or num_examples == 0:
        return solver.epochs
    full, rest = divmod(num_examples, solver.batch_size)
    per_epoch = full if rest == 0 or (solver.drop_last and full) else full + 1
    return -(-solver.steps // per_epoch)


def _refuse_endless(num_examples: int, solver: Solver) -> None:
    epochs = _epochs(num_examples, solver)
    steps = epochs * -(-num_examples // solver.batch_size)
    wanted = STEP_BYTES * steps + 8 * epochs * num_examples
    if wanted > ALWAYS and wanted > (has := memory()):
        raise ConfigError(
            f"{steps:.3g} local steps in {epochs:.3g} epochs: to list their batches would take "
            f"about {wanted / 2**30:.3g} GiB, and this machine has {has / 2**30:.3g} GiB; lower "
            "steps or epochs"
        )


class Wave(NamedTuple):
    """One step of several clients at once.

    All batches of a wave have the same number of real examples, unless it is `padded`: then the
    examples of short batches are repeated, and a mask marks the real ones.
    """

    clients: np.ndarray  # [K] positions in the cohort
    index: np.ndarray  # [K, B] positions in each client's shard
    keys: np.ndarray  # [K]
    sizes: np.ndarray  # [K] real examples
    epoch: int

    @property
    def padded(self) -> bool:
        """Whether some batch is shorter than the wave."""
        return bool((self.sizes < self.index.shape[1]).any())


def waves(drawn: list[Batches], batch_size: int, may_pad: bool) -> list[Wave]:
    """The steps of all clients, merged epoch by epoch: full batches first, then the short ones.

    Args:
      drawn: one per client.
      batch_size: of a full batch.
      may_pad: whether batches of different sizes may share a wave. Must be False for models with
        batch statistics, because padding would change them.

    Returns:
      Waves that visit every client's steps in the client's own order.
    """
    merged = []
    for epoch in range(max((p.steps[-1].epoch + 1 for p in drawn if p.steps), default=0)):
        own = [[(k, s) for k, s in enumerate(p.steps) if s.epoch == epoch] for p in drawn]
        full = [[item for item in items if item[1].size == batch_size] for items in own]
        for t in range(max(map(len, full))):
            group = [(c, *items[t]) for c, items in enumerate(full) if t < len(items)]
            merged.append(_wave(drawn, group, batch_size, epoch))
        # A short batch is its epoch's last, so at most one per client is left.
        short = [
            (c, *item) for c, items in enumerate(own) for item in items if item[1].size < batch_size
        ]
        for group in [short] if may_pad and short else _by_size(short):
            width = max(step.size for _, _, step in group)
            merged.append(_wave(drawn, group, width, epoch))
    return merged


def _by_size(group: list) -> list[list]:
    sizes = sorted({step.size for _, _, step in group})
    return [[item for item in group if item[2].size == size] for size in sizes]


def _wave(drawn: list[Batches], group: list, width: int, epoch: int) -> Wave:
    index = np.empty((len(group), width), np.int64)
    columns = np.arange(width)
    for row, (client, _, step) in enumerate(group):
        drawn[client].order[step.start : step.stop].take(columns, out=index[row], mode="wrap")
    clients = np.array([client for client, _, _ in group])
    keys = np.array([drawn[client].keys[number] for client, number, _ in group])
    sizes = np.array([step.size for _, _, step in group])
    return Wave(clients, index, keys, sizes, epoch)
