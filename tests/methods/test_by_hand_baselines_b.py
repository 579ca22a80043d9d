"""APFL, q-FFL, AFL and the mixture of gated experts against independent loops of `nn.Module` and
`torch.optim`, and golden values of the specification (sections 2.9 and 8.3).
"""

import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
import torch
from reference import SOLVER, Reference, assert_params, module_of, predicted, trained
from support import clients_with, cohort_of, executors, run, sgd, tiny_task, toy_federation
from test_by_hand import golden_federation, tensors
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.schedules import Schedule
from fedlib.engine.task import Task
from fedlib.errors import DataError
from fedlib.methods.gated_experts import GatedExperts
from fedlib.models.layers.gate import Gate
from fedlib.run.scoring import score


@executors
@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_apfl(executor, alpha):
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
    method, state = trained("apfl", task, federation, executor, alpha=alpha)
    assert_params(state.params, hand.shared)
    for c in hand.seen:
        assert_params(tree.take(state.models, c), v[c].state_dict())
        x, _ = hand.shard(c, "test")
        with torch.no_grad():
            mixed = interpolated(v[c], module_of(task, hand.shared))
            expected = functional_call(v[c].eval(), mixed, x).softmax(-1)
        torch.testing.assert_close(predicted(method, state, federation, c, executor), expected)


@executors
@pytest.mark.parametrize("lam", [0.3, 2.0])
def test_ditto(executor, lam):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)
    own = {c: module_of(task, hand.shared) for c in hand.seen}
    solvers = {c: hand.solvers[c] + hand.solvers_of(own[c]) for c in hand.seen}

    def client(c, number):
        w, v = hand.receive(c), own[c]
        received = [p.detach().clone() for p in w.parameters()]

        def loss(batch):
            pairs = zip(v.parameters(), received, strict=True)
            away = sum(((p - r) ** 2).sum() for p, r in pairs)
            both = cross_entropy(w(batch.x), batch.y) + cross_entropy(v(batch.x), batch.y)
            return both + lam / 2 * away

        hand.fit(c, number, solvers[c], loss)

    hand.rounds(client)
    _, state = trained("ditto", task, federation, executor, lam=lam)
    assert_params(state.params, hand.shared)
    for c in hand.seen:
        assert_params(tree.take(state.models, c), own[c].state_dict())


@executors
def test_known_clusters(executor):
    federation, task = toy_federation(sizes=(7, 12, 6, 11, 10)), tiny_task(norm=True)
    cluster = np.array([0, 1, 0, 1, 1])
    hand = Reference(federation, task)
    shared = {number: hand.shared for number in (0, 1)}

    def client(c, number):
        hand.nets[c].load_state_dict(shared[cluster[c]], strict=False)
        hand.learn(c, number)

    def server(ids):
        for number in (0, 1):
            members = {c: hand.nets[c] for c in ids if cluster[c] == number}
            shared[number] = hand.average(members)

    hand.rounds(client, server)
    known = replace(federation, cluster=cluster)
    _, state = trained("oracle_clusters", task, known, executor, num_clusters=2)
    for number in (0, 1):
        assert_params(tree.take(state.by_cluster, number), shared[number])


def test_known_clusters_must_be_there_and_have_a_model_each():
    method = methods.load("oracle_clusters")(task=tiny_task(), local=sgd(), num_clusters=2)
    with pytest.raises(DataError, match="needs true clusters, which this federation has not"):
        run(method, toy_federation(), 1)
    three = replace(toy_federation(), cluster=np.array([0, 1, 2, 0]))
    with pytest.raises(DataError, match="num_clusters must be at least 3, .* got 2"):
        run(method, three, 1)


@executors
def test_pooled_data(executor):
    federation, task = toy_federation(sizes=(7, 12, 7, 10)), tiny_task(norm=True)
    seen = federation.ids("seen")
    rows = np.concatenate([federation.train.of(c) for c in seen])
    owned = [(rows, federation.test.of(0))]
    one = clients_with(federation.x, federation.y, owned, federation.num_classes)
    hand = Reference(one, task)
    hand.rounds(hand.learn)
    _, state = trained("pooled", task, federation, executor)
    assert_params(state.params, hand.shared)


@executors
@pytest.mark.parametrize("q", [0.5, 2.0])
def test_qffl(executor, q):
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
    _, state = trained("qffl", task, federation, executor, q=q)
    assert_params(state.params, hand.shared)


