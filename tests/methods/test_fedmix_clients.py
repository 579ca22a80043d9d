"""FedMix that sorts clients: golden values of section 7.2 of the specification, rounds against a
loop of `nn.Module` and `torch.optim`, and how well clients are sorted.
"""

from dataclasses import replace

import numpy as np
import torch
from reference import (
    Reference,
    assert_params,
    assert_predicts,
    average,
    descent,
    mixed,
    module_of,
    trained,
)
from support import cohort_of, everybody_of, run, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.experts import expert_seed
from fedlib.run import evaluate

EXPERTS = 3


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


def test_rounds_are_those_of_a_loop_in_plain_pytorch():
    federation, task = toy_federation(), tiny_task(norm=True)
    settings = {"beta": 0.5, "damping": 0.3}
    shared, clients = by_hand(federation, task, **settings)
    params = {"num_experts": EXPERTS, "server_lr": 0.05} | settings
    method, state = trained("fedmix_clients", task, federation, **params)
    for e, net in enumerate(shared):
        assert_params(tree.take(state.experts, e), net.state_dict())
    for c, client in clients.items():
        torch.testing.assert_close(state.pi[c], client.pi)
        assert_params(tree.take(state.private, c), {"A": client.A.detach(), "b": client.b.detach()})
    hand = Reference(federation)

    def gate(client, x):
        return client.log_gate(client.pi, [net.eval().body(x) for net in shared]).exp()

    def anybody(c, x):
        """All seen clients, in proportion to their examples."""
        gates = zip(hand.weights, clients.values(), strict=True)
        return mixed(shared, sum(p * gate(client, x) for p, client in gates), x)

    expected = lambda c, x: mixed(shared, gate(clients[c], x), x)  # noqa: E731
    assert_predicts(method, state, hand, expected)
    assert_predicts(method, state, hand, anybody, [3], "anybody")  # a new shard


def test_new_clients_find_a_gate_and_a_pi_and_leave_the_experts_alone():
    federation = toy_federation()
    params = {"num_experts": EXPERTS, "server_lr": 0.05, "gate_epochs": 5}
    method = methods.load("fedmix_clients")(task=tiny_task(norm=True), local=sgd(), **params)
    state = run(method, federation, 1)
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
    found = evaluate.final(method, state, everybody_of(task, federation)).diagnostics
    assert found["cluster"].tolist() == [0, 1, 1, 0]
    assert found["pi"].shape == (4, 2)
    without = replace(federation, cluster=None)
    assert "cluster" not in evaluate.final(method, state, everybody_of(task, without)).diagnostics
