"""Steps whose operations are noted once, and repeated without autograd.

A step of a small model has about fifty tiny operations, and spends most of its time on modules, the
graph of the backward pass and trees of tensors. So when a step's function and shapes come up again,
its operations are noted (`fedlib.engine.recording`), including backward pass and update, and
repeated from then on. The bits are those of the loop, so a client may have steps of both kinds.

The first steps after the noted one are done both ways, and the results of the loop are used. If
they differ, or a step cannot be noted, or `fedlib.engine.fingerprint` cannot compare its
function, all further steps of this shape run as in the loop. `notes` counts the shapes and gives
the reasons.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.executors import Advance, Loop
from fedlib.engine.fingerprint import PLAIN, Opaque, walk
from fedlib.engine.recording import Recorder, tensors, write_program
from fedlib.engine.task import Batch
from fedlib.errors import brief
from fedlib.tree import Tree

WARM = 1  # steps of a shape before it is noted: many shapes come up only once
CHECKS = 2  # next steps, which are compared with the loop's
SHAPES = 1024  # most shapes that are kept; the oldest are dropped


class Traced(Loop):
    """As `Loop`, with traced steps; see the module's docstring."""

    name = setting = "traced"

    def __init__(self, workers: int = 1):
        super().__init__(workers)
        self._shapes: dict[Hashable, Shape] = {}
        self._lock = threading.Lock()
        self.notes |= {"traced_shapes": 0, "not_traced": Counter()}

    def _prepare(self, step: Callable, alike: bool) -> Callable[[tuple], Advance]:
        """See `Loop._prepare`."""
        closed: list[Tensor] = []

        def note(x: Tensor) -> Tensor:
            closed.append(x)
            return x.new_empty(0)

        try:
            function, kept = walk(step, note)
        except Opaque as reason:
            self.tell(str(reason))
            return super()._prepare(step, alike)
        function = function, layout(closed, [])
        shared = {} if alike else None
        return lambda args: Steps(self, function, kept, step, closed, args, shared)

    def shape(self, key: Hashable, kept: object) -> "Shape":
        """The `Shape` of a key; a new one if there is none."""
        with self._lock:
            if key not in self._shapes:
                while len(self._shapes) >= SHAPES:
                    del self._shapes[next(iter(self._shapes))]
                self._shapes[key] = Shape(self, kept)
            return self._shapes[key]

    def tell(self, refused: str = "") -> None:
        """Note that a shape is repeated from now on, or why it is not."""
        with self._lock:
            if refused:
                self.notes["not_traced"][refused] += 1
            else:
                self.notes["traced_shapes"] += 1


class Steps:
    """One client's steps: `own = steps(own, batch)`, see `Advance`."""

    def __init__(self, executor: Traced, function: Hashable, kept: object, step: Callable,
                 closed: list[Tensor], args: tuple, shared: dict | None):  # fmt: skip
        self.step, self.args, self.closed = step, args, closed
        self._executor, self._function, self._kept = executor, function, kept
        self._passed = tensors(args)
        self._own: Tree = None
        # By properties in which batches differ. If clients are alike, their first carries have one
        # layout; later carries may have another.
        self._shapes: dict[Hashable, Shape] = {} if shared is None else shared

    def __call__(self, own: Tree, batch: Batch) -> Tree:
        """The carry after a step on `batch`."""
        if own is not self._own:
            if self._own is not None:
                self._shapes = {}
            self._own, self.leaves = own, tensors(own)
        key = batch.x.shape, batch.x.stride(), batch.epoch
        shape = self._shapes.get(key)
        if shape is None:
            kept = [self._kept]
            seen = layout((self.args, own, batch), kept)
            shape = self._shapes[key] = self._executor.shape((self._function, seen), kept)
        return shape.step(self, own, batch)

    def inputs(self, leaves: list[Tensor], batch: Batch) -> list[Tensor]:
        """All tensors that a step reads; `leaves` are those of its carry."""
        return [*self.closed, *leaves, *self._passed, batch.x, batch.y, batch.index, batch.key]


class Shape:
    """Steps of one function on tensors of one layout.

    Attributes:
      kept: objects whose identity is in the key, so that no other object gets their ids.
    """

    def __init__(self, executor: Traced, kept: object):
        self.kept = kept
        self._executor = executor
        self._calls = self._checked = 0  # steps as in the loop, and those that were compared
        self._refused = False
        self._program: Callable | None = None  # of tensors, to tensors
        self._after: Tree = None  # the next carry, with numbers for tensors; None: the same carry
        self._mode = torch.no_grad

    def step(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        """The carry after one step of a client."""
        # Counted when they have ended: meanwhile another thread takes steps of this shape.
        if self._checked >= CHECKS and not self._refused:
            return self._repeat(steps, own, batch)
        self._calls += 1
        if self._calls <= WARM or self._refused:
            return steps.step(own, *steps.args, batch)
        return (self._check if self._program else self._record)(steps, own, batch)

    def _repeat(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        with self._mode():
            results = self._program(*steps.inputs(steps.leaves, batch))
        if self._after is None:
            return own
        return tree.map(lambda x: results[x] if type(x) is Output else x, self._after)

    def _record(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        inputs = steps.inputs(tensors(own), batch)
        with Recorder(inputs) as recorder:
            after = steps.step(own, *steps.args, batch)
        outputs = tensors(after)
        if reason := recorder.refused or recorder.reason_of(outputs):
            self._refuse(reason)
            return after
        if list(map(id, tree.leaves(after))) == list(map(id, tree.leaves(own))):
            # All is changed in place, so no tensor leaves inference mode, the cheapest one.
            outputs, self._mode = [], torch.inference_mode
        else:
            numbers = iter(range(len(outputs)))
            self._after = tree.map(
                lambda x: Output(next(numbers)) if isinstance(x, Tensor) else x, after
            )
        self._program = write_program(recorder.calls, inputs, outputs)
        return after

    def _check(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        found, reason = self._try_program(steps, own, batch)
        after = steps.step(own, *steps.args, batch)
        # The carry, changed in place, and the tensors of a new one.
        left = [*tensors(own), *([] if self._after is None else tensors(after))]
        if not reason and not all(map(_equal, found, left)):
            reason = "operations that do something else when they are repeated"
        self._checked += not reason
        if reason:
            self._refuse(reason)
        elif self._checked == CHECKS:
            self._executor.tell()
        return after

    def _try_program(self, steps: Steps, own: Tree, batch: Batch) -> tuple[list[Tensor], str]:
        """(results of the program on copies of all that a step may change, why it failed or "")."""
        leaves, first = tensors(own), len(steps.closed)
        copies = [x.clone() for x in steps.inputs(leaves, batch)]
        try:
            with self._mode():
                return [*copies[first : first + len(leaves)], *self._program(*copies)], ""
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return [], brief(error)

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self._executor.tell(reason)


class Output(int):
    """Number of an output of a program."""


def layout(values: Tree, kept: list) -> Hashable:
    """A key for everything about `values` that affects operations, except numbers in tensors.

    Objects whose identity is in the key are added to `kept`.
    """
    if isinstance(values, Tensor):
        return values.shape, values.stride(), values.dtype, values.device
    if isinstance(values, dict):
        return tuple(values), tuple([layout(x, kept) for x in values.values()])
    if isinstance(values, tuple | list):
        return type(values), tuple([layout(x, kept) for x in values])
    if isinstance(values, PLAIN):
        return type(values), values
    kept.append(values)
    return id(values)


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether the numbers are equal, or both are NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
