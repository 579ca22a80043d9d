"""Steps that are written down once, operation by operation, and repeated without autograd.

A step of a small model is some fifty tiny operations, and most of its time goes into finding out
which: modules, the graph of the backward pass, trees of tensors. So a step whose function and
shapes have come up before is recorded (`fedlib.engine.recording`), backward pass and update
included, and repeated from then on. Every bit is the loop's, and a client's steps may be of either
kind.

The steps after a recorded one are taken both ways, and what the loop leaves counts. Where the
recording leaves anything else, or a step cannot be recorded, or its function cannot be told from
outside to be the same as before (`fedlib.engine.fingerprint`), all go on as in the loop; `notes`
counts the steps and gives the reasons.

On request steps take other kernels than the loop's (`fedlib.engine.rewriting`), and then all of
them do, the first ones too: which client's come first is a matter of chance.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.executors import Advance, Loop
from fedlib.engine.fingerprint import PLAIN, Opaque, walk
from fedlib.engine.recording import Call, Recorder, replayed
from fedlib.engine.rewriting import WAYS
from fedlib.engine.task import Batch
from fedlib.tree import Tree

WARM = 1  # steps of a shape before it is recorded: many come up once
CHECKS = 2  # steps after that are compared with the loop's
NEAR = 0.01  # of a step, by which other kernels may differ: a mistake is as large as the step
SHAPES = 1024  # kept at most; the oldest make room


class Traced(Loop):
    """See the module's docstring; else as `Loop`."""

    name = "traced"

    def __init__(self, workers: int = 1, way: str = ""):
        super().__init__(workers)
        self.way = way  # of `fedlib.engine.rewriting.WAYS`; "" for the loop's kernels
        self.setting = f"{self.name}:{way}" if way else self.name
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
        """The shape of a key, a new one if there is none."""
        with self._lock:
            if key not in self._shapes:
                while len(self._shapes) >= SHAPES:
                    del self._shapes[next(iter(self._shapes))]
                self._shapes[key] = (Other if self.way else Shape)(self, kept)
            return self._shapes[key]

    def tell(self, refused: str = "") -> None:
        """Note a shape that is repeated from now on, or why one is not."""
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
        self._passed = _tensors(args)
        self._own: Tree = None
        # By what batches differ in. All clients' first carries have one layout if they are alike;
        # those that steps leave may have another.
        self._shapes: dict[Hashable, Shape] = {} if shared is None else shared

    def __call__(self, own: Tree, batch: Batch) -> Tree:
        """The carry after a step on `batch`."""
        if own is not self._own:
            if self._own is not None:
                self._shapes = {}
            self._own, self.leaves = own, _tensors(own)
        key = batch.x.shape, batch.x.stride(), batch.epoch
        shape = self._shapes.get(key)
        if shape is None:
            kept = [self._kept]
            seen = layout((self.args, own, batch), kept)
            shape = self._shapes[key] = self._executor.shape((self._function, seen), kept)
        return shape.step(self, own, batch)

    def inputs(self, leaves: list[Tensor], batch: Batch) -> list[Tensor]:
        """All tensors that a step reads, those of its carry being `leaves`."""
        return [*self.closed, *leaves, *self._passed, batch.x, batch.y, batch.index, batch.key]


