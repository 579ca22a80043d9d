"""Rounds of FedMix against loops of `nn.Module` and `torch.optim`, expert by expert.

What is pruned is really left out here, where the method masks it.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import EPOCHS, ROUNDS, Reference, descent, executors, module_of
from support import cohort_of, sgd, tiny_task, toy_federation

from fedlib import methods, tree

LR, SERVER_LR = 0.2, 0.3
LABELS, FEATURES = 3, 6  # of TinyNet
SOLVER = sgd(lr=LR, epochs=EPOCHS, momentum=0.0, weight_decay=0.0)


class FedMixByHand(Reference):
    """Algorithms 1 and 2, one client, expert and number at a time."""

    def __init__(self, federation, task, state, num_experts, eta, values):
        super().__init__(federation, solver=SOLVER)
        self.eta, self.values = eta, values
        self.num_experts = num_experts
        self.experts = [module_of(task, params) for params in tree.unstack(state.experts)]
        self.phi = state.phi.clone().requires_grad_()
        self.adams = [torch.optim.Adam(net.parameters(), lr=SERVER_LR) for net in self.experts]
        self.adam_phi = torch.optim.Adam([self.phi], lr=SERVER_LR)
        clients = range(federation.num_clients)
        zeros = torch.zeros(FEATURES, num_experts), torch.zeros(num_experts)
        self.gates = {c: [x.double() for x in zeros] for c in clients}
        self.stored = {c: [1 / num_experts] * num_experts for c in clients}
        self.sent, self.returned, self.done = 0, 0, {}

    def kept(self, q, received):
        return [k for k in received if float(q[k]) >= self.eta / self.num_experts - 1e-15]

    def of_client(self, client):
        return torch.from_numpy(self.values[self.federation.train.of(client)])

    def marginal(self, client, table):
        counts = torch.bincount(self.of_client(client), minlength=len(table)).double()
        return (counts / counts.sum()) @ table

    def client(self, client, number):
        """Keeps (experts, table, marginal, numbers of the experts that are returned)."""
        threshold = 0.9 * self.eta / self.num_experts
        received = [k for k, q in enumerate(self.stored[client]) if q >= threshold]
        nets = copy.deepcopy(self.experts)
        phi = self.phi.detach().clone().requires_grad_()
        gate = [x.clone().requires_grad_() for x in self.gates[client]]
        parameters = [p for net in nets for p in net.parameters()]

        def loss(batch):
            given, y = self.of_client(client)[batch.index], batch.y
            table = phi.softmax(1)
            q = self.marginal(client, table).detach()
            kept = self.kept(q, received)
            assert kept  # here nobody is left without
            features = {k: nets[k].body(batch.x) for k in kept}
            pooled = sum(q[k] / q[kept].sum() * features[k] for k in kept)
            log_gate = (pooled @ gate[0] + gate[1]).log_softmax(1)
            total = (table[given] * log_gate).sum(1)
            for k in kept:
                log_p = nets[k].head(features[k]).log_softmax(1)[torch.arange(len(y)), y]
                total = total + table[given, k] / table[given][:, kept].sum(1) * log_p
            return -total.mean()

        self.fit(client, number, [descent([*parameters, phi, *gate], self.solver)], loss)
        self.gates[client] = [x.detach() for x in gate]
        q = self.marginal(client, phi.detach().softmax(1))
        returned = self.kept(q, received)
        self.sent, self.returned = self.sent + len(received), self.returned + len(returned)
        self.done[client] = nets, phi.detach(), q, returned

    def server(self, ids):
        done = [self.done[client] for client in ids]
        for client, (_, _, q, _) in zip(self.seen, done, strict=True):
            self.stored[client] = q.tolist()
        for k in range(self.num_experts):
            mass = [
                p * float(q[k] / q[returned].sum()) if k in returned else 0.0
                for p, (_, _, q, returned) in zip(self.weights, done, strict=True)
            ]
            if sum(mass) == 0:
                continue
            theirs = [nets[k].parameters() for nets, *_ in done]
            for ours, *others in zip(self.experts[k].parameters(), *theirs, strict=True):
                differences = [m * (ours - o).detach() for m, o in zip(mass, others, strict=True)]
                ours.grad = sum(differences) / sum(mass)
            self.adams[k].step()
        mean = self.phi.softmax(1).mean(0)
        entropy = -(mean * mean.log()).sum()
        (slope,) = torch.autograd.grad(entropy, self.phi)
        moved = zip(self.weights, (phi for _, phi, *_ in done), strict=True)
        self.phi.grad = sum(p * (self.phi - phi).detach() for p, phi in moved) - slope
        self.adam_phi.step()


def both(federation, executor, eta, values, **params):
    """(method's state, loop, numbers sent down and up) after some rounds of each."""
    task = tiny_task()
    method = methods.load("fedmix")(
        task=task, local=SOLVER, num_experts=3, server_lr=SERVER_LR, pruning=eta, **params
    )
    state = method.init(federation.num_clients, 0)
    loop = FedMixByHand(federation, task, state, 3, eta, values)
    loop.rounds(loop.client, loop.server)
    down = up = 0
    for number in range(ROUNDS):
        cohort = cohort_of(task, federation, executor=executor, round=number)
        state = method.round(state, cohort)
        down, up = down + cohort.journal.down, up + cohort.journal.up
    return state, loop, (down, up)


def assert_equal(state, loop):
    # Float64; Adam divides differences by their size, which magnifies rounding.
    close = {"rtol": 1e-7, "atol": 1e-9}
    for e, net in enumerate(loop.experts):
        for name, value in net.named_parameters():
            torch.testing.assert_close(state.experts[name][e], value.detach(), **close)
    torch.testing.assert_close(state.phi, loop.phi.detach(), **close)
    for client in range(len(state.marginal)):
        for name, value in zip("Ab", loop.gates[client], strict=True):
            torch.testing.assert_close(state.private["gate"][name][client], value, **close)
        stored = torch.tensor(loop.stored[client], dtype=torch.float64)
        torch.testing.assert_close(state.marginal[client], stored, **close)


def skewed(sizes=(9, 12, 10, 11)):
    """Clients that lack labels, so that their marginals differ: 0 and 1, 1 and 2, 2 and 0, any."""
    federation = toy_federation(sizes=sizes)
    y = federation.y.copy()
    for client, lacks in enumerate((2, 0, 1)):
        rows = federation.train.of(client)
        y[rows] = np.where(y[rows] == lacks, (lacks + 1) % LABELS, y[rows])
    return replace(federation, y=y)


@executors
def test_rounds_without_pruning(executor):
    federation = toy_federation()
    state, loop, (down, up) = both(federation, executor, 0.0, federation.y)
    assert_equal(state, loop)
    model = tree.numel(tree.take(state.experts, 0))
    assert (down, up) == (ROUNDS * (3 * model + 9),) * 2


@executors
@pytest.mark.parametrize("eta", [0.9, 0.97])
def test_rounds_with_pruning(executor, eta):
    federation = skewed()
    state, loop, (down, up) = both(federation, executor, eta, federation.y)
    assert_equal(state, loop)
    everything = ROUNDS * len(loop.seen) * 3
    assert loop.returned < loop.sent < everything
    model, clients = tree.numel(tree.take(state.experts, 0)), len(loop.seen)
    assert down == pytest.approx(loop.sent * model / clients + ROUNDS * 9, rel=1e-12)
    assert up == pytest.approx(loop.returned * model / clients + ROUNDS * 9, rel=1e-12)


@executors
def test_rounds_conditioned_on_side_information(executor):
    federation = toy_federation()
    side = np.random.default_rng(5).integers(0, 4, len(federation.y))
    federation = replace(federation, side=side)
    state, loop, _ = both(federation, executor, 0.0, side, condition="side", num_sides=4)
    assert state.phi.shape == (4, 3)
    assert_equal(state, loop)
