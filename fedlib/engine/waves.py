"""The batches that executors give to methods: of one client, or stacked and padded."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.batches import Batches, Wave
from fedlib.engine.device import DeviceData, channels_last, move, upload
from fedlib.engine.task import Batch, Task
from fedlib.tree import Rows, Tree

GATHERED = 1024  # examples of a client that are fetched and scaled together


class Work(NamedTuple):
    """Everything that an executor needs to know about a cohort."""

    task: Task
    data: DeviceData
    ids: np.ndarray  # [C] positions in the federation
    kinds: np.ndarray | None = None  # [C] see `fedlib.tree.kinds`
    round: int = 0  # as in `Cohort`
    stage: str = "work"  # name of the work, for errors

    def of(self, positions: np.ndarray | slice) -> "Work":
        """The same work of some of the clients, which are all of one kind."""
        return self._replace(ids=self.ids[positions], kinds=None)


def one_for_each(fn: Callable) -> Callable:
    """`fn`, which scores a batch; calls raise ValueError unless each example has a score."""

    def score(*args):
        if (found := fn(*args)).shape[:1] != args[-1].index.shape:
            raise ValueError(f"a score for each example must be [B, ...], got {[*found.shape]}")
        return found

    return score


def scoring_batches(
    work: Work, rows: Tensor, index: Tensor, size: int
) -> list[Callable[[], Batch]]:
    """Functions that make the batches of consecutive `rows`; one empty batch without rows."""
    if work.task.mixes_examples and len(rows) % size == 1:
        size -= 1  # leaves no example alone, unless there is only one, or size * (size - 1) + 1

    def piece(start: int) -> Batch:
        taken = rows[start : start + size]
        return Batch(_inputs(work, taken), work.data.y[taken], index[start : start + size])

    return [partial(piece, start) for start in range(0, max(len(rows), 1), size)]


def client_batches(work: Work, client: int, batches: Batches, batch_size: int) -> Iterator[Batch]:
    """The training batches of one client, in their order."""
    device = work.data.device
    order = upload(batches.order, device)
    keys = upload(batches.keys, device).unbind()
    rows = work.data.rows_of("train", client)[order]
    at_once = max(1, GATHERED // batch_size)
    for first in range(0, len(batches.steps), at_once):
        steps = batches.steps[first : first + at_once]
        begin, end = steps[0].start, steps[-1].stop
        x, y = _inputs(work, rows[begin:end]), work.data.y[rows[begin:end]]
        for (start, stop, epoch), key in zip(steps, keys[first : first + at_once], strict=True):
            cut = slice(start - begin, stop - begin)
            yield Batch(x[cut], y[cut], order[start:stop], key=key, epoch=epoch, train=True)


def _inputs(work: Work, rows: Tensor) -> Tensor:
    """Inputs of pool rows; channels last in memory if that makes convolutions faster."""
    x = work.data.inputs(rows)
    on_cpu = x.device.type == "cpu"  # a GPU gains only with batch normalisation
    if x.dim() == 4 and work.task.channels_last and (on_cpu or work.task.statistics):
        return channels_last(x)
    return x


def pad(parts: list[Tensor | None], sizes: np.ndarray) -> Tensor:
    """Ragged scores, one [n, ...] per client -> [C, N, ...], zeros after the last example.

    Args:
      parts: None for a client without examples, but not for all clients.

    Raises:
      ValueError: if the shape of an example's scores differs between clients.
    """
    known = [part for part in parts if part is not None]
    shapes = {tuple(part.shape[1:]) for part in known}
    if len(shapes) > 1:
        raise ValueError(
            f"scores of an example differ in shape between clients, {sorted(shapes)}; score what "
            "has one shape, such as log-probabilities"
        )
    width = int(sizes.max(initial=0))
    padded = known[0].new_zeros(len(parts), width, *known[0].shape[1:])
    for row, part in zip(padded, parts, strict=True):
        if part is not None:
            row[: len(part)] = part
    return padded


def lengthen(rows: Tensor, width: int) -> Tensor:
    """`rows` [N] repeated to [width]"""
    return rows.repeat(-(-width // len(rows)))[:width]


def wave_batches(work: Work, merged: list[Wave]) -> Iterator[tuple[Wave, Tensor, Batch]]:
    """(wave, its clients [K], its batch [K, B, ...]) in turn; uploads all indices together."""
    if not merged:
        return
    parts = [(w.clients, w.index.ravel(), w.keys, w.sizes) for w in merged]
    lengths = [len(part) for wave in parts for part in wave]
    flat = upload(np.concatenate([part for wave in parts for part in wave]), work.data.device)
    cut, first = iter(flat.split(lengths)), first_rows(work)
    for wave in merged:
        active, index, keys, sizes = (next(cut) for _ in range(4))
        index = index.reshape(wave.index.shape)
        sizes = sizes if wave.is_padded else None
        yield wave, active, wave_batch(work.data, first[active], index, keys, sizes, wave.epoch)


def first_rows(work: Work) -> Tensor:
    """Start of each client's rows in the training split -> [C] int64"""
    return upload(work.data.federation.train.offsets[work.ids], work.data.device)


