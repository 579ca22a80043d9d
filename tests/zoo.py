"""What tests of methods whose clients have one of several architectures have in common."""

from dataclasses import replace

import support
import torch
from reference import SOLVER
from support import sgd
from torch import nn

from fedlib.engine.task import Task

# No batch of 4 leaves one alone, which the deep architecture cannot train on; the last is unseen.
SIZES = (7, 12, 6, 10, 11)
COHORTS = [[0, 1, 2], [1, 2], [0, 2]]  # client 3 never takes part
# New optimisers in every local training; gradients clipped, of each module by itself.
LOCAL = replace(SOLVER, clip_norm=0.4, keeps="round", schedule=sgd().schedule)


def cohort(method, federation, ids=None, **options):
    return support.cohort_of(method.task, federation, ids, aggregation="renormalised", **options)


def run(method, federation, rounds=COHORTS, **options):
    return support.run(method, federation, rounds, aggregation="renormalised", **options)


class Deep(nn.Module):
    """Other layers, names, normalisation and activation than `support.TinyNet`."""

    def __init__(self, features=4, classes=3):
        super().__init__()
        layers = nn.Linear(features, 7), nn.BatchNorm1d(7), nn.Sigmoid(), nn.Linear(7, 5), nn.ReLU()
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(5, classes)

    def forward(self, x):
        return self.head(self.body(x))


class Narrow(Deep):
    """The header of `Deep` on another extractor."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh())


deep, narrow = (Task(kind, dtype=torch.float64) for kind in (Deep, Narrow))
