"""How one client's computation is run on every client of a cohort; never what it computes.

Two executors with equal results: `Loop` visits the clients one after the other (best for models
whose steps cost more than their launch, and the one to debug in); `Batched` runs all clients of a
wave in one call of `torch.func.vmap` (best for small models and on GPUs).
"""

from collections.abc import Callable, Iterator
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
from fedlib.federation import SPLITS, Federation
from fedlib.task import Batch, Task
from fedlib.tree import Tree

GATHERED = 1024  # examples of a client that are fetched and scaled at once


class DeviceData:
    """A federation on the device: the pool once, and the rows of every client and split.

    Attributes:
      federation: the same, in host memory.
      dtype, device: of the inputs that batches carry.
    """

    def __init__(self, federation: Federation, dtype: torch.dtype, device: torch.device):
        self.federation, self.dtype, self.device = federation, dtype, device
        self.x = torch.from_numpy(federation.x).to(device)
        self.y = torch.from_numpy(federation.y).to(device)
        self.rows = {
            name: torch.from_numpy(federation.split(name).rows).to(device) for name in SPLITS
        }
        shape = (-1, *[1] * (federation.x.ndim - 2))
        self._scale = self._shift = None
        if federation.mean:
            mean, std = (np.asarray(v, np.float64) for v in (federation.mean, federation.std))
            as_tensor = torch.from_numpy(1 / (255 * std)), torch.from_numpy(-mean / std)
            self._scale, self._shift = (v.to(device, dtype).reshape(shape) for v in as_tensor)

    def inputs(self, rows: Tensor) -> Tensor:
        """Inputs of pool rows, scaled: any shape [...] of rows -> [..., *input shape]"""
        x = self.x[rows].to(self.dtype)
        return x if self._scale is None else x * self._scale + self._shift

    def owned(self, split: str, client: int) -> Tensor:
        """Pool rows of one client in one split -> [N] int64"""
        offsets = self.federation.split(split).offsets
        return self.rows[split][offsets[client] : offsets[client + 1]]


class Work(NamedTuple):
    """Everything an executor needs to know of a cohort."""

    task: Task
    data: DeviceData
    ids: np.ndarray  # [C] rows of the federation


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


class Loop:
    """Client by client, or several at a time in threads of their own.

    Attributes:
      workers: threads, each computing with one core. Every client's result is the same for any
        number of them, bit by bit.
    """

    name = "loop"

    def __init__(self, workers: int = 1):
        self._pool = None
        if workers > 1:
            # Cores go to clients instead of to single operations, here and in the workers.
            torch.set_num_threads(1)
            self._pool = ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1))

    def lift(self, fn: Callable) -> Callable:
        """See `Executor.lift`."""
        return fn

    def fold(self, work, plans, batch_size, step, carry, per_client):
        """See `Executor.fold`."""

        def visit(position: int) -> None:
            views = Carry(tree.take(carry.stacked, position), carry.rows[position])
            own, args = views, tree.take(per_client, position)
            client, plan = int(work.ids[position]), plans[position]
            for batch in _batches(work, client, plan, batch_size):
                own = step(own, *args, batch)
            _write(views, own)

        costs = [len(plan.order) for plan in plans]
        self._visit(visit, sorted(range(len(plans)), key=costs.__getitem__, reverse=True))
        return carry

    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        if _all_shared(per_client):
            return _pooled(work, fn, per_client, split, batch_size, self._visit)
        sizes = work.data.federation.split(split).sizes[work.ids]
        parts = [None] * len(sizes)

        def visit(position: int) -> None:
            args = tree.take(per_client, position)
            rows = work.data.owned(split, int(work.ids[position]))
            index = torch.arange(len(rows), device=rows.device)
            pieces = _pieces(work, rows, index, batch_size)
            parts[position] = torch.cat([fn(*args, piece()) for piece in pieces])

        self._visit(visit, np.argsort(-sizes, kind="stable").tolist())
        return _pad(parts, sizes)

    def _visit(self, fn: Callable[[int], None], order: list[int]) -> None:
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