def wave_batch(data: DeviceData, first: Tensor, index: Tensor, keys: Tensor,
               sizes: Tensor | None, epoch: int | Tensor) -> Batch:  # fmt: skip
    """The training batches of K clients, stacked.

    Args:
      first: [K] start of each client's rows.
      index: [K, B] positions in each client's shard.
      keys: [K].
      sizes: [K] real examples of each batch; None if all are.
      epoch: of all these batches; [K], the same for all, if a step is replayed.
    """
    rows, mask = data.rows["train"][first[:, None] + index], None
    if sizes is not None:
        places = torch.arange(index.shape[1], device=index.device)
        mask = (places < sizes[:, None]).to(data.dtype)
    return Batch(data.inputs(rows), data.y[rows], index, mask, keys, epoch, train=True)


def take_rows(per_client: Tree, active: Tensor) -> Tree:
    """The rows of the clients `active`; broadcast tensors stay views."""
    return tree.map_clients(lambda x: _take_rows(x, active), per_client)


def _take_rows(x: Tree, active: Tensor) -> Tree:
    if not isinstance(x, Tensor):
        return tree.take(x, active) if type(x) is Rows else x
    return x[:1].expand(len(active), *x.shape[1:]) if tree.is_broadcast(x) else x[active]


def take_block(values: Tree, block: np.ndarray, active: Tensor | None) -> Tree:
    """Values of the clients at the positions `block`, all of one kind, stacked: [K, ...]

    Args:
      values: `Rows` are stacked, everything else is as in `take_rows`; what is in host memory stays
        there, and of `Rows` what is not.
      block: in host memory, to avoid waiting for the device.
      active: the same on the device; None if these are all clients: then stacks are not copied.
    """

    def pick(x: Tree) -> Tree:
        if type(x) is Rows:
            rows = [x[c] for c in block.tolist()]
            return tree.stack(rows if active is None else move(rows, active.device))
        if active is None:
            return x
        here = not isinstance(x, Tensor) or x.device == active.device
        return _take_rows(x, active if here else torch.from_numpy(block))

    return tree.map_clients(pick, values)


def put_block(values: Tree, block: np.ndarray, active: Tensor | None, done: Tree) -> Tree:
    """`values`, which are tensors, with the results `done` of a block (`take_block`), in place.

    `Rows` stay on their devices.
    """

    def put(x: Tree, new: Tree) -> Tree:
        if type(x) is Rows:
            new = tree.map(lambda old, stacked: stacked.to(old.device), x[block[0]], new)
            for position, client in enumerate(block.tolist()):
                tree.map(Tensor.copy_, x[client], tree.take(new, position))
            return x
        return new if active is None else x.index_copy_(0, active, new.to(x.dtype))

    return tree.map_clients(put, values, done)
