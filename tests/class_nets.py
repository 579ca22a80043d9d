"""Small networks of two architectures with one header, and clients by hand that have them."""

import torch
from reference import SOLVER, Reference, assert_module, label_loss, module_of
from support import run, toy_federation
from zoo import deep as DEEP
from zoo import narrow

from fedlib import methods

# Held are the classes {0, 2}, {0, 1, 2}, {0, 1, 2}, so that in the second round a class is unknown
# that clients 1 and 2 hold. The fourth client is unseen.
ROUNDS = [[0], [1, 2], [0, 1, 2]]
L, F = 3, 5


TASKS = (narrow, DEEP)  # in turn


def train(name, rounds=ROUNDS, **params):
    """The method, and its state after the rounds."""
    method = methods.load(name)(**{"task": DEEP, "local": SOLVER, "large": TASKS} | params)
    return method, run(method, toy_federation(), rounds, executor="batched")


class Clients(Reference):
    """A module of its architecture and an optimiser for each client."""

    def __init__(self, weights=None):
        super().__init__(toy_federation())
        self.weights = weights  # of classes
        self.nets = [module_of(task, task.init(0)) for task in (narrow, DEEP, narrow)]
        self.solvers = [self.solvers_of(net) for net in self.nets]

    def train(self, c, number, term=lambda r, out, y: 0.0):
        """Local training with a further term of the mean loss."""
        net = self.nets[c].train()

        def loss(batch):
            r = net.body(batch.x)
            out = net.head(r)
            return label_loss(out, batch.y, self.weights) + term(r, out, batch.y)

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
