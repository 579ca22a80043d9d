"""How one client's computation is run on every client of a cohort; never what it computes.

Executors with equal results, but for rounding: `Loop` visits the clients one after the other (best
for models whose steps cost more than their launch, and the one to debug in); `Batched` runs all
clients of a wave in one call of `torch.func.vmap` (best for small models and on GPUs); and
`fedlib.graphs.Graphs` records such calls on a GPU and replays them.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedlib import context, tree
from fedlib.batches import ClientPlan, waves
from fedlib.device import moved, upload
from fedlib.feeding import (
    Work,
    client_batches,
    lengthen,
    pad,
    scoring_batches,
    take_rows,
    wave_batches,
)
from fedlib.task import Batch, Task
from fedlib.tree import Tree


class Carry(NamedTuple):
    """What is folded over the batches: of all clients together, or of one of them.

    Attributes:
      stacked: leaves [C, ...].
      rows: a tree for each client, for what should not be copied to and from a stack.
    """

    stacked: Tree
    rows: list[Tree]


class Executor(Protocol):
    """Runs per-client functions; see the module's docstring."""

    name: str
    setting: str  # what `choose` makes an equal one from
    replays: bool  # whether steps are recorded: then what changes has to be in tensors
    notes: dict  # what provenance says of the execution besides the setting; kept up to date

    def lift(self, fn: Callable) -> Callable:
        """`fn`, written for one client, as `fold` wants it: for one client, or a wave of them."""
        ...

    def fold(self, work: Work, plans: list[ClientPlan], batch_size: int, step: Callable,
             carry: Carry, per_client: tuple) -> Carry:  # fmt: skip
        """`carry = step(carry, *per_client, batch)` over each client's batches.

        `step` is lifted: see `lift`. It may change the carry in place; what was passed is used up.
        """
        ...

    def each(self, work: Work, fn: Callable, per_client: tuple, split: str,
             batch_size: int) -> Tensor:  # fmt: skip
        """`fn(*per_client, batch) -> [B, ...]` on every example of `split` -> [C, N, ...]"""
        ...


class Workers:
    """Threads that share out clients, each computing with one core.

    Attributes:
      count: how many; 1 is the calling thread itself.
    """

    def __init__(self, count: int = 1):
        self.count = count
        self._pool = None
        if count > 1:
            # Cores go to clients instead of to single operations, here and in the workers.
            torch.set_num_threads(1)
            self._pool = ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(1))

    def visit(self, fn: Callable[[int], None], order: Iterable[int]) -> None:
        """Call `fn`, without recording gradients, with all numbers in `order`."""

        def quietly(number: int) -> None:
            with torch.no_grad():
                fn(number)

        if self._pool is None:
            for number in order:
                quietly(number)
            return
        # Each call has its own copy of what fedlib.context holds: that is kept by thread.
        calls = [self._pool.submit(copy_context().run, quietly, number) for number in order]
        try:
            for call in calls:
                call.result()
        finally:
            for call in calls:  # after an error in one of them
                call.cancel()
            wait(calls)


class Loop:
    """Client by client, or several at a time in threads of their own.

    Attributes:
      workers: threads. Every client's result is the same for any number of them, bit by bit.
      notes: what provenance says of the execution besides `setting`.
    """

    name = setting = "loop"
    replays = False

    def __init__(self, workers: int = 1):
        self._workers = Workers(workers)
        self.notes = {"workers": workers}

    def lift(self, fn: Callable) -> Callable:
        """See `Executor.lift`."""
        return fn

    def fold(self, work, plans, batch_size, step, carry, per_client):
        """See `Executor.fold`."""

        def visit(position: int) -> None:
            views = Carry(tree.take(carry.stacked, position), carry.rows[position])
            own, args = moved(views, work.data.device), tree.take(per_client, position)
            client, plan = int(work.ids[position]), plans[position]
            for batch in client_batches(work, client, plan, batch_size):
                own = step(own, *args, batch)
            put_back(views, own)

        self._workers.visit(visit, _longest_first([len(plan.order) for plan in plans]))
        return carry

    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        if _all_shared(per_client):
            return _pooled(work, fn, per_client, split, batch_size, self._workers)
        sizes = work.data.federation.split(split).sizes[work.ids]
        parts = [None] * len(sizes)

        def visit(position: int) -> None:
            args = tree.take(per_client, position)
            rows = work.data.owned(split, int(work.ids[position]))
            index = torch.arange(len(rows), device=rows.device)
            pieces = scoring_batches(work, rows, index, batch_size)
            parts[position] = torch.cat([fn(*args, piece()) for piece in pieces])

        self._workers.visit(visit, _longest_first(sizes))
        return pad(parts, sizes)


