"""A federation by hand: a loop over clients, with modules and optimisers of PyTorch.

It shares nothing with the engine but the order of the batches, which is drawn. The test of a method
adds what one client does, and what the server does unless it averages:

    hand = Reference(federation, task)

    def client(c, number):
        hand.receive(c)
        hand.learn(c, number)

    hand.rounds(client)
"""

from typing import NamedTuple

import pytest
import torch
from support import cohort_of, run, sgd
from torch.nn.functional import cross_entropy, nll_loss, softplus

from fedlib import methods, tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import Adam
from fedlib.methods.parts import server_mixture

weighed = pytest.mark.parametrize("weights", [None, torch.tensor([0.2, 1.0, 3.0]).double()])

ROUNDS, EPOCHS = 3, 2
SOLVER = sgd(epochs=EPOCHS, schedule=Schedule("multi_step", milestones=(3, 5), factor=0.1))
ADAM = Adam(lr=0.01, batch_size=4, weight_decay=0.01, epochs=EPOCHS, schedule=SOLVER.schedule)


class Batch(NamedTuple):
    """Some examples of one client."""

    x: torch.Tensor
    y: torch.Tensor
    index: torch.Tensor  # where they are in the client's shard
    key: torch.Tensor  # for random numbers of this step
    last: bool  # of its epoch


def owned(federation, owner, split="train"):
    """Inputs and labels of a client, or of the server."""
    rows = federation.split(split).of(owner)
    return torch.from_numpy(federation.x[rows]), torch.from_numpy(federation.y[rows])


def batches(x, y, solver, *stream):
    """These examples in the order that the stream (round, name, owner) of seed 0 draws."""
    drawn = draw_batches(len(x), solver, 0, *stream)
    ends = [step.epoch for step in drawn.steps[1:]] + [None]
    for step, key, following in zip(drawn.steps, drawn.keys, ends, strict=True):
        index = torch.from_numpy(drawn.order[step.start : step.stop])
        yield Batch(x[index], y[index], index, torch.tensor(key), following != step.epoch)


def module_of(task, params):
    """The task's module in float64, with all of these values."""
    module = task.build().double()
    missing, unknown = module.load_state_dict(params, strict=False)
    assert not unknown and all(name.endswith("num_batches_tracked") for name in missing)
    return module


def values_of(module):
    """Parameters and running statistics by name."""
    return {n: v for n, v in module.state_dict().items() if v.is_floating_point()}


def descent(parameters, solver):
    """PyTorch's optimiser and schedule that a solver stands for."""
    settings = {"lr": solver.lr, "weight_decay": solver.weight_decay}
    if isinstance(solver, Adam):
        optimiser = torch.optim.Adam(parameters, **settings)
    else:
        optimiser = torch.optim.SGD(parameters, momentum=solver.momentum, **settings)
    schedule = solver.schedule
    milestones = schedule.milestones if schedule.kind == "multi_step" else ()
    return optimiser, torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, schedule.factor)


def descend(solvers, examples, loss, clip=None):
    """A step of every solver down `loss(batch)` on each batch; rates fall where epochs end.

    clip: the norm to which the gradients of each solver are clipped together.
    """
    for batch in examples:
        for optimiser, _ in solvers:
            optimiser.zero_grad()
        loss(batch).backward()
        for optimiser, schedule in solvers:
            if clip is not None:
                groups = optimiser.param_groups
                torch.nn.utils.clip_grad_norm_([p for g in groups for p in g["params"]], clip)
            optimiser.step()
            if batch.last:
                schedule.step()


def learn(parameters, loss, x, y, solver, *stream):
    """Descend `loss(batch)` on these examples, as a solver without memory does."""
    descend([descent(parameters, solver)], batches(x, y, solver, *stream), loss, solver.clip_norm)


def cross_entropy_of(module, weights=None):
    """The loss of a batch."""
    return lambda batch: label_loss(module(batch.x), batch.y, weights)


def label_loss(logits, y, weights=None):
    """Mean cross-entropy of examples that weigh as their classes do; PyTorch's divides by that."""
    weigh = 1.0 if weights is None else weights[y]
    return (weigh * cross_entropy(logits, y, reduction="none")).mean()


