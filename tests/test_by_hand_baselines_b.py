"""APFL, q-FFL, AFL and the mixture of gated experts against independent loops of `nn.Module` and
`torch.optim`, and golden values of the specification (sections 2.9 and 8.3).
"""

import copy
from functools import cached_property

import pytest
import torch
from by_hand import ROUNDS, SOLVER, ByHand, assert_params, executors, train
from support import cohort_of, sgd, tiny_task, toy_federation
from test_by_hand import golden_federation
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.schedules import Schedule
from fedlib.engine.task import Task
from fedlib.methods.gated_experts import GatedExperts
from fedlib.models.layers.gate import Gate
from fedlib.run.evaluate import score


@executors
@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_apfl(executor, alpha):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    shared = task.init(0)
    g = {c: hand.module(shared) for c in hand.seen}
    v = {c: hand.module(shared) for c in hand.seen}
    solvers = {c: [hand.optimiser(net[c].parameters()) for net in (g, v)] for c in hand.seen}

    def interpolated(own, other):
        pairs = zip(own.named_parameters(), other.parameters(), strict=True)
        return {name: alpha * a + (1 - alpha) * b.detach() for (name, a), b in pairs}

    for number in range(ROUNDS):
        for c in hand.seen:
            g[c].load_state_dict(shared, strict=False)
            for last, x, y, _ in hand.batches(c, number):
                # Parameters that are not those of v, running statistics that are.
                own_loss = cross_entropy(functional_call(v[c], interpolated(v[c], g[c]), x), y)
                for loss, (optimiser, scheduler) in zip(
                    (cross_entropy(g[c](x), y), own_loss), solvers[c], strict=True
                ):
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    if last:
                        scheduler.step()
        shared = hand.average([g[c] for c in hand.seen])
    method, state = train("apfl", task, federation, executor, alpha=alpha)
    assert_params(state.params, shared)
    for c in hand.seen:
        assert_params(tree.take(state.models, c), v[c].state_dict())
        x, _ = hand.shard(c, "test")
        with torch.no_grad():
            mixed = interpolated(v[c], hand.module(shared))
            expected = functional_call(v[c].eval(), mixed, x).softmax(-1)
        cohort = cohort_of(task, federation, [c], executor=executor)
        predicted = cohort.score(method.predict, method.personalise(state, cohort), split="test")
        torch.testing.assert_close(predicted[0].exp(), expected)


@executors
@pytest.mark.parametrize("q", [0.5, 2.0])
def test_qffl(executor, q):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    shared, lipschitz = task.init(0), 1 / 0.1
    nets = {c: hand.module(shared) for c in hand.seen}
    solvers = {c: hand.optimiser(net.parameters()) for c, net in nets.items()}
    for number in range(ROUNDS):
        deltas, hs = [], []
        for c, net in nets.items():
            net.load_state_dict(shared, strict=False)
            x, y = hand.shard(c)
            with torch.no_grad():
                loss = float(cross_entropy(net.eval()(x), y)) + 1e-10
            optimiser, scheduler = solvers[c]
            net.train()
            for last, x, y, _ in hand.batches(c, number):
                optimiser.zero_grad()
                cross_entropy(net(x), y).backward()
                optimiser.step()
                if last:
                    scheduler.step()
            dw = {n: lipschitz * (shared[n] - p.detach()) for n, p in net.named_parameters()}
            deltas.append({n: loss**q * d for n, d in dw.items()})
            squares = sum(float((d**2).sum()) for d in dw.values())
            hs.append(q * loss ** (q - 1) * squares + lipschitz * loss**q)
        averaged = hand.average(nets.values())  # of which the running statistics are taken
        moved = {n: shared[n] - sum(d[n] for d in deltas) / sum(hs) for n in deltas[0]}
        shared = {**averaged, **moved}
    _, state = train("qffl", task, federation, executor, q=q)
    assert_params(state.params, shared)


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
    hand = ByHand(federation)
    server = hand.module(task.init(0))
    optimiser, scheduler = hand.optimiser(server.parameters())  # falls after rounds 3 and 5
    lambdas = torch.tensor(hand.weights, dtype=torch.float64)
    for number in range(rounds):
        nets, losses = [copy.deepcopy(server) for _ in hand.seen], []
        for c, net in zip(hand.seen, nets, strict=True):
            _, x, y, _ = next(hand.batches(c, number))
            net.zero_grad()
            losses.append(cross_entropy(net(x), y))
            losses[-1].backward()
        for p, *own in zip(server.parameters(), *(n.parameters() for n in nets), strict=True):
            p.grad = sum(weight * x.grad for weight, x in zip(lambdas, own, strict=True))
        optimiser.step()
        scheduler.step()
        statistics = {n for n, _ in server.named_buffers()}
        averaged = {n: v for n, v in hand.average(nets).items() if n in statistics}
        server.load_state_dict(averaged, strict=False)
        lambdas = nearest_on_simplex(lambdas + lr_lambda * torch.stack(losses).detach())
    solver = sgd(schedule=Schedule("multi_step", milestones=(3, 5), factor=0.1))
    method = methods.load("afl")(task=task, local=solver, lr_lambda=lr_lambda)
    state = method.init(federation.num_clients, 0)
    for number in range(rounds):
        state = method.round(state, cohort_of(task, federation, executor=executor, round=number))
    assert_params(state.params, server.state_dict())
    torch.testing.assert_close(state.lambdas[hand.seen], lambdas)


