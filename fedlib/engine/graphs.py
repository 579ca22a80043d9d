"""Batched steps that are captured once and replayed: one launch instead of hundreds of kernels.

A step of `Batched` on a GPU is a few hundred small kernels, which take longer to launch than to
run. A CUDA graph launches them together, on the addresses with which it was captured. So a
*program* keeps buffers for everything that a step reads and writes: the clients' carry and
arguments, the tensors that its function closed over, and the positions of a batch's examples. A
round copies its values in, replays the graph of each wave's shape, and copies the result out. To
make shapes repeat, the number of lanes of a wave is a power of two; unused lanes train a scratch
client, whose result is dropped.

A shape is captured at its third use. Before that, and if capturing fails, the same function is
called on the same buffers. A CPU always calls the function, so everything but the capturing can run
there. Steps that `fedlib.engine.fingerprint` cannot compare run as in `Batched`. `notes` counts
both kinds and gives the reasons.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.batches import Batches, Wave, waves
from fedlib.engine.device import DeviceData, upload
from fedlib.engine.executors import Batched, put_back
from fedlib.engine.failure import note_errors
from fedlib.engine.fingerprint import Opaque, walk
from fedlib.engine.waves import Work, first_rows, take_rows, wave_batch
from fedlib.errors import brief
from fedlib.tree import Tree

WARM = 2  # calls of a shape before it is captured, in which libraries initialise themselves
PROGRAMS = 8  # those used last are kept; each has memory for a block of clients


class Graphs(Batched):
    """See the module's docstring."""

    name = "graphs"
    replays = True

    def __init__(self, chunk: int | None = None, workers: int = 1):
        super().__init__(chunk)  # the buffers are for one thread
        self._programs: dict[Hashable, Program] = {}
        self._shared: tuple | None = None  # memory and stream of all captures
        self.notes |= {"captured_shapes": 0, "replays": 0, "not_replayed": Counter()}

    def _fold_block(self, work, drawn, batch_size, step, carry, per_client) -> Tree:
        """See `Batched._fold_block`."""
        try:
            program, closed = self._program(work, step, carry, per_client)
        except Opaque as reason:
            self.notes["not_replayed"][str(reason)] += 1
            return super()._fold_block(work, drawn, batch_size, step, carry, per_client)
        try:
            with note_errors(work):
                program.load(closed, carry, per_client, first_rows(work))
                program.run(drawn, batch_size, work.task.may_pad)
        except torch.OutOfMemoryError:
            self._programs.clear()  # frees buffers, to make room for a smaller block
            raise
        return program.result()

    def _program(self, work, step, carry, per_client) -> tuple["Program", list[Tensor]]:
        """(program of these steps, the tensors that the function closes over this time)."""
        closed: list[Tensor] = []

        def note(x: Tensor) -> Tensor:
            if x.device.type != work.data.device.type:
                raise Opaque("a tensor that is not on the device")
            closed.append(x)
            return x

        function, _ = walk(step, note, (Batched,))
        shapes, _ = walk((carry, per_client), lambda x: x)
        key = function, shapes, id(work.task), id(work.data), len(work.ids)
        if key in self._programs:
            self._programs[key] = self._programs.pop(key)  # the last used is last
        else:
            if len(self._programs) == PROGRAMS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = Program(work, step, self)
        return self._programs[key], closed

    def capture(self, body: Callable[[], None], device: torch.device) -> Callable[[], None]:
        """A function with the effect of `body`, captured if the device can capture.

        Raises:
          RuntimeError: if nothing was captured, as `body` may have run elsewhere instead.
        """
        self.notes["captured_shapes"] += 1
        if device.type != "cuda":
            return body
        # Graphs share their memory, because none leaves a result in it; that needs one stream.
        self._shared = self._shared or (torch.cuda.graph_pool_handle(), torch.cuda.Stream(device))
        graph, (pool, stream) = torch.cuda.CUDAGraph(), self._shared
        try:
            # After an error `torch.cuda.graph` stays on the stream; `stream` always leaves it.
            with (
                warnings.catch_warnings(record=True) as told,
                torch.cuda.device(device),
                torch.cuda.stream(stream),
                torch.cuda.graph(graph, pool, stream),
            ):
                warnings.simplefilter("always")
                body()
        except RuntimeError as error:
            self._shared = None  # PyTorch would refuse another capture into the same memory
            cause = error.__context__ or error  # the end of a capture only says that it failed
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            self.notes["captured_shapes"] -= 1
            self.notes["not_replayed"][brief(cause)] += 1
            return body
        if any("Graph is empty" in str(line.message) for line in told):
            raise RuntimeError(f"the captured step has no kernels on {device}")
        return graph.replay


