"""FedMix that sorts clients: golden values of section 7.2 of the specification, rounds against a
loop of `nn.Module` and `torch.optim`, and how well clients are sorted.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import Reference, assert_params, average, descent, module_of, owned, trained
from support import cohort_of, executors, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.experts import expert_seed
from fedlib.engine.task import Batch
from fedlib.report import recovery
from fedlib.run import evaluate

JOINT = torch.tensor([[-2, -1, -3, -2.5], [-1.5, -1.2, -2, -3]]).double()
EXPERTS = 3


def make(**params):
    params = {"num_experts": EXPERTS, "server_lr": 0.05} | params
    return methods.load("fedmix_clients")(task=tiny_task(norm=True), local=sgd(), **params)


def batch_of(size, mask=None):
    return Batch(torch.zeros(size, 4), torch.zeros(size), torch.arange(size), mask)


def test_the_closed_form_of_pi_and_its_damping_are_those_of_the_specification():
    uniform = torch.full((4,), 1 / 4).double()
    whole = make(num_experts=4, damping=1.0).renewed(uniform, JOINT, batch_of(2))
    damped = make(num_experts=4).renewed(uniform, JOINT, batch_of(2))
    # Means (-1.75, -1.1, -2.5, -2.75); four digits are printed.
    expected = torch.tensor([0.2663, 0.5100, 0.1258, 0.0980]).double()
    torch.testing.assert_close(whole, expected, rtol=0, atol=6e-5)
    expected = torch.tensor([0.2541, 0.3150, 0.2189, 0.2120]).double()
    torch.testing.assert_close(damped, expected, rtol=0, atol=6e-5)


class Client:
    """Networks, gate and pi of one client, and the solver that it keeps for the whole run."""

    def __init__(self, hand, task, drawn):
        self.nets = [module_of(task, params) for params in drawn]
        self.A = torch.zeros(6, len(drawn)).double().requires_grad_()
        self.b = torch.zeros(len(drawn)).double().requires_grad_()
        self.pi = torch.ones(len(drawn)).double() / len(drawn)
        weights = [p for net in self.nets for p in net.parameters()]
        self.solvers = [descent([*weights, self.A, self.b], hand.solver)]

    def log_gate(self, pi, features):
        pooled = sum(w * h for w, h in zip(pi, features, strict=True))
        return (pooled @ self.A + self.b).log_softmax(-1)

    def loss(self, x, y, beta, damping):
        features = [net.body(x) for net in self.nets]
        pairs = zip(self.nets, features, strict=True)
        losses = [cross_entropy(net.head(h), y, reduction="none") for net, h in pairs]
        likelihoods = -torch.stack(losses, dim=1)
        with torch.no_grad():
            joint = likelihoods + self.log_gate(self.pi, features)
            found = (joint.mean(0) / beta).softmax(-1)
            self.pi = (1 - damping) * self.pi + damping * found
        joint = likelihoods + self.log_gate(self.pi, features)
        return -(self.pi * joint).sum(1).mean()

    def predict(self, x):
        with torch.no_grad():
            features = [net.eval().body(x) for net in self.nets]
            gate = self.log_gate(self.pi, features).exp()
            pairs = zip(self.nets, features, strict=True)
            outputs = [net.head(h).softmax(-1) for net, h in pairs]
        return sum(gate[:, e : e + 1] * output for e, output in enumerate(outputs))


def server_step(net, optimiser, clients, weights, e):
    """Adam on the weighted mean difference of expert e; weighted means of running statistics."""
    mean = average([client.nets[e].state_dict() for client in clients], weights)
    for name, value in net.named_parameters():
        value.grad = value.detach() - mean[name]
    optimiser.step()
    for name, value in net.named_buffers():
        if name in mean:
            value.copy_(mean[name])


def by_hand(federation, task, **settings):
    """(shared experts, clients) after all rounds."""
    hand = Reference(federation)
    drawn = [task.init(expert_seed(0, e)) for e in range(EXPERTS)]
    shared = [module_of(task, params) for params in drawn]
    servers = [torch.optim.Adam(net.parameters(), lr=0.05) for net in shared]
    clients = {c: Client(hand, task, drawn) for c in hand.seen}

    def client(c, number):
        own = clients[c]
        for net, source in zip(own.nets, shared, strict=True):
            net.load_state_dict(source.state_dict())
            net.train()
        hand.fit(c, number, own.solvers, lambda b: own.loss(b.x, b.y, **settings))

    def server(ids):
        for e, net in enumerate(shared):
            mass = torch.stack([hand.sizes[c] * clients[c].pi[e] for c in ids])
            server_step(net, servers[e], clients.values(), mass / mass.sum(), e)

    hand.rounds(client, server)
    return shared, clients


@executors
def test_rounds_are_those_of_a_loop_in_plain_pytorch(executor):
    federation, task = toy_federation(), tiny_task(norm=True)
    settings = {"beta": 0.5, "damping": 0.3}
    shared, clients = by_hand(federation, task, **settings)
    params = {"num_experts": EXPERTS, "server_lr": 0.05} | settings
    method, state = trained("fedmix_clients", task, federation, executor, **params)
    for e, net in enumerate(shared):
        assert_params(tree.take(state.experts, e), net.state_dict())
    cohort = cohort_of(task, federation, executor=executor)
    found = cohort.score(method.predict, method.personalise(state, cohort), split="test")
    for (c, client), row in zip(clients.items(), found, strict=True):
        torch.testing.assert_close(state.pi[c], client.pi)
        assert_params(tree.take(state.private, c), {"A": client.A.detach(), "b": client.b.detach()})
        for net, source in zip(client.nets, shared, strict=True):
            net.load_state_dict(source.state_dict())
        x, _ = owned(federation, c, "test")
        torch.testing.assert_close(row.exp(), client.predict(x))
    # A new shard is predicted by all seen clients, in proportion to their examples.
    newcomers = cohort_of(task, federation, federation.ids("unseen"), executor=executor)
    found = newcomers.score(method.predict, method.anybody(state, newcomers), split="test")[0]
    with torch.no_grad():
        x, _ = owned(federation, 3, "test")
        features = [net.eval().body(x) for net in shared]
        gates = [client.log_gate(client.pi, features).exp() for client in clients.values()]
        gate = sum(p * gate for p, gate in zip(Reference(federation).weights, gates, strict=True))
        outputs = [net.head(h).softmax(-1) for net, h in zip(shared, features, strict=True)]
    expected = sum(gate[:, e : e + 1] * output for e, output in enumerate(outputs))
    torch.testing.assert_close(found.exp(), expected)


def test_new_clients_find_a_gate_and_a_pi_and_leave_the_experts_alone():
    federation = toy_federation()
    method = make(gate_epochs=5)
    state = method.init(federation.num_clients, 0)
    state = method.round(state, cohort_of(method.task, federation))
    before = tree.clone(state.experts)
    newcomers = cohort_of(method.task, federation, federation.ids("unseen"))
    found = method.welcome(state, newcomers)
    for name, value in before.items():  # running statistics among them
        assert torch.equal(state.experts[name], value)
        assert torch.equal(found.experts[name][0], value)
    assert found.gate["A"].any()
    torch.testing.assert_close(found.pooling.sum(1), torch.ones(1).double())
    assert not torch.allclose(found.pooling, torch.full((1, EXPERTS), 1 / 3).double())


# -- sorting --------------------------------------------------------------------------------


def test_the_true_clusters_are_measured_where_there_are_any():
    federation, task = replace(toy_federation(), cluster=np.array([0, 1, 1, 0])), tiny_task()
    method = methods.load("fedmix_clients")(task=task, local=sgd(), num_experts=2)
    state = method.init(federation.num_clients, 0)

    def cohort_for(data):
        return lambda group: cohort_of(task, data) if group == "seen" else None

    found = evaluate.final(method, state, cohort_for(federation)).diagnostics
    assert found["cluster"].tolist() == [0, 1, 1, 0]
    assert found["pi"].shape == (4, 2)
    without = replace(federation, cluster=None)
    assert "cluster" not in evaluate.final(method, state, cohort_for(without)).diagnostics


def test_clients_are_assigned_to_the_expert_of_highest_weight():
    pi = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
    assert recovery.assigned(pi).tolist() == [1, 0, 0]
    assert recovery.saturation(pi) == pytest.approx((0.8 + 0.5 + 1) / 3)
