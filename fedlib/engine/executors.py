"""Executors run one client's computation on every client of a cohort.

Their results are equal except for rounding. `Loop` visits the clients one after the other (best for
models whose steps cost more than their launch, and for debugging). `Batched` runs all clients of a
wave in one call of `torch.func.vmap` (best for small models and on GPUs).
`fedlib.engine.graphs.Graphs` captures such calls on a GPU and replays them.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.batches import Batches, waves
from fedlib.engine.device import move, upload
from fedlib.engine.failure import note_errors
from fedlib.engine.room import give_back
from fedlib.engine.subnormal import flush_subnormal
from fedlib.engine.task import Batch
from fedlib.engine.waves import (
    Work,
    client_batches,
    lengthen,
    pad,
    put_block,
    scoring_batches,
    take_block,
    take_rows,
    wave_batches,
)
from fedlib.tree import Tree

TURNS = 8  # clients per worker before all workers wait for the slowest one

Advance = Callable[[Tree, Batch], Tree]  # (a client's carry, its batch) -> the carry after a step


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Threads of this process, which all its executors share."""
    return ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(1))


os.register_at_fork(after_in_child=_pool.cache_clear)  # where its threads do not exist


class Workers:
    """Threads that share the clients; each computes on one core."""

    def __init__(self, count: int):
        """`count` threads; 1 is the calling thread itself."""
        self._pool = None
        if count > 1:
            # Cores go to clients instead of to single operations, here and in the workers.
            torch.set_num_threads(1)
            self._pool = _pool(count)

    def visit(self, fn: Callable[[int], None], order: Iterable[int]) -> None:
        """Call `fn` with each number of `order`, without gradients and subnormal numbers."""

        def quietly(numbers: Iterable[int]) -> None:
            with torch.no_grad(), flush_subnormal():
                for number in numbers:
                    fn(number)

        if self._pool is None:
            return quietly(order)
        # Each call has its own copy of the context of fedlib.engine.ambient.
        calls = [self._pool.submit(copy_context().run, quietly, [number]) for number in order]
        try:
            for call in calls:
                call.result()
        finally:
            for call in calls:  # after an error in one of them
                call.cancel()
            wait(calls)


class Loop:
    """Client by client, or several clients at a time in separate threads.

    Every client's result has the same bits for any number of threads (`workers`). The values of
    clients have leaves [C, ...] or are `Rows`.

    Attributes:
      setting: the argument of `fedlib.engine.choice.choose` for an equal executor.
      replays: whether steps are captured: then all values that change must be in tensors.
      together: least number of clients for a call of `fold`, if there are so many.
      notes: further facts about the execution, for provenance; kept up to date.
    """

    name = setting = "loop"
    replays = False

    def __init__(self, workers: int = 1):
        self._workers = Workers(workers)
        self.notes = {"workers": workers}
        self.together = 1 if workers == 1 else TURNS * workers

    def lift(self, fn: Callable) -> Callable:
        """`fn` of one client, made ready for `fold`: still of one client, or of a wave of them."""
        return fn

    def fold(self, work: Work, drawn: list[Batches], batch_size: int, step: Callable,
             carry: Tree, per_client: tuple) -> Tree:  # fmt: skip
        """`carry = step(carry, *per_client, batch)` over each client's batches.

        `step` is lifted: see `lift`. It may change the carry, which consists of tensors, in place;
        do not use the passed carry afterwards.
        """
        device = work.data.device
        rows = tree.rows_in((carry, per_client))  # may differ in shape or layout
        begin = self._prepare(step, alike=not any(map(tree.leaves, rows)))
        with torch.no_grad():
            clients = tree.apart((carry, per_client), len(work.ids))

        def visit(position: int) -> None:
            views, args = clients[position]
            # A step may put new tensors into its carry, which must not be the dict of the views.
            own, args = move(tree.map(lambda x: x, views), device), move(args, device)
            client, batches = int(work.ids[position]), drawn[position]
            with note_errors(work.of(slice(position, position + 1))) as place:
                advance = begin(args)
                for batch in client_batches(work, client, batches, batch_size):
                    place.batch = batch
                    own = advance(own, batch)
            put_back(views, own)

        self._workers.visit(visit, _longest_first([len(batches.order) for batches in drawn]))
        return carry

    def _prepare(self, step: Callable, alike: bool) -> Callable[[tuple], Advance]:
        """A function of one client's arguments that returns its `Advance`.

        Args:
          alike: whether the clients' values differ in nothing but numbers.
        """
        return lambda args: lambda own, batch: step(own, *args, batch)

    def each(self, work: Work, fn: Callable, per_client: tuple, split: str,
             batch_size: int) -> Tensor:  # fmt: skip
        """`fn(*per_client, batch) -> [B, ...]` on every example of `split` -> [C, N, ...]"""
        if _may_pool(work, per_client):
            return _score_together(work, fn, per_client, split, batch_size, self._workers)
        sizes = work.data.federation.split(split).sizes[work.ids]
        parts = [None] * len(sizes)

        def visit(position: int) -> None:
            args = move(tree.take(per_client, position), work.data.device)
            rows = work.data.rows_of(split, int(work.ids[position]))
            index = torch.arange(len(rows), device=rows.device)
            scores = []
            with note_errors(work.of([position])) as place:
                for piece in scoring_batches(work, rows, index, batch_size):
                    place.batch = piece()
                    scores.append(fn(*args, place.batch))
            parts[position] = torch.cat(scores)

        # A model may not take an empty batch: it gets one only if nobody has an example.
        self._workers.visit(visit, _longest_first(sizes)[: max(1, np.count_nonzero(sizes))])
        return pad(parts, sizes)


