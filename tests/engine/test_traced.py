"""Recorded steps are those of the loop, bit by bit; what cannot be recorded goes on as there."""

import itertools
from ctypes import c_double
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from support import assert_close, cohort_of, sgd, tiny_task, toy_federation
from test_executors import trained
from torch import nn

from fedlib import tree
from fedlib.engine.executors import Loop
from fedlib.engine.recording import Recorder, write_program
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import SGD, Adam, AdamW
from fedlib.engine.task import Task
from fedlib.engine.traced import CHECKS, WARM, Shape, Traced

BY_ROUND = Schedule("cosine", by="round", period=9)
EVEN = (8, 8, 8)  # with batches of 4 all steps have one shape: 6 in each round


def is_refused(step, reason):
    """Whether `step(params, batch)` goes on as in the loop, for a reason that contains `reason`."""
    task, federation, executor = tiny_task(), toy_federation(EVEN, unseen=0), Traced()
    found = []
    for e in (Loop(), executor):
        params = tree.repeat(task.init(0), len(EVEN))
        for number in range(4):
            cohort = replace(cohort_of(task, federation, round=number), executor=e)
            params = cohort.scan(step, params, local=sgd())
        found.append(params)
    assert_close(*found, 0)
    assert executor.notes["traced_shapes"] == 0
    [told] = executor.notes["not_traced"]
    return reason in told


# -- the same bits ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "local",
    [
        SGD(lr=0.1, batch_size=4, momentum=0.9, weight_decay=0.01),
        SGD(lr=0.1, batch_size=4, clip_norm=0.1, epochs=2, schedule=BY_ROUND),
        Adam(lr=0.01, batch_size=4),
        AdamW(lr=0.01, batch_size=4, weight_decay=0.1, schedule=Schedule("cosine", period=9)),
    ],
    ids=["momentum", "clipped", "adam", "adamw"],
)
def test_every_solver_takes_the_steps_of_the_loop(local, dtype):
    task, executor = tiny_task(dtype=dtype, norm=True, dropout=0.3), Traced()
    # Momenta are one reason more for clients not to be alike.
    runs = (trained(e, task=task, local=local, count=5) for e in (Loop(), executor))
    assert_close(*runs, 0)
    assert executor.notes["traced_shapes"] > 0


def test_a_shape_is_recorded_checked_and_then_repeated():
    calls = []
    task, federation, executor = tiny_task(), toy_federation(EVEN, unseen=0), Traced()

    def loss(params, batch):
        calls.append(len(batch.x))
        return task.loss(params, batch)

    # `calls` is a list in the function's closure: equal when the rounds begin, so one function.
    for number in range(3):
        calls.clear()
        cohort = replace(cohort_of(task, federation, round=number), executor=executor)
        cohort.fit(loss, cohort.broadcast(task.init(0)), local=sgd())
        if number == 0:  # once without, once to record, then those that are compared
            assert len(calls) == WARM + 1 + CHECKS
    assert calls == []
    assert executor.notes["traced_shapes"] == 1