class Batched:
    """All clients of a wave in one call.

    Attributes:
      chunk: clients per call; None is all of them. Lower it when memory runs out.
    """

    name = "batched"

    def __init__(self, chunk: int | None = None):
        self.chunk = chunk

    def lift(self, fn: Callable) -> Callable:
        """See `Executor.lift`."""
        return lambda *args: self._vmap(fn, *args)

    @torch.no_grad()
    def fold(self, work, plans, batch_size, step, carry, per_client):
        """See `Executor.fold`."""
        carry = carry._replace(rows=tree.stack(carry.rows))
        # Batch statistics would see padding, so such models only share waves of equal sizes.
        for wave in waves(plans, batch_size, may_pad=not work.task.statistics):
            active = torch.from_numpy(wave.clients).to(work.data.device)
            index = torch.from_numpy(wave.index).to(work.data.device)
            keys = torch.from_numpy(wave.keys).to(work.data.device)
            mask = _mask(wave, work.data) if wave.padded else None
            rows = self._rows(work, wave, index)
            x, y = work.data.inputs(rows), work.data.y[rows]
            batch = Batch(x, y, index, mask, keys, wave.epoch, train=True)
            if len(active) == len(work.ids):  # everyone, in order
                carry = step(carry, *per_client, batch)
            else:
                own = step(tree.take(carry, active), *_take_rows(per_client, active), batch)
                tree.put_(carry, active, own)
        # Rows of their own: a view would keep the stack in memory for as long as any row lives.
        rows = [tree.clone(tree.take(carry.rows, c)) for c in range(len(work.ids))]
        return carry._replace(rows=rows)

    @torch.no_grad()
    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        if _all_shared(per_client):
            return _pooled(work, fn, per_client, split, batch_size)
        sizes = work.data.federation.split(split).sizes[work.ids]
        if not sizes.any():  # there is nothing to batch
            return Loop().each(work, fn, per_client, split, batch_size)
        owned = [work.data.owned(split, client) for client in work.ids.tolist()]
        width = int(sizes.max(initial=0))
        rows = torch.stack([_lengthen(r, width) for r in owned])

        def one_batch(x, y, index, *args):
            return fn(*args, Batch(x, y, index))

        parts = []
        for start in range(0, width, batch_size):
            # Only the clients that have examples here; the others' rows are padding, cut below.
            active = torch.from_numpy(np.flatnonzero(sizes > start)).to(rows.device)
            taken = rows[active, start : start + batch_size]
            index = torch.arange(start, start + taken.shape[1], device=rows.device)
            index = index.expand(len(active), -1).contiguous()
            args = _take_rows(per_client, active)
            inputs = work.data.inputs(taken), work.data.y[taken], index
            scores = self._vmap(one_batch, *inputs, *args)
            parts.append(
                scores.new_zeros(len(sizes), *scores.shape[1:]).index_copy(0, active, scores)
            )
        scores = torch.cat(parts, dim=1)
        lengths = torch.from_numpy(sizes).to(rows.device)[:, None]
        real = torch.arange(width, device=rows.device) < lengths
        return scores * real.reshape(*real.shape, *[1] * (scores.dim() - 2))

    def _vmap(self, fn: Callable, *args: Tree) -> Tree:
        """`fn` over the leading dimension; what is broadcast is shared, not batched."""
        dims = tree.map(lambda x: 0 if _is_per_client(x) else None, args)
        args = tree.map(
            lambda x: x[0] if isinstance(x, Tensor) and tree.is_broadcast(x) else x, args
        )
        with context.stacked_experts(True):
            return vmap(fn, in_dims=dims, chunk_size=self.chunk)(*args)

    @staticmethod
    def _rows(work: Work, wave, index: Tensor) -> Tensor:
        """Pool rows of a wave's batches -> [K, B]"""
        offsets = work.data.federation.train.offsets[work.ids[wave.clients]]
        first = torch.from_numpy(offsets).to(index.device)[:, None]
        return work.data.rows["train"][first + index]


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


def choose(name: str, task: Task) -> Executor:
    """The executor called `name`: "loop", "batched", or "auto" for what suits model and device.

    Batching pays where launching a step costs more than computing it: on a GPU, and for small
    models without convolutions on a CPU.

    Raises:
      ValueError: for an unknown name.
    """
    if name == "auto":
        name = "batched" if task.device.type == "cuda" or task.is_light else "loop"
    if name not in EXECUTORS:
        raise ValueError(f"executor must be auto, {' or '.join(EXECUTORS)}, got {name!r}")
    if name == "loop" and task.device.type == "cpu":
        return Loop(workers=torch.get_num_threads())
    return EXECUTORS[name]()


EXECUTORS: dict[str, type] = {"loop": Loop, "batched": Batched}