def distance(net, anchor):
    """Squared, of a module's parameters to those of another."""
    pairs = zip(net.parameters(), anchor.parameters(), strict=True)
    return sum(((p - a.detach()) ** 2).sum() for p, a in pairs)


def average(dicts, weights):
    """Weighted sum of what is in each of several state dicts, where that is not an integer."""
    pairs = list(zip(weights, dicts, strict=True))
    names = [n for n, v in pairs[0][1].items() if v.is_floating_point()]
    return {n: sum(w * d[n] for w, d in pairs) for n in names}


def double_sum(differences, weights):
    """The divergence of updates, pair by pair; who did not move a tensor has no pair in it."""
    total = 0.0
    for d in differences.values():
        d = d.reshape(len(d), -1)
        moved = [i for i in range(len(d)) if d[i].norm() > 0]
        mass = sum(weights[i] for i in moved)
        for i in moved:
            for j in moved:
                cosine = d[i] @ d[j] / (d[i].norm() * d[j].norm())
                total += weights[i] / mass * weights[j] / mass * 0.5 * (1 - cosine)
    return total


class Reference:
    """A server and the clients that train, with solvers that live for the whole run.

    Attributes:
      seen: the clients.
      sizes: {client: number of training examples}
      shared: what the server has, by name.
      nets, solvers: {client: its module}, {client: a list with its solver}
    """

    def __init__(self, federation, task=None, solver=SOLVER, shared=None):
        self.federation, self.solver = federation, solver
        self.seen = federation.ids("seen").tolist()
        self.sizes = {c: int(federation.train.sizes[c]) for c in self.seen}
        self.weights = [n / sum(self.sizes.values()) for n in self.sizes.values()]
        if task is not None:
            self.shared = task.init(0) if shared is None else shared
            self.nets = {c: module_of(task, self.shared) for c in self.seen}
            self.solvers = {c: self.solvers_of(net) for c, net in self.nets.items()}

    def solvers_of(self, *modules):
        return [descent(module.parameters(), self.solver) for module in modules]

    def shard(self, client, split="train"):
        return owned(self.federation, client, split)

    def batches(self, client, number, stream="fit", solver=None):
        x, y = self.shard(client)
        return batches(x, y, solver or self.solver, number, stream, client)

    def fit(self, client, number, solvers, loss, stream="fit"):
        """Local training."""
        descend(solvers, self.batches(client, number, stream), loss, self.solver.clip_norm)

    def learn(self, client, number, stream="fit"):
        """Local training of its module on its labels."""
        self.fit(client, number, self.solvers[client], cross_entropy_of(self.nets[client]), stream)

    def receive(self, client):
        """Its module, which has the server's values now."""
        self.nets[client].load_state_dict(self.shared, strict=False)
        return self.nets[client]

    def aggregate(self, ids):
        """The server's part of FedAvg."""
        self.shared = self.average({c: self.nets[c] for c in ids})

    def rounds(self, client, server=None, cohorts=None):
        """`client(c, number)` of everybody in a cohort, then `server(ids)`, round by round."""
        for number, ids in enumerate(cohorts or [self.seen] * ROUNDS):
            for c in ids:
                client(c, number)
            (server or self.aggregate)(ids)

    def average(self, modules):
        """Of {client: module}, by numbers of training examples."""
        total = sum(self.sizes[c] for c in modules)
        weights = [self.sizes[c] / total for c in modules]
        return average([module.state_dict() for module in modules.values()], weights)


