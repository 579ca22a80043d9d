"""Recorded steps with other kernels: the loop's but for rounding, and the same for any workers."""

import pytest
import torch
from support import assert_close, sgd, tiny_task
from test_executors import trained

from fedlib.engine.choice import choose
from fedlib.engine.executors import Loop
from fedlib.engine.recording import Recorder, replayed
from fedlib.engine.rewriting import WAYS, fused, onednn
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import SGD
from fedlib.engine.traced import Traced
from fedlib.workflow import config

EVERY_WAY = pytest.mark.parametrize("way", WAYS)
MM, ADDMM_, UPDATE = "aten::mm", "aten::addmm_", "aten::_fused_sgd_"
LINEAR = "mkldnn::_linear_pointwise"


def rewritten(rewrite, step, *inputs):
    """(operations before, operations after, what both leave of `inputs`) of a recorded function."""
    copies = [[x.clone() for x in inputs] for _ in range(2)]
    with Recorder(list(inputs)) as recorder:
        outputs = step(*inputs)
    assert not recorder.refused
    calls = recorder.calls
    other = rewrite(calls, outputs)
    results = [
        [*replayed(found, list(inputs), outputs)(*own), *own]
        for found, own in zip((calls, other), copies, strict=True)
    ]
    return names(calls), names(other), results


def names(calls):
    return [call.op._schema.name for call in calls if not call.op.is_view]


def update(params, gradients, lr=0.1, **changes):
    how = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
    how |= {"maximize": False, "is_first_step": False, "lr": lr} | changes
    torch._fused_sgd_(params, gradients, [], **how)