class Program:
    """A step with buffers for everything that it reads and writes, and its captured shapes.

    Buffers with a row per client have a further row, that of the scratch client.
    """

    def __init__(self, work: Work, step: Callable, executor: Graphs):
        self.task, self.data = work.task, work.data  # kept, so that no other object gets their ids
        self.executor, self.size = executor, len(work.ids)
        self.closed: list[Tensor] = []
        _, self.step = walk(step, self._keep_copy, (Batched,))
        self.carry = self.args = self.first = None
        self.shapes: dict[tuple, Shape] = {}

    def load(self, closed: list[Tensor], carry: Tree, per_client: tuple, first: Tensor) -> None:
        """Copy a round's values into the buffers; the first call makes the buffers."""
        if self.carry is None:
            self.carry, self.args, self.first = tree.map(
                _with_scratch, (carry, tuple(per_client), first)
            )
        tree.map(_fill, (self.carry, self.args, self.first), (carry, tuple(per_client), first))
        for buffer, values in zip(self.closed, closed, strict=True):
            buffer.copy_(values)

    def run(self, drawn: list[Batches], batch_size: int, may_pad: bool) -> None:
        """Run all steps of all clients."""
        merged = waves(drawn, batch_size, may_pad)
        if not merged:
            return
        widths = [batch_size if may_pad else wave.index.shape[1] for wave in merged]
        flat = [self._lanes(wave, width) for wave, width in zip(merged, widths, strict=True)]
        values = upload(np.concatenate(flat), self.data.device).split([len(x) for x in flat])
        for wave, width, inputs in zip(merged, widths, values, strict=True):
            padded = bool((wave.sizes < width).any())
            everyone = len(wave.clients) == self.size
            key = self._lane_count(wave), width, padded, everyone
            if key not in self.shapes:
                self.shapes[key] = Shape(partial(self._step, *key), inputs)
            self.shapes[key].call(inputs, self.executor, self.data)

    def result(self) -> Tree:
        """A copy of the clients' carry."""
        return tree.clone(tree.take(self.carry, slice(self.size)))

    def _step(self, lanes: int, width: int, padded: bool, everyone: bool, inputs: Tensor) -> None:
        """Run one wave on the buffers."""
        active, index, keys, sizes, epoch = inputs.split([lanes, lanes * width, lanes, lanes, 1])
        epoch = epoch.expand(lanes)
        first, index = self.first[active], index.reshape(lanes, width)
        batch = wave_batch(self.data, first, index, keys, sizes if padded else None, epoch)
        if everyone:
            views = tree.take(self.carry, slice(self.size))
            args = tree.map(lambda x: x[: self.size] if isinstance(x, Tensor) else x, self.args)
            put_back(views, self.step(views, *args, batch))
        else:
            own = tree.take(self.carry, active)
            done = self.step(own, *take_rows(self.args, active), batch)
            tree.put_(self.carry, active, done)

    def _lane_count(self, wave: Wave) -> int:
        return min(1 << (len(wave.clients) - 1).bit_length(), self.size)

    def _lanes(self, wave: Wave, width: int) -> np.ndarray:
        """A wave's numbers in one row, padded to `width` examples and with scratch lanes."""
        more = self._lane_count(wave) - len(wave.clients)
        index = np.pad(wave.index, ((0, more), (0, width - wave.index.shape[1])))
        clients = np.pad(wave.clients, (0, more), constant_values=self.size)
        sizes = np.pad(wave.sizes, (0, more), constant_values=1)
        keys = np.pad(wave.keys, (0, more))
        return np.concatenate([clients, index.ravel(), keys, sizes, [wave.epoch]])

    def _keep_copy(self, x: Tensor) -> Tensor:
        self.closed.append(x.clone())
        return self.closed[-1]


class Shape:
    """A function that runs waves of one shape, with a buffer for their numbers."""

    def __init__(self, step: Callable[[Tensor], None], like: Tensor):
        self.inputs = torch.empty_like(like)
        self.body = partial(step, self.inputs)
        self.calls, self.replay = 0, None

    def call(self, inputs: Tensor, executor: Graphs, data: DeviceData) -> None:
        """Run one wave."""
        self.inputs.copy_(inputs)
        if self.replay is None and self.calls == WARM:
            self.replay = executor.capture(self.body, data.device)
        self.calls += 1
        if self.replay is None:
            self.body()
        else:
            executor.notes["replays"] += 1
            self.replay()


def _with_scratch(x: Tensor) -> Tensor:
    """A buffer for `x` [C, ...] -> [C + 1, ...]; a single row if `x` is broadcast.

    A value that is not a tensor is part of the program, and stays.
    """
    if not isinstance(x, Tensor):
        return x
    if tree.is_broadcast(x):
        return x.new_empty(1, *x.shape[1:]).expand(len(x) + 1, *x.shape[1:])
    return x.new_empty(len(x) + 1, *x.shape[1:])


def _fill(buffer: Tensor, x: Tensor) -> None:
    """Copy `x` into its buffer; the scratch client gets a copy of the first row."""
    if not isinstance(x, Tensor):
        return
    if tree.is_broadcast(x):
        buffer[:1].copy_(x[:1])
        return
    buffer[:-1].copy_(x)
    buffer[-1:].copy_(x[:1])
