"""Whose examples are read: in a round those of its cohort, in an evaluation those of everybody."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from every_method import make
from support import toy_federation

from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Batched
from fedlib.engine.participation import sample
from fedlib.run import scoring
from fedlib.run.simulate import Course, Simulation

CLIENTS, UNSEEN, ROUNDS, SEED = 220, 20, 3, 5
RATE = 0.01  # of 200 seen clients: two a round
METHODS = ("fedavg", "fedem", "local")


class Watched:
    """A tensor, or a function of rows, that notes which rows were asked for."""

    def __init__(self, values, note):
        self.values, self.note = values, note

    def __getitem__(self, rows):
        self.note(rows)
        return self.values[rows]

    def __call__(self, rows):
        self.note(rows)
        return self.values(rows)

    def __getattr__(self, name):
        return getattr(self.values, name)


@pytest.fixture
def run(monkeypatch):
    """Function that runs a method: its federation, and the rows read by phase and array."""

    def start(name: str) -> tuple:
        federation = toy_federation((6,) * CLIENTS, test=2, unseen=UNSEEN)
        method = make(name)
        data = DeviceData(federation, method.task.dtype, method.task.device)
        phase, read = ["begin"], defaultdict(set)

        def watch(array):
            return lambda rows: read[phase[0], array].update(torch.as_tensor(rows).ravel().tolist())

        data.inputs, data.y = Watched(data.inputs, watch("x")), Watched(data.y, watch("y"))
        evaluation = scoring.during_training

        def evaluated(*arguments):
            phase[0] = "evaluation"
            found = evaluation(*arguments)
            phase[0] = "training"
            return found

        monkeypatch.setattr(scoring, "during_training", evaluated)
        course = Course(rounds=ROUNDS, seed=SEED, rate=RATE, evaluate_every=ROUNDS)
        Simulation(method, data, course, Batched()).run(report=lambda line: None)
        return federation, read

    return start


def owned(federation, split: str, clients) -> set[int]:
    return {int(row) for client in clients for row in federation.split(split).of(client)}


@pytest.mark.parametrize("name", METHODS)
def test_training_reads_the_training_examples_of_those_who_take_part_and_of_nobody_else(run, name):
    federation, read = run(name)
    seen = federation.ids("seen")
    cohorts = [sample(seen, RATE, SEED, number) for number in range(ROUNDS)]
    assert [len(cohort) for cohort in cohorts] == [2] * ROUNDS
    theirs = owned(federation, "train", np.unique(cohorts))
    for array in ("x", "y"):
        assert read["training", array] == theirs
