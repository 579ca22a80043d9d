"""Local solvers and schedules, against torch.optim and arithmetic."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from reference import batches, cross_entropy_of, module_of, owned
from support import assert_close, cohort_of, executors, tiny_task, toy_federation
from torch import nn
from torch.optim import lr_scheduler

from fedlib import tree
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import SGD, Adam, AdamW, from_spec

# Ours, and further arguments of PyTorch's optimiser of the same name, which it is to equal.
SOLVERS = {
    "plain SGD": (SGD(lr=0.1), {}),
    "decayed SGD": (SGD(lr=0.1, weight_decay=0.2), {"weight_decay": 0.2}),
    "SGD with momentum": (SGD(lr=0.1, momentum=0.9), {"momentum": 0.9}),
    "SGD with both": (
        SGD(lr=0.1, momentum=0.9, weight_decay=0.2),
        {"momentum": 0.9, "weight_decay": 0.2},
    ),
    "Adam": (Adam(lr=0.1), {}),
    "Adam, all arguments": (
        Adam(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.2),
        {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.2},
    ),
    "AdamW": (AdamW(lr=0.1, weight_decay=0.2), {"weight_decay": 0.2}),
}
every_solver = pytest.mark.parametrize("name", SOLVERS)


# -- steps --------------------------------------------------------------------------------


@every_solver
@executors
@pytest.mark.parametrize("clip", [None, 0.45])  # that binds in some steps, and not in others
def test_local_training_equals_a_module_with_torch_optim(name, executor, clip):
    # Body and head are groups, which are clipped apart; the body learns three times as fast.
    solver, arguments = SOLVERS[name]
    solver = replace(solver, batch_size=4, epochs=3, clip_norm=clip)
    task, federation = tiny_task(), toy_federation((10, 7), unseen=0)
    cohort = cohort_of(task, federation, executor=executor)
    body, head = task.split(task.init(0))

    def loss(params, batch):
        return task.loss({**params["body"], **params["head"]}, batch)

    start = cohort.broadcast({"body": body, "head": head})
    trained, _ = cohort.fit(loss, start, local=solver, lr_scale={"body": 3.0})
    norms = []

    class Clipping(getattr(torch.optim, type(solver).__name__)):
        def step(self):
            for group in self.param_groups if clip else ():
                norms.append(float(nn.utils.clip_grad_norm_(group["params"], clip)))
            return super().step()

    def make(module):
        body, head = list(module.body.parameters()), list(module.head.parameters())
        groups = [{"params": body, "lr": 0.3}, {"params": head}]
        return Clipping(groups, lr=0.1, **arguments)

    for client in range(2):
        module = module_of(task, task.init(0))
        optimiser, loss = make(module), cross_entropy_of(module)
        for batch in batches(*owned(federation, client), solver, 0, "fit", client):
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
        ours = tree.take({**trained["body"], **trained["head"]}, client)
        assert_close(ours, dict(module.state_dict()))
    assert not clip or min(norms) < clip < max(norms)


# -- clipping -----------------------------------------------------------------------------


@pytest.mark.parametrize("off", [None, 0, 0.0])
def test_no_bound_leaves_gradients_alone(off):
    grads = {"w": torch.full((3,), 100.0)}
    assert SGD(lr=1.0, clip_norm=off).clip(grads) is grads


@executors
def test_a_parameter_without_dimensions_is_clipped_like_others(executor):
    cohort = cohort_of(tiny_task(), toy_federation(), executor=executor)

    def loss(params, batch):
        return 4 * params["temperature"] + batch.mean(0 * batch.x[:, 0])

    start = cohort.broadcast({"temperature": torch.zeros((), dtype=torch.float64)})
    trained, _ = cohort.fit(loss, start, local=SGD(lr=1.0, batch_size=99, clip_norm=0.5))
    expected = torch.full((cohort.size,), -0.5, dtype=torch.float64)
    torch.testing.assert_close(trained["temperature"], expected, rtol=1e-6, atol=0)  # 4 + 1e-6


# -- what is remembered -------------------------------------------------------------------


def test_a_gradient_in_another_memory_layout_gives_the_same_step():
    weights, gradient = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).T
    expected = (weights - 0.5 * gradient).tolist()
    SGD(lr=0.5).step_({"w": weights}, {"w": gradient}, (), 0.5, {})
    assert weights.tolist() == expected


# -- schedules ----------------------------------------------------------------------------


def torch_rates(make_scheduler, epochs):
    """Learning rate in each epoch, as a PyTorch scheduler that steps once per epoch sets it."""
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(()))], lr=0.5)
    scheduler, rates = make_scheduler(optimiser), []
    for _ in range(epochs):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


SCHEDULES = {  # ours, and PyTorch's
    "constant": (Schedule(), partial(lr_scheduler.ConstantLR, factor=1.0)),
    # As FedEM's `get_lr_scheduler` has them.
    "sqrt": (
        Schedule(kind="sqrt"),
        partial(lr_scheduler.LambdaLR, lr_lambda=lambda t: 1 / np.sqrt(t) if t > 0 else 1),
    ),
    "linear": (
        Schedule(kind="linear"),
        partial(lr_scheduler.LambdaLR, lr_lambda=lambda t: 1 / t if t > 0 else 1),
    ),
    "multi_step": (
        Schedule(kind="multi_step", milestones=(10, 15)),
        partial(lr_scheduler.MultiStepLR, milestones=[10, 15], gamma=0.1),
    ),
    "multi_step, factor": (
        Schedule(kind="multi_step", milestones=(1, 4, 5), factor=0.5),
        partial(lr_scheduler.MultiStepLR, milestones=[1, 4, 5], gamma=0.5),
    ),
    "cosine": (
        Schedule(kind="cosine", period=20),
        partial(lr_scheduler.CosineAnnealingLR, T_max=20),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_equal_those_of_pytorch(name):
    schedule, scheduler = SCHEDULES[name]
    # PyTorch computes the cosine from the rate before, which adds up roundings; 0 at its end.
    ours = 0.5 * schedule(np.arange(21))
    assert ours == pytest.approx(torch_rates(scheduler, 21), rel=1e-12, abs=1e-15)


def test_the_cosine_stays_at_zero_after_its_period():
    # cos(pi) = -1 exactly, so (1 + cos) / 2 is exactly 0.
    assert Schedule(kind="cosine", period=4)(np.array([4, 5, 100])).tolist() == [0, 0, 0]


@executors
@pytest.mark.parametrize(
    ("schedule", "settings", "cohorts", "moved"),
    [
        # One step per round at rate 1; after two epochs of a client its own rate is a tenth.
        ({}, {}, [[0], [0, 1], [0, 1], [1, 2]], [[1], [1, 1], [0.1, 1], [0.1, 1]]),
        # By round, the same for everybody; two steps a round.
        ({"by": "round"}, {"epochs": 2}, [[0], [0, 1], [0, 1, 2]], [[2], [2, 2], [0.2, 0.2, 0.2]]),
        # Three epochs a round of two steps each: epochs 0, 1, 2 at rate 1, 3 and later at a half.
        ({"factor": 0.5}, {"batch_size": 2, "epochs": 3}, [[0, 1], [1]], [[5, 5], [3]]),
    ],
)
def test_each_clients_schedule_counts_the_epochs_it_has_done(
    executor, schedule, settings, cohorts, moved
):
    schedule = Schedule(kind="multi_step", milestones=(2,), **schedule)
    solver = SGD(**{"lr": 1.0, "batch_size": 4, **settings}, schedule=schedule)
    task, federation = tiny_task(), toy_federation((4, 4, 4), unseen=0)
    memory = solver.memory({"w": torch.zeros(()).double()}, 3)

    def slope(params, batch):
        return params["w"] + 0 * batch.x.sum()

    for number, (ids, expected) in enumerate(zip(cohorts, moved, strict=True)):
        cohort = cohort_of(task, federation, ids, executor=executor, round=number)
        start = {"w": torch.zeros(len(ids)).double()}
        trained, memory = cohort.fit(slope, start, local=solver, memory=memory)
        assert (-trained["w"]).tolist() == expected


# -- declarations -------------------------------------------------------------------------


SGD_OF = {"solver": "sgd", "lr": 0.1}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"lr": 0.1}, r"local.solver must be one of \['adam', 'adamw', 'sgd'\], got None"),
        ({"solver": "lbfgs", "lr": 0.1}, "local.solver must be one of .* got 'lbfgs'"),
        ({"solver": "adam", "lr": 0.1, "momentum": 0.9}, r"unknown entries \['momentum'\]; adam"),
        (SGD_OF | {"lr": -0.1}, "lr must be at least 0, got -0.1"),
        (SGD_OF | {"momentum": -0.9}, r"momentum must be in \[0, 1\), got -0.9"),
        ({"solver": "adam", "lr": 0.1, "beta2": 1}, r"beta2 must be in \[0, 1\), got 1"),
        (SGD_OF | {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (SGD_OF | {"epochs": 0}, "epochs must be in .*, got 0"),
        (SGD_OF | {"epochs": 5, "steps": 3}, "epochs must be left out beside steps, got 5"),
        (SGD_OF | {"steps": 0}, "steps must be in .*, got 0"),
        (SGD_OF | {"keeps": "epoch"}, "'run', 'round'.*, got 'epoch'"),
        (SGD_OF | {"schedule": {"kind": "step"}}, "kind must be .*'multi_step'.* got 'step'"),
    ],
)
def test_a_declaration_that_cannot_train_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        from_spec(spec)