class Batched:
    """All clients of a block in one call, block after block.

    Clients are put into blocks by their kind (see `fedlib.tree.kinds`) and their number of steps,
    so that those of a block finish at about the same time. On a CPU each worker takes a block. The
    blocks are the same for any number of workers, and so is every bit of the results.

    Attributes:
      chunk: largest number of clients in a block; None is all of them. If a block does not fit into
        a GPU's memory, it is halved for the rest of the run.
      notes: further facts about the execution, for provenance.
    """

    name = "batched"
    replays = False

    def __init__(self, chunk: int | None = None, workers: int = 1):
        self.chunk = chunk
        self._workers = Workers(workers)
        self.notes = {"workers": workers}

    @property
    def together(self) -> int:
        """`chunk`, or 1 for one block; not the number of workers: blocks affect the last bits."""
        return self.chunk or 1

    @property
    def setting(self) -> str:
        """See `Loop.setting`."""
        return self.name if self.chunk is None else f"{self.name}:{self.chunk}"

    def lift(self, fn: Callable) -> Callable:
        """See `Loop.lift`."""
        return partial(self._vmap, fn)

    @torch.no_grad()
    def fold(self, work, drawn, batch_size, step, carry, per_client):
        """See `Loop.fold`."""
        device = work.data.device

        def fold(block: np.ndarray, active: Tensor | None = None) -> Tree:
            own, args = move(take_block((carry, per_client), block, active), device)
            of_block = work.of(block), [drawn[c] for c in block]
            done = self._fold_block(*of_block, batch_size, step, own, args)
            return put_block(carry, block, active, done)

        blocks = self._blocks([len(batches.steps) for batches in drawn], work.kinds)
        if len(blocks) == 1 and device.type == "cpu":  # needs no copies: no block is tried twice
            with flush_subnormal():
                return fold(blocks[0])
        self._visit(lambda block: fold(block, upload(block, device)), blocks)
        return carry

    def _fold_block(self, work, drawn, batch_size, step, carry, per_client) -> Tree:
        """`fold` of the clients of one block, stacked; changes the carry in place."""
        merged = waves(drawn, batch_size, may_pad=work.task.may_pad)
        with note_errors(work) as place:
            for wave, active, batch in wave_batches(work, merged):
                place.batch = batch
                if len(wave.clients) == len(work.ids):  # everyone, in order
                    carry = step(carry, *per_client, batch)
                else:
                    own = step(tree.take(carry, active), *take_rows(per_client, active), batch)
                    tree.put_(carry, active, own)
        return carry

    @torch.no_grad()
    def each(self, work, fn, per_client, split, batch_size):
        """See `Loop.each`."""
        if _may_pool(work, per_client):
            return _score_together(work, fn, per_client, split, batch_size, self._workers)
        sizes = work.data.federation.split(split).sizes[work.ids]
        if not sizes.any() or work.task.mixes_examples:  # no examples, or none may be added
            return Loop().each(work, fn, per_client, split, batch_size)
        parts: list = [None] * len(sizes)

        def score(block: np.ndarray) -> None:
            device = work.data.device
            args = move(take_block(per_client, block, upload(block, device)), device)
            scores = self._score_block(work.of(block), fn, args, split, batch_size)
            for position, row in zip(block, scores, strict=True):
                parts[position] = row

        # Without the clients that have no examples: no function gets an empty batch.
        having = np.flatnonzero(sizes)
        kinds = None if work.kinds is None else work.kinds[having]
        self._visit(score, [having[block] for block in self._blocks(sizes[having], kinds)])
        return pad(parts, sizes)

    def _score_block(self, work, fn, per_client, split, batch_size) -> Iterable[Tensor]:
        """Scores of the clients of one block, [N, ...] for each."""
        sizes = work.data.federation.split(split).sizes[work.ids]
        owned = [work.data.rows_of(split, client) for client in work.ids.tolist()]
        width = int(sizes.max())
        rows = torch.stack([lengthen(r, width) for r in owned])

        def one_batch(x, y, index, *args):
            return fn(*args, Batch(x, y, index))

        parts = []
        for start in range(0, width, batch_size):
            # Only clients with examples here; the rows of the others are padding, removed below.
            having = np.flatnonzero(sizes > start)
            active = upload(having, rows.device)
            taken = rows[active, start : start + batch_size]
            index = torch.arange(start, start + taken.shape[1], device=rows.device)
            index = index.expand(len(active), -1).contiguous()
            args = take_rows(per_client, active)
            inputs = work.data.inputs(taken), work.data.y[taken], index
            with note_errors(work) as place:
                place.batch = Batch(*inputs)
                scores = self._vmap(one_batch, *inputs, *args)
            parts.append(
                scores.new_zeros(len(sizes), *scores.shape[1:]).index_copy(0, active, scores)
            )
        scores = torch.cat(parts, dim=1)
        return [row[:size] for row, size in zip(scores, sizes.tolist(), strict=True)]

    def _vmap(self, fn: Callable, *args: Tree) -> Tree:
        """`fn` over the leading dimension; broadcast tensors are shared, not batched."""

        def is_shared(x: object) -> bool:
            return isinstance(x, Tensor) and tree.is_broadcast(x)

        dims = tree.map(lambda x: 0 if isinstance(x, Tensor) and not is_shared(x) else None, args)
        args = tree.map(lambda x: x[0] if is_shared(x) else x, args)
        with ambient.stack_experts(True):
            return vmap(fn, in_dims=dims)(*args)

    def _blocks(self, costs: Sequence[int], kinds: np.ndarray | None = None) -> list[np.ndarray]:
        """Positions of the clients in blocks of about equal size, at most `chunk`; kind by kind."""
        if kinds is not None:
            costs = np.asarray(costs)
            members = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
            return [own[block] for own in members for block in self._blocks(costs[own])]
        count = 1 if self.chunk is None else -(-len(costs) // self.chunk)
        parts = np.array_split(np.array(_longest_first(costs), np.int64), count)
        return [np.sort(part) for part in parts]

    def _visit(self, fn: Callable[[np.ndarray], None], blocks: list[np.ndarray]) -> None:
        """Call `fn` with all blocks; halve a block that does not fit into memory."""

        def visit(block: np.ndarray) -> None:
            if not _had_room(fn, block):
                self.chunk = min(self.chunk or len(block), -(-len(block) // 2))
                self.notes["chunk_halved_to"] = self.chunk
                for half in np.array_split(block, 2):
                    visit(half)

        self._workers.visit(lambda number: visit(blocks[number]), range(len(blocks)))


Executor = Loop | Batched


def _may_pool(work: Work, per_client: tuple) -> bool:
    """Whether all clients compute with the same arguments, and each example for itself."""
    if work.task.mixes_examples:
        return False
    return not tree.rows_in(per_client) and all(map(tree.is_broadcast, tree.leaves(per_client)))


def _score_together(work: Work, fn: Callable, shared: tuple, split: str, batch_size: int,
            workers: Workers) -> Tensor:  # fmt: skip
    """Scores of shared models on the examples of all clients together -> [C, N, ...]"""
    sizes = work.data.federation.split(split).sizes[work.ids]
    rows = torch.cat([work.data.rows_of(split, client) for client in work.ids.tolist()])
    index = upload(np.concatenate([np.arange(n) for n in sizes]), rows.device)
    args = tree.take(shared, 0)
    pieces = scoring_batches(work, rows, index, batch_size)
    scores = [None] * len(pieces)

    def score(number: int) -> None:
        with note_errors(work) as place:
            place.batch = pieces[number]()
            scores[number] = fn(*args, place.batch)

    workers.visit(score, range(len(pieces)))
    return pad(list(torch.cat(scores).split(sizes.tolist())), sizes)


def put_back(views: Tree, values: Tree) -> None:
    """Copy `values` into `views`; they may be the same or share memory."""
    apart = tree.map(lambda view, new: new if new is view else new.clone(), views, values)
    tree.map(lambda view, new: view if new is view else view.copy_(new), views, apart)


def _longest_first(costs: Sequence[int]) -> list[int]:
    """Positions by falling cost, so that no worker starts the longest task last."""
    return np.argsort(-np.asarray(costs, np.int64), kind="stable").tolist()


def _had_room(fn: Callable[[np.ndarray], None], block: np.ndarray) -> bool:
    """Call `fn(block)`; False if the GPU had no room for it, but may have for a smaller block."""
    try:
        fn(block)
    except torch.OutOfMemoryError:
        if len(block) == 1:
            raise
    else:
        return True
    give_back()
    return False
