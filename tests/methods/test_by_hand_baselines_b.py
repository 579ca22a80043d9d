"""APFL, q-FFL, AFL and the mixture of gated experts against independent loops of `nn.Module` and
`torch.optim`, and golden values of the specification (sections 2.9 and 8.3).
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import (
    SOLVER,
    Reference,
    assert_params,
    assert_predicts,
    assert_rows,
    distance,
    mixed,
    module_of,
    says,
    trained,
)
from support import clients_with, cohort_of, run, sgd, tiny_task, toy_federation
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.schedules import Schedule
from fedlib.errors import DataError
from fedlib.models.layers.gate import Gate


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_apfl(alpha):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)  # whose modules are those that are shared
    v = {c: module_of(task, hand.shared) for c in hand.seen}
    solvers = {c: hand.solvers[c] + hand.solvers_of(v[c]) for c in hand.seen}

    def interpolated(own, other):
        pairs = zip(own.named_parameters(), other.parameters(), strict=True)
        return {name: alpha * a + (1 - alpha) * b.detach() for (name, a), b in pairs}

    def client(c, number):
        g = hand.receive(c)

        def loss(batch):
            # Parameters that are not those of v, running statistics that are.
            mixed = functional_call(v[c], interpolated(v[c], g), batch.x)
            return cross_entropy(mixed, batch.y) + cross_entropy(g(batch.x), batch.y)

        hand.fit(c, number, solvers[c], loss)

    hand.rounds(client)
    method, state = trained("apfl", task, federation, alpha=alpha)
    assert_params(state.params, hand.shared)
    assert_rows(state.models, v)

    def expected(c, x):
        mixed = interpolated(v[c], module_of(task, hand.shared))
        return functional_call(v[c].eval(), mixed, x).softmax(-1).detach()

    assert_predicts(method, state, hand, expected)


@pytest.mark.parametrize("lam", [0.3, 2.0])
def test_ditto(lam):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)
    own = {c: module_of(task, hand.shared) for c in hand.seen}
    solvers = {c: hand.solvers[c] + hand.solvers_of(own[c]) for c in hand.seen}

    def client(c, number):
        w, v = hand.receive(c), own[c]
        received = copy.deepcopy(w)

        def loss(batch):
            both = cross_entropy(w(batch.x), batch.y) + cross_entropy(v(batch.x), batch.y)
            return both + lam / 2 * distance(v, received)

        hand.fit(c, number, solvers[c], loss)

    hand.rounds(client)
    _, state = trained("ditto", task, federation, lam=lam)
    assert_params(state.params, hand.shared)
    assert_rows(state.models, own)


def test_known_clusters():
    federation, task = toy_federation(sizes=(7, 12, 6, 11, 10)), tiny_task(norm=True)
    cluster = np.array([0, 1, 0, 1, 1])
    hand = Reference(federation, task)
    shared = {number: hand.shared for number in (0, 1)}

    def client(c, number):
        hand.nets[c].load_state_dict(shared[cluster[c]], strict=False)
        hand.learn(c, number)

    def server(ids):
        for number in (0, 1):
            shared[number] = hand.average({c: hand.nets[c] for c in ids if cluster[c] == number})

    hand.rounds(client, server)
    known = replace(federation, cluster=cluster)
    _, state = trained("oracle_clusters", task, known, num_clusters=2)
    assert_rows(state.by_cluster, shared)


def test_known_clusters_must_be_there_and_have_a_model_each():
    method = methods.load("oracle_clusters")(task=tiny_task(), local=sgd(), num_clusters=2)
    with pytest.raises(DataError, match="needs true clusters, which this federation lacks"):
        run(method, toy_federation(), 1)
    three = replace(toy_federation(), cluster=np.array([0, 1, 2, 0]))
    with pytest.raises(DataError, match="num_clusters must be at least 3, .* got 2"):
        run(method, three, 1)


def test_pooled_data():
    federation, task = toy_federation(sizes=(7, 12, 7, 10)), tiny_task(norm=True)
    rows = np.concatenate([federation.train.of(c) for c in federation.ids("seen")])
    owned = [(rows, federation.test.of(0))]
    one = clients_with(federation.x, federation.y, owned, federation.num_classes)
    hand = Reference(one, task)
    hand.rounds(hand.learn)
    _, state = trained("pooled", task, federation)
    assert_params(state.params, hand.shared)


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_qffl(q):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand, lipschitz, sent = Reference(federation, task), 1 / 0.1, []

    def client(c, number):
        net, shared = hand.receive(c), hand.shared
        x, y = hand.shard(c)
        with torch.no_grad():
            loss = float(cross_entropy(net.eval()(x), y)) + 1e-10
        net.train()
        hand.learn(c, number)
        dw = {n: lipschitz * (shared[n] - p.detach()) for n, p in net.named_parameters()}
        squares = sum(float((d**2).sum()) for d in dw.values())
        h = q * loss ** (q - 1) * squares + lipschitz * loss**q
        sent.append(({n: loss**q * d for n, d in dw.items()}, h))

    def server(ids):
        deltas, hs = zip(*sent, strict=True)
        moved = {n: hand.shared[n] - sum(d[n] for d in deltas) / sum(hs) for n in deltas[0]}
        # Of the modules the running statistics are taken.
        hand.shared = {**hand.average(hand.nets), **moved}
        sent.clear()

    hand.rounds(client, server)
    _, state = trained("qffl", task, federation, q=q)
    assert_params(state.params, hand.shared)


def nearest_on_simplex(v):
    """By bisection on the amount that is taken off."""
    low, high = v.min() - 1, v.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (v - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (v - low).clamp(min=0)


def test_afl():
    federation, task, rounds, lr_lambda = toy_federation(), tiny_task(norm=True), 6, 0.1
    solver = sgd(schedule=Schedule("multi_step", milestones=(3, 5), factor=0.1))
    hand = Reference(federation)
    shared = module_of(task, task.init(0))
    [(optimiser, scheduler)] = hand.solvers_of(shared)  # falls after rounds 3 and 5
    lambdas = torch.tensor(hand.weights, dtype=torch.float64)
    for number in range(rounds):
        nets, losses = {c: copy.deepcopy(shared) for c in hand.seen}, []
        for c, net in nets.items():
            batch = next(hand.batches(c, number))
            net.zero_grad()
            losses.append(cross_entropy(net(batch.x), batch.y))
            losses[-1].backward()
        own = (net.parameters() for net in nets.values())
        for p, *clients in zip(shared.parameters(), *own, strict=True):
            p.grad = sum(weight * x.grad for weight, x in zip(lambdas, clients, strict=True))
        optimiser.step()
        scheduler.step()
        statistics = {n for n, _ in shared.named_buffers()}
        averaged = {n: v for n, v in hand.average(nets).items() if n in statistics}
        shared.load_state_dict(averaged, strict=False)
        lambdas = nearest_on_simplex(lambdas + lr_lambda * torch.stack(losses).detach())
    method = methods.load("afl")(task=task, local=solver, lr_lambda=lr_lambda)
    state = run(method, federation, rounds, executor="batched")
    assert_params(state.params, shared.state_dict())
    torch.testing.assert_close(state.lambdas[hand.seen], lambdas)


def test_clients_outside_the_cohort_keep_their_weight_in_afl():
    method = methods.load("afl")(task=tiny_task(), local=sgd(), lr_lambda=0.05)
    federation = toy_federation()
    lambdas = method.round(method.init(4, 0), cohort_of(method.task, federation, [0, 2])).lambdas
    assert lambdas[1] == pytest.approx(12 / 25) and lambdas[3] == 0  # who is unseen
    assert float(lambdas.sum()) == pytest.approx(1)
    assert lambdas[0] != pytest.approx(7 / 25)


def test_gated_experts():
    federation, task, experts = toy_federation(), tiny_task(norm=True), 3
    hand = Reference(federation)
    params = {"num_experts": experts, "gate_features": 4}
    method = methods.load("gated_experts")(task=task, local=SOLVER, **params)
    one = cohort_of(task, federation, [0])
    start = tree.take(method.personalise(method.init(federation.num_clients, 0), one), 0)
    drawn = tree.unstack(start["experts"])
    nets, gates, solvers = {}, {}, {}
    for c in hand.seen:
        gates[c] = Gate(4, experts).double()
        gates[c].load_state_dict(start["gate"], strict=False)
        nets[c] = [module_of(task, params) for params in drawn]
        solvers[c] = hand.solvers_of(*nets[c], gates[c])
    averaged = list(drawn)

    def client(c, number):
        for net, params in zip(nets[c][:-1], averaged[:-1], strict=True):
            net.load_state_dict(params, strict=False)

        def loss(batch):
            weights = gates[c](batch.x).softmax(-1)
            each = [cross_entropy(net(batch.x), batch.y, reduction="none") for net in nets[c]]
            return (weights * torch.stack(each, 1)).sum(1).mean()

        hand.fit(c, number, solvers[c], loss)

    def server(ids):
        averaged[:] = [hand.average({c: nets[c][e] for c in ids}) for e in range(experts)]

    hand.rounds(client, server)
    method, state = trained("gated_experts", task, federation, **params)
    newcomers = cohort_of(task, federation, federation.ids("unseen"))
    welcomed = tree.take(method.welcome(state, newcomers), 0)
    assert_rows(welcomed["experts"], averaged)
    assert_params(welcomed["gate"], hand.average(gates))
    for c in hand.seen:
        own = tree.take(state.models, c)
        assert_params(own["expert"], nets[c][-1].state_dict())
        assert_params(own["gate"], gates[c].state_dict())
    shared = [module_of(task, params) for params in averaged[:-1]]
    expected = lambda c, x: mixed([*shared, nets[c][-1]], says(gates[c], x), x)  # noqa: E731
    assert_predicts(method, state, hand, expected)
