"""The examples of each step of a client: a function of (seed, round, stream, client) alone.

NumPy only. The order of a client's examples does not depend on the rest of the cohort, on its
order, or on the executor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedlib import streams
from fedlib.engine.solvers import Solver
from fedlib.errors import DataError


class Step(NamedTuple):
    """One mini-batch of one client: a slice of its order of examples."""

    start: int
    stop: int
    epoch: int  # local epoch of this call, from 0

    @property
    def size(self) -> int:
        """Examples in the batch."""
        return self.stop - self.start


class Cut(NamedTuple):
    """The cut of a client's examples into steps, in one call of `fit`."""

    epochs: int  # passes over the shard that the steps need
    steps: tuple[Step, ...]
    examples: int  # in all steps


@dataclass(frozen=True)
class Batches:
    """The shuffled examples of one client in one call of `fit`, cut into steps.

    Attributes:
      order: [epochs * N] int64, positions in the client's shard, epoch after epoch.
      keys: one int64 per step, for dropout.
      steps: the mini-batches, in order.
      examples: number of examples in all steps; a repeated one counts again.
    """

    order: np.ndarray
    keys: np.ndarray
    steps: tuple[Step, ...]
    examples: int


def draw_batches(num_examples: int, solver: Solver, *stream: int | str) -> Batches:
    """Shuffled epochs of a client with `num_examples` examples, cut into steps."""
    return _draw_batches(num_examples, solver, streams.generator(*stream))


def draw_cohort(
    sizes: Sequence[int], solver: Solver, *stream: int | str, clients: Sequence[int]
) -> list[Batches]:
    """`draw_batches(size, solver, *stream, client)` of each of the `clients`, but faster."""
    draws = streams.generators(*stream, each=clients)
    return [_draw_batches(size, solver, draw) for size, draw in zip(sizes, draws, strict=True)]


def _draw_batches(num_examples: int, solver: Solver, draw: np.random.Generator) -> Batches:
    epochs, steps, examples = cut(num_examples, solver)
    orders = [draw.permutation(num_examples) for _ in range(epochs)]
    # As draw.integers(0, 2**62) gives them, in a tenth of the time.
    keys = (draw.bit_generator.random_raw(len(steps)) >> 2).view(np.int64)
    return Batches(orders[0] if epochs == 1 else np.concatenate(orders), keys, steps, examples)


def cut(num_examples: int, solver: Solver) -> Cut:
    """The steps of a client with `num_examples` examples, without their order."""
    return _cut(num_examples, solver.batch_size, solver.epochs, solver.steps, solver.drop_last)


@lru_cache(maxsize=1024)  # clients of one size have the same steps in every round
def _cut(
    num_examples: int, batch_size: int, epochs: int, number: int | None, drop_last: bool
) -> Cut:
    if number is not None and num_examples:  # as many epochs as so many steps need
        full, rest = divmod(num_examples, batch_size)
        epochs = -(-number // (full if rest == 0 or (drop_last and full) else full + 1))
    steps = []
    for epoch in range(epochs):
        first = epoch * num_examples
        for start in range(0, num_examples, batch_size):
            size = min(batch_size, num_examples - start)
            if size < batch_size and drop_last and start > 0:
                continue
            steps.append(Step(first + start, first + start + size, epoch))
    steps = tuple(steps[:number])
    return Cut(epochs, steps, sum(step.size for step in steps))


def refuse_single_examples(sizes: Sequence[int], clients: Sequence[int], solver: Solver) -> None:
    """Raise DataError for a batch of one example, which batch normalisation cannot train on."""
    for size, client in zip(sizes, clients, strict=True):
        if any(step.size == 1 for step in cut(size, solver).steps):
            raise DataError(
                f"client {client} has {size} training examples, so batches of {solver.batch_size} "
                "leave one alone, which batch normalisation cannot train on; use another "
                "batch_size or drop_last, or leave out a client of one example"
            )


class Wave(NamedTuple):
    """One step of several clients at once.

    All batches of a wave have the same number of real examples, unless it `is_padded`: then the
    examples of short batches are repeated, and a mask marks the real ones.
    """

    clients: np.ndarray  # [K] positions in the cohort
    index: np.ndarray  # [K, B] positions in each client's shard
    keys: np.ndarray  # [K]
    sizes: np.ndarray  # [K] real examples
    epoch: int

    @property
    def is_padded(self) -> bool:
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
    counts = [len(batches.steps) for batches in drawn]
    if not sum(counts):
        return []
    start, stop, epochs = np.array([step for batches in drawn for step in batches.steps]).T
    clients, sizes = np.repeat(np.arange(len(drawn)), counts), stop - start
    keys = np.concatenate([batches.keys for batches in drawn])
    orders = np.concatenate([batches.order for batches in drawn])
    start += np.cumsum([0, *(len(batches.order) for batches in drawn)])[clients]

    def wave(chosen: np.ndarray) -> Wave:
        width = sizes[chosen].max()
        columns = np.arange(width) % sizes[chosen, None]
        index = orders[start[chosen, None] + columns]
        return Wave(clients[chosen], index, keys[chosen], sizes[chosen], int(epochs[chosen[0]]))

    merged = []
    for epoch in range(epochs.max() + 1):
        full = np.flatnonzero((epochs == epoch) & (sizes == batch_size))
        # The number of each step among its client's: 0, 1, ..., 0, 1, ...
        turns = np.arange(len(full)) - np.searchsorted(clients[full], clients[full])
        merged += [wave(full[turns == turn]) for turn in range(turns.max(initial=-1) + 1)]
        # A short batch is its epoch's last, so at most one per client is left.
        short = np.flatnonzero((epochs == epoch) & (sizes < batch_size))
        alike = [short] if may_pad else [short[sizes[short] == n] for n in np.unique(sizes[short])]
        merged += [wave(group) for group in alike if len(group)]
    return merged