def test_the_server_update_of_section_2_9():
    # Delta = (1, 1.5), h = (11, 14), so w = 1 - 2.5 / 25.
    method = methods.load("qffl")(task=tiny_task(), local=sgd(lr=0.1), q=1.0)
    w = {"w": torch.tensor(1.0).double()}
    clients = [(0.9, 1.0, 1.0, 11), (0.7, 0.5, 1.5, 14)]
    sent = []
    for v, loss, delta, h in clients:
        v, loss = torch.tensor(v).double(), torch.tensor(loss).double()
        sent.append(method.report(w, {"w": v}, loss))
        assert float(sent[-1][0]["w"]) == pytest.approx(delta)
        assert float(sent[-1][1]) == pytest.approx(h)
    assert float(method.update(w, *tree.stack(sent))["w"]) == pytest.approx(0.9)


def nearest_on_simplex(v):
    """By bisection on the amount that is taken off."""
    low, high = v.min() - 1, v.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (v - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (v - low).clamp(min=0)


@executors
def test_afl(executor):
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
    state = run(method, federation, rounds, executor=executor)
    assert_params(state.params, shared.state_dict())
    torch.testing.assert_close(state.lambdas[hand.seen], lambdas)


def test_clients_outside_the_cohort_keep_their_weight_in_afl():
    method = methods.load("afl")(task=tiny_task(), local=sgd(), lr_lambda=0.05)
    federation = toy_federation()
    lambdas = method.round(method.init(4, 0), cohort_of(method.task, federation, [0, 2])).lambdas
    assert lambdas[1] == pytest.approx(12 / 25) and lambdas[3] == 0  # who is unseen
    assert float(lambdas.sum()) == pytest.approx(1)
    assert lambdas[0] != pytest.approx(7 / 25)


@executors
@pytest.mark.parametrize("norm", [False, True])
def test_gated_experts(executor, norm):
    # The gate normalises in either case.
    federation, task, experts = toy_federation(), tiny_task(norm=norm), 3
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
    method, state = trained("gated_experts", task, federation, executor, **params)
    newcomers = cohort_of(task, federation, federation.ids("unseen"), executor=executor)
    welcomed = tree.take(method.welcome(state, newcomers), 0)
    for e in range(experts):
        assert_params(tree.take(welcomed["experts"], e), averaged[e])
    assert_params(welcomed["gate"], hand.average(gates))
    for c in hand.seen:
        own = tree.take(state.models, c)
        assert_params(own["expert"], nets[c][-1].state_dict())
        assert_params(own["gate"], gates[c].state_dict())
        x, _ = hand.shard(c, "test")
        with torch.no_grad():
            modules = [*(module_of(task, params) for params in averaged[:-1]), nets[c][-1]]
            weights = gates[c].eval()(x).softmax(-1)
            outputs = enumerate(net.eval()(x).softmax(-1) for net in modules)
            mixed = sum(weights[:, [e]] * output for e, output in outputs)
        torch.testing.assert_close(predicted(method, state, federation, c, executor), mixed)


class Affine(nn.Module):
    """Section 8.3: an expert."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Identity(), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x))


class WithLinearGate(GatedExperts):
    """Section 8.3: the baseline with a gate that is a single layer."""

    @cached_property
    def gate(self):
        return Task(lambda: nn.Linear(3, 2), dtype=torch.float64)


@executors
def test_gated_experts_local_step_of_section_8_3(executor):
    task = Task(Affine, dtype=torch.float64)
    params = {"num_experts": 2, "gate_features": 3}
    method = WithLinearGate(task=task, local=sgd(lr=0.1, batch_size=3), **params)
    experts = tensors(
        {
            "head.weight": [[[0.2, 0.1, -0.1], [0, 0.3, 0.2]], [[0.1, 0, 0.3], [-0.2, 0.1, 0]]],
            "head.bias": [[0.05, -0.05], [0, 0]],
        }
    )
    gate = tensors({"weight": [[0.1, 0.2, 0.3], [0, -0.1, 0.2]], "bias": [0, 0.1]})
    own = {"expert": tree.take(experts, 1), "gate": gate}
    shared = tree.take(experts, slice(1))
    state = method.init(1, 0)._replace(experts=shared, models=tree.repeat(own, 1))
    cohort = cohort_of(task, golden_federation(), executor=executor)

    before = score(method, method.personalise(state, cohort), cohort, "test")
    assert before.loss[0] == pytest.approx(0.669999, abs=1e-6)
    assert before.correct[0] == 2

    trained = tree.take(method.personalise(method.round(state, cohort), cohort), 0)["experts"]
    golden = tensors(
        {
            "head.weight": [
                [[0.200466, 0.080321, -0.069317], [-0.000476, 0.319659, 0.169312]],
                [[0.096533, -0.014154, 0.315014], [-0.196528, 0.114149, -0.015029]],
            ],
            "head.bias": [[0.040852, -0.040852], [-0.009817, 0.009817]],
        }
    )
    for name, expected in golden.items():
        torch.testing.assert_close(trained[name], expected, rtol=0, atol=1e-6, msg=name)