class Counted(nn.Module):
    """Its output depends on how often it has run in training."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Identity(), nn.Linear(4, 3)
        self.head.register_buffer("runs", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.head.runs += 1
        return self.head(x) / (1 + self.head.runs)


def test_a_model_beside_the_trained_one_changes_once_in_each_step():
    task, federation, found = Task(Counted, dtype=torch.float64), toy_federation(EVEN, unseen=0), []

    def loss(params, teacher, batch):
        return batch.mean((task.logits(params, batch) - task.logits(teacher, batch)).square()[:, 0])

    for executor in (Loop(), traced := Traced()):
        cohort = replace(cohort_of(task, federation), executor=executor)
        models = (cohort.held(task.init(seed)) for seed in (0, 1))
        found.append(cohort.fit(loss, *models, local=sgd(epochs=3))[0])
    assert_close(*found, 0)
    assert traced.notes["traced_shapes"] == 3  # of an epoch each


# -- what is not traced -------------------------------------------------------------------


NOT_RECORDED = {  # why, and what is added to the parameters
    "_local_scalar_dense.default depends on values": lambda x: float(x.mean()),
    "depends on values": lambda x: x[x > 0].sum(),
    "draws PyTorch's own random numbers": lambda x: 0 * torch.rand(()).double(),
    "reads a tensor that the step was not given": lambda x: torch.from_numpy(x.numpy()[:1]).sum(),
    # No operation shows these numbers.
    "numpy gives numbers to other code": lambda x: x.numpy().mean().item(),
    "tolist gives numbers to other code": lambda x: sum(x.flatten().tolist()),
    "operations that do something else when they are repeated": lambda x: (
        c_double.from_address(x.data_ptr()).value
    ),
}


def adds(number):
    """A step that adds `number(x)` to the parameters."""
    return lambda params, batch: tree.map(lambda p: p + number(batch.x), params)


@pytest.mark.parametrize("reason", NOT_RECORDED)
def test_what_would_be_another_number_when_it_is_repeated_is_not_recorded(reason):
    assert is_refused(adds(NOT_RECORDED[reason]), reason)


def test_a_function_that_cannot_be_looked_into_goes_on_as_in_the_loop():
    seen = itertools.count()

    def total(x):
        return sum(map(total, x)) if isinstance(x, list) else x.sum()

    assert is_refused(adds(lambda x: next(seen) * 0), "which may change from round to round")
    assert is_refused(adds(lambda x: total([x])), "a function that reads itself")
    assert is_refused(adds(lambda x: 1 if len(x) else later), "or a name without a value")
    later = None


def test_nothing_is_repeated_while_another_thread_still_compares_it(monkeypatch):
    tried, others = Shape._try_program, []

    def with_others(shape, steps, own, batch):
        if len(others) < CHECKS:  # further threads begin a step meanwhile, one in another's
            others.append(batch)
            shape.step(steps, tree.map(torch.clone, own), batch)
        return tried(shape, steps, own, batch)

    monkeypatch.setattr(Shape, "_try_program", with_others)
    monkeypatch.setattr(Shape, "_repeat", lambda *_: pytest.fail("repeated, and not compared yet"))
    reason = "operations that do something else when they are repeated"
    assert is_refused(adds(NOT_RECORDED[reason]), reason)
    assert others


# -- recordings ---------------------------------------------------------------------------


def again(fn, *inputs):
    """The function of tensors that does what `fn` did with `inputs`, and what it did."""
    with Recorder([*inputs]) as recorder:
        result = fn(*inputs)
    assert recorder.refused == ""
    return write_program(recorder.calls, [*inputs], [result]), result


def test_an_index_of_the_second_dimension_alone_is_recorded():
    x, at = torch.randn(3, 4).double(), torch.tensor([2, 0, 2])

    def gradient(x, at):
        leaf = x.detach().requires_grad_()
        (leaf[:, at] ** 2).sum().backward()
        return leaf.grad

    step, expected = again(gradient, x, at)
    assert torch.equal(*step(x, at), expected)


def test_a_backward_pass_through_a_convolution_is_recorded():
    w, x = torch.randn(2, 1, 3, 3).double(), torch.randn(4, 1, 6, 6).double()

    def fn(w, x):
        v = w.detach().requires_grad_()
        with torch.enable_grad():
            maps = torch.nn.functional.max_pool2d(torch.conv2d(x, v), 2)
            return torch.autograd.grad(maps.square().sum(), v)[0]

    function, _ = again(fn, w, x)
    other = torch.randn(2, 1, 3, 3).double(), torch.randn(4, 1, 6, 6).double()
    assert torch.equal(function(*other)[0], fn(*other))


LAMBDA = {"value": 0.0}
OPTIONS = SimpleNamespace(factor=1.0)


class Options:
    """Settings that are attributes of a class."""

    factor = 1.0


def penalty(params):
    return LAMBDA["value"] * sum(x.square().sum() for x in params.values())


@pytest.mark.parametrize("where", ["item", "attribute", "of a class", "of the method"])
@pytest.mark.parametrize("executor", [Traced, Loop])
def test_a_loss_reads_what_has_changed_in_the_users_module(where, executor, monkeypatch):
    """Also by a function that it calls."""

    @dataclass(frozen=True)
    class Own:
        def step(self, params, batch):
            factor = OPTIONS.factor * Options.factor * getattr(self, "factor", 1.0)
            return {name: factor * x + penalty(params) for name, x in params.items()}

    own = Own()
    change = {
        "item": lambda value: monkeypatch.setitem(LAMBDA, "value", value),
        "attribute": lambda value: monkeypatch.setattr(OPTIONS, "factor", value),
        "of a class": lambda value: monkeypatch.setattr(Options, "factor", value),
        "of the method": lambda value: object.__setattr__(own, "factor", value),
    }[where]
    task, federation, executor = tiny_task(), toy_federation(EVEN, unseen=0), executor()
    params, found = tree.repeat(task.init(0), 3), []
    for number in range(4):
        change(0.1 * number)
        cohort = replace(cohort_of(task, federation, round=number), executor=executor)
        params = cohort.scan(own.step, params, local=sgd(lr=0.1, epochs=1))
        found.append(params["head.1.bias"])
        params = tree.map(lambda x: torch.full_like(x, 0.5), params)
    assert len({str(x) for x in found}) == 4