class Batched:
    """All clients of a block in one call, block after block.

    Clients are put into blocks by their number of steps, so that those of a block finish at about
    the same time. Workers, on a CPU, take a block each; the blocks are the same for any number of
    workers, and so is every bit of the results.

    Attributes:
      chunk: clients in a block, at most; None is all of them. Halved when a block does not fit
        into a GPU's memory, for the rest of the run.
      notes: what provenance says of the execution besides `setting`.
    """

    name = "batched"
    replays = False

    def __init__(self, chunk: int | None = None, workers: int = 1):
        self.chunk = chunk
        self._workers = Workers(workers)
        self.notes = {"workers": workers}

    @property
    def setting(self) -> str:
        """What `choose` makes this executor from."""
        return self.name if self.chunk is None else f"{self.name}:{self.chunk}"

    def lift(self, fn: Callable) -> Callable:
        """See `Executor.lift`."""
        return partial(self._vmap, fn)

    @torch.no_grad()
    def fold(self, work, plans, batch_size, step, carry, per_client):
        """See `Executor.fold`."""
        device = work.data.device

        def fold(block: np.ndarray) -> None:
            everyone = upload(block, device)
            own = Carry(tree.take(carry.stacked, everyone), [carry.rows[c] for c in block])
            args = work._replace(ids=work.ids[block]), [plans[c] for c in block], batch_size, step
            done = self._fold_block(*args, own, take_rows(per_client, everyone))
            tree.put_(carry.stacked, everyone, done.stacked)
            for position, row in zip(block, done.rows, strict=True):
                carry.rows[position] = row

        blocks = self._blocks([len(plan.steps) for plan in plans])
        if len(blocks) == 1 and device.type == "cpu":  # no copies: nothing is tried twice
            return self._fold_block(work, plans, batch_size, step, carry, per_client)
        self._visit(fold, blocks)
        return carry

    def _fold_block(self, work, plans, batch_size, step, carry, per_client) -> Carry:
        """`fold` of clients who are batched together; uses up the carry."""
        device = work.data.device
        homes = tree.map(lambda x: x.device, carry.rows[0])
        carry = carry._replace(rows=stack_rows(carry.rows, device))
        # Batch statistics would see padding, so such models only share waves of equal sizes.
        merged = waves(plans, batch_size, may_pad=not work.task.statistics)
        for wave, active, batch in wave_batches(work, merged):
            if len(wave.clients) == len(work.ids):  # everyone, in order
                carry = step(carry, *per_client, batch)
            else:
                own = step(tree.take(carry, active), *take_rows(per_client, active), batch)
                tree.put_(carry, active, own)
        return carry._replace(rows=unstack_rows(carry.rows, len(work.ids), homes))

    @torch.no_grad()
    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        if _all_shared(per_client):
            return _pooled(work, fn, per_client, split, batch_size, self._workers)
        sizes = work.data.federation.split(split).sizes[work.ids]
        if not sizes.any():  # there is nothing to batch
            return Loop().each(work, fn, per_client, split, batch_size)
        parts: list = [None] * len(sizes)

        def score(block: np.ndarray) -> None:
            args = take_rows(per_client, upload(block, work.data.device))
            own = work._replace(ids=work.ids[block])
            for position, row in zip(
                block, self._score_block(own, fn, args, split, batch_size), strict=True
            ):
                parts[position] = row

        # Who has no examples would make a block without any: no function sees an empty batch.
        having = np.flatnonzero(sizes)
        self._visit(score, [having[block] for block in self._blocks(sizes[having])])
        scored = next(part for part in parts if part is not None)
        empty = scored[:0]
        return pad([empty if part is None else part for part in parts], sizes)

    def _score_block(self, work, fn, per_client, split, batch_size) -> Iterable[Tensor]:
        """Scores of clients who are batched together, [N, ...] of each."""
        sizes = work.data.federation.split(split).sizes[work.ids]
        owned = [work.data.owned(split, client) for client in work.ids.tolist()]
        width = int(sizes.max())
        rows = torch.stack([lengthen(r, width) for r in owned])

        def one_batch(x, y, index, *args):
            return fn(*args, Batch(x, y, index))

        parts = []
        for start in range(0, width, batch_size):
            # Only the clients that have examples here; the others' rows are padding, cut below.
            active = upload(np.flatnonzero(sizes > start), rows.device)
            taken = rows[active, start : start + batch_size]
            index = torch.arange(start, start + taken.shape[1], device=rows.device)
            index = index.expand(len(active), -1).contiguous()
            args = take_rows(per_client, active)
            inputs = work.data.inputs(taken), work.data.y[taken], index
            scores = self._vmap(one_batch, *inputs, *args)
            parts.append(
                scores.new_zeros(len(sizes), *scores.shape[1:]).index_copy(0, active, scores)
            )
        scores = torch.cat(parts, dim=1)
        return [row[:size] for row, size in zip(scores, sizes.tolist(), strict=True)]

    def _vmap(self, fn: Callable, *args: Tree) -> Tree:
        """`fn` over the leading dimension; what is broadcast is shared, not batched."""
        dims = tree.map(lambda x: 0 if _is_per_client(x) else None, args)
        args = tree.map(
            lambda x: x[0] if isinstance(x, Tensor) and tree.is_broadcast(x) else x, args
        )
        with context.stacked_experts(True):
            return vmap(fn, in_dims=dims)(*args)

    def _blocks(self, costs: Sequence[int]) -> list[np.ndarray]:
        """Positions of the clients, in as many blocks of about the same size as `chunk` wants."""
        count = 1 if self.chunk is None else -(-len(costs) // self.chunk)
        if count == 1:
            return [np.arange(len(costs))]
        parts = np.array_split(np.array(_longest_first(costs), np.int64), count)
        return [np.sort(part) for part in parts]

    def _visit(self, fn: Callable[[np.ndarray], None], blocks: list[np.ndarray]) -> None:
        """Call `fn` with all blocks; with the halves of those that do not fit into memory."""

        def visit(number: int) -> None:
            todo = [blocks[number]]
            while todo:
                block = todo.pop()
                if not _fits(fn, block):
                    self.chunk = min(self.chunk or len(block), -(-len(block) // 2))
                    self.notes["chunk_halved_to"] = self.chunk
                    todo += np.array_split(block, 2)[::-1]

        self._workers.visit(visit, range(len(blocks)))


def gradient(loss: Callable, params: Tree, *args: Tree) -> tuple[Tree, Tensor]:
    """(gradient, value) of a lifted `loss(params, *args)` with respect to `params`.

    Clients are independent, so the gradient of the sum of their losses [K] is everybody's own.
    """
    inputs = tree.map(lambda x: x.detach().requires_grad_(), params)
    with torch.enable_grad():
        value = loss(inputs, *args)
        total = value.sum() if value.dim() else value
        flat = tree.leaves(inputs)
        grads = torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True)
    return tree.unflatten(grads, params), value.detach()


def choose(wanted: str, task: Task) -> Executor:
    """The executor that `wanted` names, with a worker for each thread of PyTorch on a CPU.

    Args:
      wanted: "loop", "batched" or "graphs", the latter two with a number of clients per block if
        need be ("batched:64"); or "auto" for `rule`.

    Raises:
      ValueError: for anything else.
    """
    name, colon, chunk = (rule(task) if wanted == "auto" else wanted).partition(":")
    sized = name in NAMES[1:] and chunk.isdecimal() and int(chunk) > 0
    if name not in NAMES or (colon and not sized):
        known = f"auto, {', '.join(NAMES[:-1])} or {NAMES[-1]}"
        raise ValueError(f"executor must be {known}, got {wanted!r}")
    on_cpu = task.device.type == "cpu"
    workers = torch.get_num_threads() if on_cpu else 1
    if name == "loop":
        return Loop(workers)
    block = int(chunk) if chunk else BLOCK if on_cpu else None
    if name == "batched":
        return Batched(block, workers)
    from fedlib.graphs import Graphs  # only runs that ask for it depend on its code

    return Graphs(block, workers)


def rule(task: Task) -> str:
    """What suits a model and a device in general; `fedlib.calibrate` measures it for one machine.

    Batching pays where launching a step costs more than computing it: on a GPU but for the largest
    models, and for small models without convolutions on a CPU.
    """
    if task.device.type == "cuda":
        return "loop" if task.is_heavy else "batched"
    return "batched" if task.is_light else "loop"


NAMES = ("loop", "batched", "graphs")
BLOCK = 160  # clients that are batched together on a CPU: some loss for one worker, work for two


def _all_shared(per_client: tuple) -> bool:
    """Whether every client would compute with the same arguments."""
    return all(tree.is_broadcast(x) for x in tree.leaves(per_client))


def _pooled(work: Work, fn: Callable, shared: tuple, split: str, batch_size: int,
            workers: Workers) -> Tensor:  # fmt: skip
    """Score shared models on everybody's examples at once, ignoring whose they are."""
    sizes = work.data.federation.split(split).sizes[work.ids]
    rows = torch.cat([work.data.owned(split, client) for client in work.ids.tolist()])
    index = upload(np.concatenate([np.arange(n) for n in sizes]), rows.device)
    args = tree.take(shared, 0)
    pieces = scoring_batches(work, rows, index, batch_size)
    scores = [None] * len(pieces)

    def score(number: int) -> None:
        scores[number] = fn(*args, pieces[number]())

    workers.visit(score, range(len(pieces)))
    return pad(list(torch.cat(scores).split(sizes.tolist())), sizes)


def put_back(views: Tree, values: Tree) -> None:
    """Put `values` where `views` are, which they may be or share memory with."""
    apart = tree.map(lambda view, new: new if new is view else new.clone(), views, values)
    tree.map(lambda view, new: view if new is view else view.copy_(new), views, apart)


def _longest_first(costs: Sequence[int]) -> list[int]:
    """Positions by cost, so that no worker starts the longest task last."""
    return np.argsort(-np.asarray(costs, np.int64), kind="stable").tolist()


def _fits(fn: Callable[[np.ndarray], None], block: np.ndarray) -> bool:
    """Call `fn(block)`; False if the GPU has no room for it, though a smaller one may fit."""
    try:
        fn(block)
    except torch.OutOfMemoryError:
        if len(block) == 1:
            raise
    else:
        return True
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return False


def stack_rows(rows: list[Tree], device: torch.device) -> Tree:
    """The clients' trees as one on `device`, leaves [C, ...]"""
    return moved(tree.stack(rows), device)


def unstack_rows(stacked: Tree, count: int, homes: Tree) -> list[Tree]:
    """Undo `stack_rows`: a tree for each client, on the devices `homes`.

    Rows of their own: a view would keep the stack in memory for as long as any row lives.
    """
    rows = [tree.clone(tree.take(stacked, c)) for c in range(count)]
    return [tree.map(lambda x, home: x.to(home), row, homes) for row in rows]


def _is_per_client(x: object) -> bool:
    return isinstance(x, Tensor) and not tree.is_broadcast(x)
