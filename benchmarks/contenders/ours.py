"""This engine, through what a run of the workflow uses too: Simulation, Method and Cohort."""

from dataclasses import replace

import numpy as np
import torch

from benchmarks import models
from benchmarks.clock import Clock
from benchmarks.items import LR, SEED, Item
from fedlib import methods
from fedlib.engine.choice import choose
from fedlib.engine.device import DeviceData
from fedlib.engine.participation import sample
from fedlib.engine.solvers import SGD
from fedlib.engine.task import Task, set_precision
from fedlib.engine.traced import CHECKS, WARM
from fedlib.federation import Federation, Split
from fedlib.run.simulate import Course, Simulation

ROUNDS = 1_000_000  # more than anybody waits for
STEPS_TO_RECORD = WARM + 1 + CHECKS  # of one shape, until it is repeated


def run(item: Item, setting: str, cores: int, clock: Clock, pfedmm: bool = False) -> None:
    """Rounds of FedAvg, FedEM or pFedMM with the executor `setting`, until the clock says stop."""
    torch.set_num_threads(cores)
    simulation = build(item, setting, pfedmm)
    record(simulation, item)
    sizes = item.sizes()
    clock.begin()
    state, number, more = simulation.init(), 0, True
    while more:
        state, clients = one_round(simulation, state, number)
        number += 1
        more = clock.tick(int(sizes[clients].sum()))


def record(simulation: Simulation, item: Item) -> None:
    """Let traced steps see every size of a batch until they repeat it: once in hundreds of rounds.

    Clients of a cohort end with batches of any size, so that a few seconds would measure little but
    recordings. Sizes that no client has are left out: normalisation refuses a batch of one.
    """
    if simulation.executor.name != "traced":
        return
    last = (item.sizes() - 1) % item.batch_size + 1
    sizes = np.tile(np.unique([*last, item.batch_size]), STEPS_TO_RECORD)
    padded = federation(item, np.append(sizes, item.sizes().max()))  # who never takes part
    data = DeviceData(padded, simulation.data.dtype, simulation.data.device)
    others = replace(simulation, data=data)
    state = others.init()
    for number, first in enumerate(range(0, len(sizes), item.cohort)):  # no more memory than later
        ids = np.arange(first, min(first + item.cohort, len(sizes)))
        state = others.method.round(state, others.cohort(ids, number))


def one_round(simulation: Simulation, state, number: int) -> tuple:
    """(state after round `number`, the clients that took part); waits until it is computed."""
    course = simulation.course
    ids = sample(simulation.federation.ids("seen"), course.rate, course.seed, number)
    cohort = simulation.cohort(ids, number)
    state = simulation.method.round(state, cohort)
    losses = torch.stack(cohort.journal.losses).mean(0)
    if not losses.isfinite().all():
        raise ArithmeticError(f"the training loss is not finite in round {number}")
    return state, ids


def build(item: Item, executor: str, pfedmm: bool = False, **of_task) -> Simulation:
    """What `fedlib.run.build.build_simulation` makes of a run's declaration, for a work item.

    Args:
      item: what to train.
      executor: see `fedlib.engine.choice.choose`.
      pfedmm: pFedMM with three heads instead of FedAvg.
      of_task: fields of the task besides its model, such as the device.
    """
    task = Task(lambda: models.fast(item), **of_task)
    set_precision(task)
    local = SGD(lr=LR, batch_size=item.batch_size)
    if pfedmm:
        method = methods.load("pfedmm")(task=task, local=local, num_experts=3)
    elif item.num_experts > 1:
        method = methods.load("fedem")(task=task, local=local, num_experts=item.num_experts)
    else:
        method = methods.load("fedavg")(task=task, local=local)
    data = DeviceData(federation(item), task.dtype, task.device)
    course = Course(rounds=ROUNDS, seed=SEED, rate=item.rate, aggregation="renormalised")
    return Simulation(method, data, course, choose(executor, [task]))


def federation(item: Item, sizes: np.ndarray | None = None) -> Federation:
    """The clients of a work item, or of such sizes, all seen, with training examples alone."""
    x, y = item.data()
    sizes = item.sizes() if sizes is None else sizes
    again = np.arange(sizes.sum()) % len(x)  # padded clients need more rows; each has one owner
    nothing = Split.from_lists([[]] * len(sizes))
    return Federation(
        x=x[again],
        y=y[again],
        num_classes=item.num_classes,
        train=Split(np.arange(len(again)), np.cumsum([0, *sizes])),
        val=nothing,
        test=nothing,
        group=np.zeros(len(sizes), np.uint8),
        client_id=np.arange(len(sizes)),
    )
