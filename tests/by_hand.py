"""What the loops of `nn.Module` and `torch.optim` share that test each method's rounds.

They have nothing in common with the engine but the order of the batches, which is drawn.
"""

import pytest
import torch
from support import TinyNet, cohort_of, sgd

from fedlib import methods
from fedlib.engine.batches import draw_batches
from fedlib.engine.schedules import Schedule

ROUNDS, EPOCHS = 3, 2
SOLVER = sgd(epochs=EPOCHS, schedule=Schedule("multi_step", milestones=(3, 5), factor=0.1))


class ByHand:
    """Clients with real modules, optimisers and schedulers that live for the whole run."""

    def __init__(self, federation, norm=True):
        self.federation, self.norm = federation, norm
        self.seen = federation.ids("seen").tolist()
        sizes = federation.train.sizes[self.seen]
        self.weights = (sizes / sizes.sum()).tolist()

    def module(self, params):
        net = TinyNet(4, 3, norm=self.norm).double()
        net.load_state_dict(params, strict=False)
        return net

    def optimiser(self, groups, momentum=0.9):
        optimiser = torch.optim.SGD(groups, lr=0.1, momentum=momentum, weight_decay=5e-4)
        return optimiser, torch.optim.lr_scheduler.MultiStepLR(optimiser, [3, 5], 0.1)

    def batches(self, client, number, stream="fit", solver=SOLVER):
        """(epoch ended, x, y, positions) in the order that the streams draw."""
        n = int(self.federation.train.sizes[client])
        batches = draw_batches(n, solver, 0, number, stream, client)
        for position, step in enumerate(batches.steps):
            index = batches.order[step.start : step.stop]
            rows = self.federation.train.of(client)[index]
            last = (
                position + 1 == len(batches.steps)
                or batches.steps[position + 1].epoch != step.epoch
            )
            x, y = (torch.from_numpy(a[rows]) for a in (self.federation.x, self.federation.y))
            yield last, x, y, torch.from_numpy(index)

    def shard(self, client, split="train"):
        rows = self.federation.split(split).of(client)
        return torch.from_numpy(self.federation.x[rows]), torch.from_numpy(self.federation.y[rows])

    def average(self, modules):
        """Parameters and running statistics by number of training examples."""
        dicts = [m.state_dict() for m in modules]
        names = [n for n, v in dicts[0].items() if v.is_floating_point()]
        return {n: sum(w * d[n] for w, d in zip(self.weights, dicts, strict=True)) for n in names}


def assert_params(ours, theirs):
    for name, value in theirs.items():
        if value.is_floating_point():
            # Float64; a few dozen steps through batch normalisation.
            torch.testing.assert_close(ours[name], value, rtol=1e-9, atol=1e-11, msg=name)


def train(name, task, federation, executor, **params):
    method = methods.load(name)(task=task, local=SOLVER, **params)
    state = method.init(federation.num_clients, 0)
    for number in range(ROUNDS):
        state = method.round(state, cohort_of(task, federation, executor=executor, round=number))
    return method, state


executors = pytest.mark.parametrize("executor", ["loop", "batched"])