@executors
@pytest.mark.parametrize("norm", [False, True])
def test_gated_experts(executor, norm):
    # The gate normalises in either case.
    federation, task, experts = toy_federation(), tiny_task(norm=norm), 3
    hand = ByHand(federation, norm)
    method = methods.load("gated_experts")(
        task=task, local=SOLVER, num_experts=experts, gate_features=4
    )
    one = cohort_of(task, federation, [0])
    start = tree.take(method.personalise(method.init(federation.num_clients, 0), one), 0)
    drawn = tree.unstack(start["experts"])
    clients = {}
    for c in hand.seen:
        gate = Gate(4, experts).double()
        gate.load_state_dict(start["gate"], strict=False)
        nets = [hand.module(params) for params in drawn]
        solvers = [hand.optimiser(module.parameters()) for module in (*nets, gate)]
        clients[c] = nets, gate, solvers
    shared = drawn[:-1]
    for number in range(ROUNDS):
        for c, (nets, gate, solvers) in clients.items():
            for net, params in zip(nets, shared, strict=False):  # not the last
                net.load_state_dict(params, strict=False)
            for last, x, y, _ in hand.batches(c, number):
                weights = gate(x).softmax(-1)
                loss = 0
                for e, net in enumerate(nets):
                    loss = (
                        loss + (weights[:, e] * cross_entropy(net(x), y, reduction="none")).mean()
                    )
                for optimiser, _ in solvers:
                    optimiser.zero_grad()
                loss.backward()
                for optimiser, scheduler in solvers:
                    optimiser.step()
                    if last:
                        scheduler.step()
        averaged = [hand.average([clients[c][0][e] for c in hand.seen]) for e in range(experts)]
        average_gate = hand.average([gate for _, gate, _ in clients.values()])
        shared = averaged[:-1]
    _, state = train(
        "gated_experts", task, federation, executor, num_experts=experts, gate_features=4
    )
    newcomers = cohort_of(task, federation, federation.ids("unseen"), executor=executor)
    welcomed = tree.take(method.welcome(state, newcomers), 0)
    for e in range(experts):
        assert_params(tree.take(welcomed["experts"], e), averaged[e])
    assert_params(welcomed["gate"], average_gate)
    for c, (nets, gate, _) in clients.items():
        own = tree.take(state.models, c)
        assert_params(own["expert"], nets[-1].state_dict())
        assert_params(own["gate"], gate.state_dict())
        x, _ = hand.shard(c, "test")
        with torch.no_grad():
            modules = [hand.module(params).eval() for params in shared] + [nets[-1].eval()]
            weights = gate.eval()(x).softmax(-1)
            mixed = sum(weights[:, [e]] * net(x).softmax(-1) for e, net in enumerate(modules))
        cohort = cohort_of(task, federation, [c], executor=executor)
        predicted = cohort.score(method.predict, method.personalise(state, cohort), split="test")
        torch.testing.assert_close(predicted[0].exp(), mixed)


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
    def tensors(values):
        return {name: torch.tensor(v, dtype=torch.float64) for name, v in values.items()}

    task = Task(Affine, dtype=torch.float64)
    method = WithLinearGate(
        task=task, local=sgd(lr=0.1, batch_size=3), num_experts=2, gate_features=3
    )
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