def _all_shared(per_client: tuple) -> bool:
    """Whether every client would compute with the same arguments."""
    return all(tree.is_broadcast(x) for x in tree.leaves(per_client))


def _in_turn(fn: Callable[[int], None], order: list[int]) -> None:
    for number in order:
        fn(number)


def _pooled(work: Work, fn: Callable, shared: tuple, split: str, batch_size: int,
            visit: Callable = _in_turn) -> Tensor:  # fmt: skip
    """Score shared models on everybody's examples at once, ignoring whose they are."""
    sizes = work.data.federation.split(split).sizes[work.ids]
    rows = torch.cat([work.data.owned(split, client) for client in work.ids.tolist()])
    index = torch.from_numpy(np.concatenate([np.arange(n) for n in sizes])).to(rows.device)
    args = tree.take(shared, 0)
    pieces = _pieces(work, rows, index, batch_size)
    scores = [None] * len(pieces)

    def score(number: int) -> None:
        scores[number] = fn(*args, pieces[number]())

    visit(score, list(range(len(pieces))))
    return _pad(list(torch.cat(scores).split(sizes.tolist())), sizes)


def _pieces(work: Work, rows: Tensor, index: Tensor, size: int) -> list[Callable[[], Batch]]:
    """Consecutive pieces of `rows`, made when called; without rows there is one, empty, piece."""

    def piece(start: int) -> Batch:
        taken = rows[start : start + size]
        return Batch(_arranged(work, taken), work.data.y[taken], index[start : start + size])

    return [partial(piece, start) for start in range(0, max(len(rows), 1), size)]


def _batches(work: Work, client: int, plan: ClientPlan, batch_size: int) -> Iterator[Batch]:
    """The training batches of one client, in the order of its plan."""
    device = work.data.device
    order = torch.from_numpy(plan.order).to(device)
    keys = torch.from_numpy(plan.keys).to(device).unbind()
    rows = work.data.owned("train", client)[order]
    at_once = max(1, GATHERED // batch_size)
    for first in range(0, len(plan.steps), at_once):
        steps = plan.steps[first : first + at_once]
        begin, end = steps[0].start, steps[-1].stop
        x, y = _arranged(work, rows[begin:end]), work.data.y[rows[begin:end]]
        for (start, stop, epoch), key in zip(steps, keys[first : first + at_once], strict=True):
            cut = slice(start - begin, stop - begin)
            yield Batch(x[cut], y[cut], order[start:stop], key=key, epoch=epoch, train=True)


def _write(views: Tree, values: Tree) -> None:
    """Put `values` where `views` are, which they may be or share memory with."""
    apart = tree.map(lambda view, new: new if new is view else new.clone(), views, values)
    tree.map(lambda view, new: view if new is view else view.copy_(new), views, apart)


def _arranged(work: Work, rows: Tensor) -> Tensor:
    """Inputs of pool rows; channels last where batch normalisation makes that the faster layout."""
    x = work.data.inputs(rows)
    if x.dim() == 4 and work.task.statistics:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def _pad(parts: list[Tensor], sizes: np.ndarray) -> Tensor:
    """Ragged scores, one [n, ...] per client -> [C, N, ...], zeros where there is no example."""
    width = int(sizes.max(initial=0))
    padded = parts[0].new_zeros(len(parts), width, *parts[0].shape[1:])
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


def _lengthen(rows: Tensor, width: int) -> Tensor:
    """`rows` [N] repeated to [width]; a client without any gets row 0, whose scores are cut."""
    if len(rows) == 0:
        return rows.new_zeros(width)
    return rows.repeat(-(-width // len(rows)))[:width]


def _mask(wave, data: DeviceData) -> Tensor:
    """1 for real examples of a wave, 0 for padding -> [K, B]"""
    sizes = torch.from_numpy(wave.sizes).to(data.device)[:, None]
    return (torch.arange(wave.index.shape[1], device=data.device) < sizes).to(data.dtype)


def _take_rows(per_client: Tree, active: Tensor) -> Tree:
    """Rows of what differs between clients; what is shared stays a view."""
    return tree.map(
        lambda x: x[:1].expand(len(active), *x.shape[1:]) if tree.is_broadcast(x) else x[active],
        per_client,
    )


def _is_per_client(x: object) -> bool:
    return isinstance(x, Tensor) and not tree.is_broadcast(x)
