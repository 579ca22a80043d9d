"""Recorded steps with oneDNN's products: the loop's but for rounding, the same for any workers."""

import pytest
import torch
from support import assert_close, sgd, tiny_task
from test_executors import trained

from fedlib.engine import onednn
from fedlib.engine.choice import choose
from fedlib.engine.executors import Loop
from fedlib.engine.recording import Recorder, replayed
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import SGD
from fedlib.engine.traced import Traced

MM, LINEAR = "aten::mm", "mkldnn::_linear_pointwise"


def rewritten(step, *inputs):
    """(operations before, operations after, what both leave of `inputs`) of a recorded function."""
    copies = [[x.clone() for x in inputs] for _ in range(2)]
    with Recorder(list(inputs)) as recorder:
        outputs = step(*inputs)
    assert not recorder.refused
    calls = recorder.calls
    other = onednn.rewritten(calls)
    results = [
        [*replayed(found, list(inputs), outputs)(*own), *own]
        for found, own in zip((calls, other), copies, strict=True)
    ]
    return names(calls), names(other), results


def names(calls):
    return [call.op._schema.name for call in calls if not call.op.is_view]


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize(
    "local",
    [
        SGD(lr=0.1, batch_size=4),
        SGD(lr=0.1, batch_size=4, momentum=0.9, weight_decay=0.01),
        SGD(lr=0.1, batch_size=4, clip_norm=0.1, schedule=Schedule("cosine", by="round", period=9)),
    ],
    ids=["plain", "momentum", "clipped"],
)
def test_steps_are_close_and_do_not_depend_on_workers(local):
    task = tiny_task(dtype=torch.float32, norm=True, dropout=0.3)
    executors = Loop(), Traced(by_onednn=True), Traced(3, by_onednn=True)
    loop, alone, several = (trained(e, task=task, local=local, count=3) for e in executors)
    assert_close(loop, alone, 1e-3)
    assert_close(alone, several, 0)
    assert executors[1].notes["traced_shapes"] == executors[2].notes["traced_shapes"] > 0


def test_the_first_steps_are_by_the_same_kernels_as_the_others():
    """Or else it would matter which client's steps came first."""
    task, executor = tiny_task(dtype=torch.float32), Traced(by_onednn=True)
    first = trained(executor, task=task, local=sgd(), count=1)
    known = executor.notes["traced_shapes"]
    assert_close(first, trained(executor, task=task, local=sgd(), count=1), 0)
    assert executor.notes["traced_shapes"] == known > 0


def test_products_that_are_wrong_are_not_taken(monkeypatch):
    def wrong(calls):
        return [call for call in calls if "_fused_sgd_" not in call.op._schema.name]

    monkeypatch.setattr(onednn, "rewritten", wrong)
    task = tiny_task(dtype=torch.float32)
    executor, local = Traced(by_onednn=True), SGD(lr=1e-4, batch_size=4)
    runs = (trained(e, task=task, local=local, count=1) for e in (Loop(), executor))
    assert_close(*runs, 0)
    assert executor.notes["traced_shapes"] == 0 and executor.notes["not_traced"]


def test_products_in_single_precision_are_onednns():
    def step(w, b, x):
        return [torch.addmm(b, x, w.t()), x.mm(x.t()), x.t().mm(x)]

    before, after, (plain, other) = rewritten(step, normal(3, 4), normal(3), normal(5, 4))
    assert (before.count(MM), after) == (2, [LINEAR] * 3)
    assert_close(plain, other, 1e-6)


def test_products_in_double_precision_and_sums_of_matrices_stay():
    def double(w, x):
        return [x.mm(w)]

    def matrices(w, x):
        return [torch.addmm(w, x, w)]

    wide, single = normal(4, 4, dtype=torch.float64), normal(4, 4)
    for step, x in ((double, wide), (matrices, single)):
        before, after, _ = rewritten(step, x, x.clone())
        assert before == after


def test_without_onednn_its_products_are_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match="executor 'traced:onednn' needs oneDNN"):
        choose("traced:onednn", [tiny_task()])
    assert choose("traced", [tiny_task()]).setting == "traced"