class Mixture:
    """Modules of a mixture of Fed-MoE's kind: routed experts by number, a main one, a gate.

    Attributes:
      own: numbers of the routed experts that are there; without, all.
    """

    def __init__(self, method, model, own=None):
        number = len(next(iter(model["routed"].values())))
        parts = {i: tree.take(model["routed"], i) for i in (range(number) if own is None else own)}
        self.routed = {i: module_of(method.task, part) for i, part in parts.items()}
        self.main = module_of(method.task, tree.take(model["main"], 0))
        self.gate, self.noise = (module_of(method.gate, model[name]) for name in ("gate", "noise"))
        self.alpha = model["alpha"].clone().requires_grad_()

    def trained(self):
        """Of the gate, of its noise and of alpha."""
        return [*self.gate.parameters(), *self.noise.parameters(), self.alpha]

    def learn(self, x, y, solver, *stream):
        """Experts and gate together, by soft noisy gates, whose entropy is weighed by 0.1."""
        experts = [p for net in (*self.routed.values(), self.main) for p in net.parameters()]
        learn([*experts, *self.trained()], self.soft_loss, x, y, solver, *stream)

    def soft_loss(self, batch):
        scale = softplus(self.noise(batch.x)) + 0.01
        p = server_mixture.noisy(self.gate(batch.x), scale, batch.key).softmax(-1)
        main = self.main(batch.x).softmax(-1)
        nobody = torch.full_like(main, 1 / main.shape[1])  # what an expert says that is not there
        said = [
            self.routed[i](batch.x).softmax(-1) if i in self.routed else nobody
            for i in range(p.shape[1])
        ]
        mixed = sum(p[:, [i]] * expert for i, expert in enumerate(said))
        mixed = self.alpha * mixed + (1 - self.alpha) * main
        return nll_loss(mixed.log(), batch.y) - 0.1 * (p * p.log()).sum(-1).mean()

    def shared(self):
        """All but the routed experts, as a method has them."""
        nets = {"gate": self.gate, "noise": self.noise}
        values = {name: dict(net.state_dict()) for name, net in nets.items()}
        main = tree.stack([dict(self.main.state_dict())])
        return values | {"main": main, "alpha": self.alpha.detach()}

    def experts(self):
        """{number: values of the expert}"""
        return {i: dict(net.state_dict()) for i, net in self.routed.items()}


def assert_params(ours, theirs, rtol=1e-9, atol=1e-11):
    """By default as close as float64 stays in a few dozen steps through batch normalisation."""
    for name, value in theirs.items():
        if value.is_floating_point():
            torch.testing.assert_close(ours[name], value, rtol=rtol, atol=atol, msg=name)


def assert_rows(ours, rows):
    """Each row of stacked models; `rows` are modules or their values, in a list or by number."""
    for row, theirs in rows.items() if isinstance(rows, dict) else enumerate(rows):
        values = theirs.state_dict() if isinstance(theirs, torch.nn.Module) else theirs
        assert_params(tree.take(ours, row), values)


def assert_module(ours, module):
    """Also of the same names."""
    assert ours.keys() == values_of(module).keys()
    assert_params(ours, module.state_dict())


def trained(name, task, federation, **params):
    """A method and its state after the rounds."""
    method = methods.load(name)(task=task, **{"local": SOLVER} | params)
    return method, run(method, federation, ROUNDS, executor="batched")


def says(net, x):
    """Probabilities in evaluation mode."""
    with torch.no_grad():
        return net.eval()(x).softmax(-1)


def mixed(nets, weights, x):
    """Probabilities of a mixture with these weights [E] or [B, E]."""
    weights = weights.detach().expand(len(x), -1)
    return sum(weights[:, [e]] * says(net, x) for e, net in enumerate(nets))


def assert_predicts(method, state, hand, of, clients=None, way="personalise"):
    """That clients predict their test examples with the probabilities `of(client, x)`."""
    clients = hand.seen if clients is None else clients
    cohort = cohort_of(method.task, hand.federation, clients)
    found = cohort.score(method.predict, getattr(method, way)(state, cohort), split="test")
    for c, row in zip(clients, found, strict=True):
        torch.testing.assert_close(row.exp(), of(c, hand.shard(c, "test")[0]))


def fedavg(make, federation, solver, rounds):
    """The server's module after rounds of FedAvg with a user's model, in evaluation mode.

    Everybody takes part, by plain SGD. Buffers of integers stay as they are.
    """
    server, sizes = make(), federation.train.sizes
    for number in range(rounds):
        total = dict.fromkeys(server.state_dict(), 0)
        for client, size in enumerate(sizes.tolist()):
            own = make().train()
            own.load_state_dict(server.state_dict())
            optimiser = torch.optim.SGD(own.parameters(), lr=solver.lr)
            for batch in batches(*owned(federation, client), solver, number, "fit", client):
                optimiser.zero_grad()
                cross_entropy(own(batch.x), batch.y).backward()
                optimiser.step()
            total = {name: x + size * own.state_dict()[name] for name, x in total.items()}
        floats = {n: x / sizes.sum() for n, x in total.items() if x.is_floating_point()}
        server.load_state_dict(floats, strict=False)
    return server.eval()
