"""Small networks of two architectures with one header, and clients by hand that have them."""

import pytest
import torch
from reference import SOLVER, Reference, assert_module, module_of
from support import cohort_of, toy_federation
from torch.nn.functional import cross_entropy
from zoo import deep as DEEP
from zoo import narrow

from fedlib import methods

NAMES = ["fd", "fedproto", "fedgh", "fedtgp"]
# Held are the classes {0, 2}, {0, 1, 2}, {0, 1, 2}, so that in the second round a class is unknown
# that clients 1 and 2 hold. The fourth client is unseen.
ROUNDS = [[0], [1, 2], [0, 1, 2]]
L, F = 3, 5


SETTINGS = {"homogeneous": ((), (DEEP,)), "heterogeneous": ((narrow, DEEP), (narrow, DEEP))}
settings = pytest.mark.parametrize("setting", SETTINGS)


def train(name, setting, executor="loop", local=SOLVER, rounds=ROUNDS, **params):
    """The method, its state after the rounds, and the cohorts with their journals."""
    method = methods.load(name)(task=DEEP, local=local, large=SETTINGS[setting][0], **params)
    federation, cohorts = toy_federation(), []
    state = method.init(federation.num_clients, 0)
    for number, ids in enumerate(rounds):
        cohorts.append(cohort_of(DEEP, federation, ids, executor=executor, round=number))
        state = method.round(state, cohorts[-1])
    return method, state, cohorts


class Clients(Reference):
    """A module of its architecture and an optimiser for each client."""

    def __init__(self, setting):
        super().__init__(toy_federation())
        tasks = SETTINGS[setting][1]
        self.nets = [module_of(task, task.init(0)) for task in (tasks * 3)[:3]]
        self.solvers = [self.solvers_of(net) for net in self.nets]

    def train(self, c, number, term=lambda r, out, y: 0.0):
        """Local training with a further term of the mean loss."""
        net = self.nets[c].train()

        def loss(batch):
            r = net.body(batch.x)
            out = net.head(r)
            return cross_entropy(out, batch.y) + term(r, out, batch.y)

        self.fit(c, number, self.solvers[c], loss)

    def prototypes(self, c):
        """The mean representation of each class that a client holds."""
        x, y = self.shard(c)
        with torch.no_grad():
            r = self.nets[c].eval().body(x)
        return {k: r[y == k].mean(0) for k in y.unique().tolist()}

    def assert_models(self, state):
        for c, net in enumerate(self.nets):
            assert_module(state.models[c], net)


def assert_near(ours, theirs):
    # Float64; a few dozen steps through batch normalisation.
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