class Shape:
    """Steps of one function on tensors of one layout.

    Attributes:
      kept: what its key has by identity, which must not become another's.
    """

    def __init__(self, executor: Traced, kept: object):
        self.kept = kept
        self._executor = executor
        self._calls = 0  # in the loop's way
        self._refused = False
        self._program: Callable | None = None  # of tensors, to tensors
        self._after: Tree = None  # what it leaves, with numbers for tensors; None: what it is given
        self._mode = torch.no_grad

    def step(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        """The carry after one step of a client."""
        if self._calls > WARM + CHECKS and not self._refused:
            return self._repeat(steps, own, batch)
        self._calls += 1
        if self._calls <= WARM or self._refused:
            return steps.step(own, *steps.args, batch)
        how = self._record if self._program is None else self._check
        return how(steps, own, batch)

    def _repeat(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        with self._mode():
            results = self._program(*steps.inputs(steps.leaves, batch))
        return own if self._after is None else _filled(self._after, results)

    def _record(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        inputs = steps.inputs(_tensors(own), batch)
        with Recorder(inputs) as recorder:
            after = steps.step(own, *steps.args, batch)
        outputs = _tensors(after)
        reason = recorder.refused or recorder.reason_of(outputs)
        if reason:
            self._refuse(reason)
            return after
        if list(map(id, tree.leaves(after))) == list(map(id, tree.leaves(own))):
            # All is changed in place, and no tensor leaves the cheapest mode, which none must.
            outputs, self._mode = [], torch.inference_mode
        else:
            numbers = iter(range(len(outputs)))
            self._after = tree.map(
                lambda x: Output(next(numbers)) if isinstance(x, Tensor) else x, after
            )
        self._program = self._written(recorder.calls, inputs, outputs)
        return after

    def _written(self, calls: list[Call], inputs: list[Tensor], outputs: list[Tensor]) -> Callable:
        return replayed(calls, inputs, outputs)

    def _check(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        found, reason = self._tried(self._program, steps, own, batch)
        after = steps.step(own, *steps.args, batch)
        if not reason and not all(map(_equal, found, self._left(own, after))):
            reason = "operations that do something else when they are repeated"
        if reason:
            self._refuse(reason)
        elif self._calls == WARM + 1 + CHECKS:
            self._executor.tell()
        return after

    def _tried(
        self, program: Callable, steps: Steps, own: Tree, batch: Batch
    ) -> tuple[list[Tensor], str]:
        """What a program leaves of a copy of `own`, or why it failed."""
        copies = [_copy(x) for x in _tensors(own)]
        try:
            with self._mode():
                return [*copies, *program(*steps.inputs(copies, batch))], ""
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return [], f"{type(error).__name__}: {str(error).splitlines()[0]}"

    def _left(self, own: Tree, after: Tree) -> list[Tensor]:
        """What a step leaves: its changed carry, and what is not changed in place."""
        return [*_tensors(own), *([] if self._after is None else _tensors(after))]

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self._executor.tell(reason)


class Other(Shape):
    """Steps of one function on tensors of one layout, by other kernels than the loop's."""

    def __init__(self, executor: Traced, kept: object):
        super().__init__(executor, kept)
        self._begun = threading.Lock()

    def step(self, steps: Steps, own: Tree, batch: Batch) -> Tree:
        """The carry after one step of a client."""
        with self._begun:
            if not self._calls:
                self._begin(steps, own, batch)
        if self._refused:
            return steps.step(own, *steps.args, batch)
        return self._repeat(steps, own, batch)

    def _begin(self, steps: Steps, own: Tree, batch: Batch) -> None:
        """Record a step on a copy, and try both kinds of kernels on others."""
        copy = tree.map(lambda x: _copy(x) if isinstance(x, Tensor) else x, own)
        after = self._record(steps, copy, batch)
        self._calls = 1
        if self._refused:
            return
        expected = self._left(copy, after)
        before = [*_tensors(own), *itertools.repeat(torch.zeros(()), len(expected))]
        for program, agree in ((self._exact, _equal), (self._program, _close)):
            found, reason = self._tried(program, steps, own, batch)
            if not reason and not all(map(agree, found, expected, before)):
                reason = "operations that do something else when they are repeated"
            if reason:
                self._refuse(reason)
                return
        self._executor.tell()

    def _written(self, calls: list[Call], inputs: list[Tensor], outputs: list[Tensor]) -> Callable:
        self._exact = super()._written(calls, inputs, outputs)
        return super()._written(WAYS[self._executor.way](calls, outputs), inputs, outputs)


class Output(int):
    """Number of an output of a program."""


def layout(values: Tree, kept: list) -> Hashable:
    """What operations on `values` depend on besides the numbers in tensors.

    What is told from others by its identity is put into `kept`.
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


def _tensors(values: Tree) -> list[Tensor]:
    return [x for x in tree.leaves(values) if isinstance(x, Tensor)]


def _filled(like: Tree, results: list[Tensor]) -> Tree:
    return tree.map(lambda x: results[x] if type(x) is Output else x, like)


def _copy(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def _close(a: Tensor, b: Tensor, before: Tensor) -> bool:
    """Whether the numbers are the same but for rounding, however unlucky, measured by the step."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not b.is_floating_point() or not b.isfinite().all():
        return _equal(a, b)
    step = float((b - before).norm())
    return float((a - b).norm()) <= NEAR * step + torch.finfo(b.dtype).eps * 10 * float(b.norm())


def _equal(a: Tensor, b: Tensor, before: Tensor | None = None) -> bool:
    """Whether the numbers are the same, or both are none."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