def normal(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


# -- whole rounds -------------------------------------------------------------------------


@EVERY_WAY
@pytest.mark.parametrize(
    "local",
    [
        SGD(lr=0.1, batch_size=4),
        SGD(lr=0.1, batch_size=4, momentum=0.9, weight_decay=0.01),
        SGD(lr=0.1, batch_size=4, clip_norm=0.1, schedule=Schedule("cosine", by="round", period=9)),
    ],
    ids=["plain", "momentum", "clipped"],
)
def test_steps_in_single_precision_are_close_and_do_not_depend_on_workers(way, local):
    task = tiny_task(dtype=torch.float32, norm=True, dropout=0.3)
    executors = Loop(), Traced(way=way), Traced(3, way)
    loop, alone, several = (trained(e, task=task, local=local, count=3) for e in executors)
    assert_close(loop, alone, 1e-3)
    assert_close(alone, several, 0)
    assert executors[1].notes["traced_shapes"] == executors[2].notes["traced_shapes"] > 0


@EVERY_WAY
def test_the_first_steps_are_by_the_same_kernels_as_the_others(way):
    """Or else it would matter which client's steps came first."""
    task, executor = tiny_task(dtype=torch.float32), Traced(way=way)
    first = trained(executor, task=task, local=sgd(), count=1)
    known = executor.notes["traced_shapes"]
    assert_close(first, trained(executor, task=task, local=sgd(), count=1), 0)
    assert executor.notes["traced_shapes"] == known > 0


def test_other_kernels_that_are_wrong_are_not_taken(monkeypatch):
    def wrong(calls, outputs):
        return [call for call in calls if "_fused_sgd_" not in call.op._schema.name]

    monkeypatch.setitem(WAYS, "fused", wrong)
    task = tiny_task(dtype=torch.float32)
    executor, local = Traced(way="fused"), SGD(lr=1e-4, batch_size=4)
    runs = (trained(e, task=task, local=local, count=1) for e in (Loop(), executor))
    assert_close(*runs, 0)
    assert executor.notes["traced_shapes"] == 0 and executor.notes["not_traced"]


# -- updates within products --------------------------------------------------------------


def test_a_gradient_that_is_a_product_goes_into_its_weight_at_once():
    def step(w, b, x, g):
        update([w, b], [g.t().mm(x), g.sum(0)])
        return []

    before, after, (plain, other) = rewritten(
        fused, step, normal(3, 4), normal(3), normal(5, 4), normal(5, 3)
    )
    assert before.count(MM) == 1 and MM not in after
    assert after.count(ADDMM_) == after.count(UPDATE) == 1  # the bias has an update still
    assert_close(plain, other, 1e-14)


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_product_that_is_turned_is_taken_as_such(turns):
    def step(w, x, g):
        turned = turns % 2 == 1
        product = x.t().mm(g) if turned else g.t().mm(x)
        for _ in range(turns):
            product = product.t()
        # PyTorch's update walks through both in the order of memory.
        update([w.t() if turned else w.view(3, 4)], [product.detach()])
        return []

    _, after, (plain, other) = rewritten(fused, step, normal(4, 3), normal(5, 4), normal(5, 3))
    assert after == [ADDMM_]
    assert_close(plain, other, 1e-14)


@pytest.mark.parametrize("some", [False, True])
def test_experts_whose_gradients_are_stacked_take_each_its_own(some):
    def step(w, x, g, sums):
        parts = [g.t().mm(x), g.t().mm(x * 2), sums if some else g.t().mm(x * 3)]
        update([w], [torch.stack(parts)])
        return []

    inputs = normal(3, 3, 4), normal(5, 4), normal(5, 3), normal(3, 4)
    before, after, (plain, other) = rewritten(fused, step, *inputs)
    assert before == after if some else after.count(ADDMM_) == 3 and UPDATE not in after
    assert_close(plain, other, 1e-14)


def needed_elsewhere(w, x, g):
    product = g.t().mm(x)
    norm = product.norm()
    update([w], [product])
    return [norm]


def changed_since(w, x, g):
    product = g.t().mm(x)
    x.mul_(2)
    update([w], [product])
    return []


STAYS = {
    "decayed": lambda w, x, g: update([w], [g.t().mm(x)], weight_decay=0.1) or [],
    "climbed": lambda w, x, g: update([w], [g.t().mm(x)], maximize=True) or [],
    "shared by layers": lambda w, x, g: update([w], [g.t().mm(x) + g.t().mm(x * 2)]) or [],
    "needed elsewhere": needed_elsewhere,
    "changed since": changed_since,
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_more_than_a_product_and_a_plain_update_stays(name):
    inputs = normal(3, 4), normal(5, 4), normal(5, 3)
    before, after, (plain, other) = rewritten(fused, STAYS[name], *inputs)
    assert before == after
    assert_close(plain, other, 0)


# -- products by oneDNN -------------------------------------------------------------------


def test_products_in_single_precision_are_onednns():
    def step(w, b, x):
        return [torch.addmm(b, x, w.t()), x.mm(x.t()), x.t().mm(x)]

    single = (normal(*shape, dtype=torch.float32) for shape in ((3, 4), (3,), (5, 4)))
    before, after, (plain, other) = rewritten(onednn, step, *single)
    assert (before.count(MM), after) == (2, [LINEAR] * 3)
    assert_close(plain, other, 1e-6)


def test_products_in_double_precision_and_sums_of_matrices_stay():
    def double(w, x):
        return [x.mm(w)]

    def matrices(w, x):
        return [torch.addmm(w, x, w)]

    before, after, _ = rewritten(onednn, double, normal(4, 4), normal(4, 4))
    assert before == after
    single = normal(4, 4, dtype=torch.float32)
    before, after, _ = rewritten(onednn, matrices, single, single.clone())
    assert before == after


# -- the choice ---------------------------------------------------------------------------


def test_a_configuration_may_name_every_way():
    named = {name.partition(":")[2] for name in config.EXECUTORS if ":" in name}
    assert named == {*WAYS}


def test_without_onednn_its_products_are_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match="executor 'traced:onednn' needs oneDNN"):
        choose("traced:onednn", tiny_task())
    assert choose("traced:fused", tiny_task()).setting == "traced:fused"
