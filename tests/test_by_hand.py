"""Each method's rounds against an independent loop of `nn.Module` and `torch.optim`, and the golden
values of the specification (sections 2.11, 8.2 and 8.3), which come from the official code.

The loops share nothing with the engine but the order of the batches, which is drawn.
"""

import copy

import numpy as np
import pytest
import torch
from by_hand import EPOCHS, ROUNDS, SOLVER, ByHand, assert_params, executors, train
from support import cohort_of, sgd, tiny_task, toy_federation
from torch import nn
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.experts import responsibilities
from fedlib.engine.task import Task
from fedlib.federation import Federation, Split


@executors
@pytest.mark.parametrize("mu", [None, 0.7])
def test_fedavg_and_fedprox(executor, mu):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    shared = task.init(0)
    nets = {c: hand.module(shared) for c in hand.seen}
    solvers = {c: hand.optimiser(net.parameters()) for c, net in nets.items()}
    for number in range(ROUNDS):
        for c, net in nets.items():
            net.load_state_dict(shared, strict=False)
            optimiser, scheduler = solvers[c]
            anchor = [p.detach().clone() for p in net.parameters()]
            for last, x, y, _ in hand.batches(c, number):
                optimiser.zero_grad()
                loss = cross_entropy(net(x), y)
                if mu is not None:
                    pairs = zip(net.parameters(), anchor, strict=True)
                    loss = loss + mu / 2 * sum(((p - a) ** 2).sum() for p, a in pairs)
                loss.backward()
                optimiser.step()
                if last:
                    scheduler.step()
        shared = hand.average(nets.values())
    name, params = ("fedavg", {}) if mu is None else ("fedprox", {"mu": mu})
    _, state = train(name, task, federation, executor, **params)
    assert_params(state.params, shared)


@executors
def test_local(executor):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    _, state = train("local", task, federation, executor)
    for c in hand.seen:
        net = hand.module(task.init(0))
        optimiser, scheduler = hand.optimiser(net.parameters())
        for number in range(ROUNDS):
            for last, x, y, _ in hand.batches(c, number):
                optimiser.zero_grad()
                cross_entropy(net(x), y).backward()
                optimiser.step()
                if last:
                    scheduler.step()
        assert_params(tree.take(state.models, c), net.state_dict())


@executors
@pytest.mark.parametrize("mode", ["persistent", "fresh"])
def test_fedavg_plus_fine_tunes_with_an_old_or_a_new_solver(executor, mode):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    method = methods.load("fedavg_plus")(task=task, local=SOLVER)
    state = method.init(federation.num_clients, 0)
    globals_ = []
    for number in range(ROUNDS):  # an evaluation after every round
        state = method.round(state, cohort_of(task, federation, executor=executor, round=number))
        everyone = cohort_of(task, federation, executor=executor, round=number + 1)
        state = method.observe(state, everyone, "seen")
        globals_.append(state.trained.params)
    ours = method.personalise(state, everyone)
    if mode == "fresh":
        ours = method.adapt(state, everyone)
    for c in hand.seen:
        net = hand.module(task.init(0))
        optimiser, scheduler = hand.optimiser(net.parameters())
        if mode == "fresh":  # a new solver at the rate that training has reached
            for _ in range(ROUNDS * EPOCHS):
                optimiser.step()
                scheduler.step()
        for number in range(ROUNDS) if mode == "persistent" else [ROUNDS - 1]:
            net.load_state_dict(globals_[number], strict=False)
            for last, x, y, _ in hand.batches(c, number + 1, "tune"):
                optimiser.zero_grad()
                cross_entropy(net(x), y).backward()
                optimiser.step()
                if last:
                    scheduler.step()
        assert_params(tree.take(ours, c), net.state_dict())


@executors
def test_fresh_fine_tuning_of_absent_and_unseen_clients_is_at_the_rate_of_training(executor):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = ByHand(federation)
    method = methods.load("fedavg_plus")(task=task, local=SOLVER)
    state = method.init(federation.num_clients, 0)
    for number in range(ROUNDS):
        present = hand.seen if number == 0 else hand.seen[1:]  # the first one stays away
        cohort = cohort_of(task, federation, present, executor=executor, round=number)
        state = method.round(state, cohort)
    absent, [unseen] = hand.seen[0], federation.ids("unseen")
    cohort = cohort_of(task, federation, [absent, unseen], executor=executor, round=ROUNDS)
    ours = method.adapt(state, cohort)
    for row, c in enumerate((absent, unseen)):
        net = hand.module(state.trained.params)
        # 6 epochs were trained, which is past both milestones, 3 and 5; the absent one did 2.
        optimiser = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
        for _, x, y, _ in hand.batches(c, ROUNDS, "tune"):
            optimiser.zero_grad()
            cross_entropy(net(x), y).backward()
            optimiser.step()
        assert_params(tree.take(ours, row), net.state_dict())


@executors
def test_fedem(executor):
    federation, task, experts = toy_federation(), tiny_task(norm=True), 2
    hand = ByHand(federation)
    shared = [task.init(e) for e in range(experts)]
    nets = {c: [hand.module(s) for s in shared] for c in hand.seen}
    solvers = {c: [hand.optimiser(n.parameters()) for n in ns] for c, ns in nets.items()}
    pi = {c: torch.full((experts,), 1 / experts).double() for c in hand.seen}
    for number in range(ROUNDS):
        for c, learners in nets.items():
            x_all, y_all = hand.shard(c)
            losses = []
            for net, params in zip(learners, shared, strict=True):
                net.load_state_dict(params, strict=False)
                with torch.no_grad():
                    losses.append(cross_entropy(net.eval()(x_all), y_all, reduction="none"))
            q = torch.softmax(pi[c].log()[:, None] - torch.stack(losses), dim=0)
            pi[c] = q.mean(1)
            for e, net in enumerate(learners):
                optimiser, scheduler = solvers[c][e]
                for last, x, y, index in hand.batches(c, number):
                    optimiser.zero_grad()
                    weighted = q[e][index] * cross_entropy(net.train()(x), y, reduction="none")
                    (weighted.sum() / len(y)).backward()
                    optimiser.step()
                    if last:
                        scheduler.step()
        shared = [hand.average([nets[c][e] for c in hand.seen]) for e in range(experts)]
    params = {"num_experts": experts, "expert_seeds": "official"}
    method, state = train("fedem", task, federation, executor, **params)
    for e in range(experts):
        assert_params(tree.take(state.experts, e), shared[e])
    for c in hand.seen:
        torch.testing.assert_close(state.pi[c], pi[c])
        x, _ = hand.shard(c, "test")
        with torch.no_grad():
            nets_now = [hand.module(params).eval() for params in shared]
            mixed = sum(w * net(x).softmax(-1) for w, net in zip(pi[c], nets_now, strict=True))
        cohort = cohort_of(task, federation, [c], executor=executor)
        predicted = cohort.score(method.predict, method.personalise(state, cohort), split="test")
        torch.testing.assert_close(predicted[0].exp(), mixed)


@executors
@pytest.mark.parametrize("relu_logits", [False, True])
def test_pfedmm(executor, relu_logits):
    federation, task, experts = toy_federation(), tiny_task(norm=True), 3
    hand = ByHand(federation)
    method = methods.load("pfedmm")(
        task=task, local=SOLVER, num_experts=experts, relu_logits=relu_logits
    )
    start = method.init(federation.num_clients, 0)
    body, heads = start.experts["body"], tree.unstack(start.experts["heads"])
    # Every client owns one body and E heads; the body's rate is E times the heads'.
    own = {}
    for c in hand.seen:
        nets = [hand.module({**body, **head}) for head in heads]
        for net in nets[1:]:
            net.body = nets[0].body
        groups = [{"params": nets[0].body.parameters(), "lr": 0.1 * experts}]
        groups += [{"params": net.head.parameters()} for net in nets]
        own[c] = nets, *hand.optimiser(groups)
    pi = {c: torch.full((experts,), 1 / experts).double() for c in hand.seen}
    activate = nn.functional.relu if relu_logits else lambda logits: logits
    for number in range(ROUNDS):
        for c, (nets, optimiser, scheduler) in own.items():
            for net, head in zip(nets, heads, strict=True):
                net.load_state_dict({**body, **head}, strict=False)
            x_all, y_all = hand.shard(c)
            with torch.no_grad():
                nets[0].body.eval()
                outputs = [activate(net.head(net.body(x_all))) for net in nets]
            losses = [cross_entropy(out, y_all, reduction="none") for out in outputs]
            q = torch.softmax(pi[c].log()[:, None] - torch.stack(losses), dim=0)
            pi[c] = q.mean(1)
            nets[0].body.train()
            for last, x, y, index in hand.batches(c, number):
                optimiser.zero_grad()
                features = nets[0].body(x)
                loss = 0
                for e, net in enumerate(nets):
                    each = cross_entropy(activate(net.head(features)), y, reduction="none")
                    loss = loss + (q[e][index] * each).sum() / len(y)
                loss.backward()
                optimiser.step()
                if last:
                    scheduler.step()
        averaged = [hand.average([own[c][0][e] for c in hand.seen]) for e in range(experts)]
        body = {n: v for n, v in averaged[0].items() if n.startswith("body.")}
        heads = [{n: v for n, v in a.items() if n.startswith("head.")} for a in averaged]
    _, state = train(
        "pfedmm", task, federation, executor, num_experts=experts, relu_logits=relu_logits
    )
    assert_params(state.experts["body"], body)
    for e in range(experts):
        assert_params(tree.take(state.experts["heads"], e), heads[e])
    for c in hand.seen:
        torch.testing.assert_close(state.pi[c], pi[c])


# -- golden values of the official code ---------------------------------------------------


class TinyLinear(nn.Module):
    """Section 8.3: a linear backbone and a linear head."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.body(x))


def golden_federation():
    """Section 8.3: one client with three examples, which are one batch; tested on the same."""
    x = np.array([[1.0, 0, 2], [0, 1, -1], [1, 1, 0]])
    y = np.array([0, 1, 1])
    return Federation(
        x=np.concatenate([x, x]),
        y=np.concatenate([y, y]),
        num_classes=2,
        train=Split.from_lists([[0, 1, 2]]),
        val=Split.from_lists([[]]),
        test=Split.from_lists([[3, 4, 5]]),
        group=np.zeros(1, np.uint8),
        client_id=np.zeros(1, np.int64),
    )


def golden_state(method):
    body = {"body.weight": [[0.2, 0.1, -0.1], [0, 0.3, 0.2]], "body.bias": [0.05, -0.05]}
    heads = {
        "head.weight": [[[1, 0], [0, 1]], [[0.5, -0.5], [-0.5, 0.5]]],
        "head.bias": [[0, 0], [0.1, -0.1]],
    }
    as_tensors = {
        part: {name: torch.tensor(v, dtype=torch.float64) for name, v in values.items()}
        for part, values in (("body", body), ("heads", heads))
    }
    return method.init(1, 0)._replace(experts=as_tensors)


def golden_method():
    task = Task(TinyLinear, dtype=torch.float64)
    solver = sgd(lr=0.1, batch_size=3)
    return methods.load("pfedmm")(task=task, local=solver, num_experts=2)


def test_posterior_of_section_2_11():
    losses = torch.tensor([[0.854355, 0.798139, 0.744397], [0.744397, 0.913015, 0.854355]]).double()
    q = responsibilities(torch.tensor([0.5, 0.5]).double(), losses.T)
    expected = torch.tensor([0.472538, 0.528688, 0.527462]).double()
    torch.testing.assert_close(q[:, 0], expected, rtol=0, atol=1e-6)
    pi = torch.tensor([0.509563, 0.490437]).double()
    torch.testing.assert_close(q.mean(0), pi, rtol=0, atol=1e-6)


@executors
def test_pfedmm_local_step_of_section_8_3(executor):
    method, federation = golden_method(), golden_federation()
    cohort = cohort_of(method.task, federation, executor=executor)
    state = golden_state(method)
    losses = cohort.score(lambda batch: method.losses(state.experts, batch))[0]
    expected = torch.tensor([[0.854355, 0.798139, 0.744397], [0.744397, 0.913015, 0.854355]])
    torch.testing.assert_close(losses.T, expected.double(), rtol=0, atol=1e-6)

    from fedlib.run.evaluate import score

    # "Before" is after the E-step, before the gradient step.
    before = score(method, method.refresh(state, cohort), cohort, "test")
    assert before.loss[0] == pytest.approx(0.816188, abs=1e-6)
    assert before.correct[0] == 0

    after = method.round(state, cohort)
    golden = {
        "body.weight": [[0.199980, 0.025243, 0.011314], [0, 0.374717, 0.088676]],
        "body.bias": [0.011804, -0.011804],
        "head.weight": [
            [[0.994749, 0.000375], [0.005201, 0.999575]],
            [[0.494918, -0.499477], [-0.494918, 0.499477]],
        ],
        "head.bias": [[-0.009872, 0.009872], [0.090771, -0.090771]],
    }
    trained = {**after.experts["body"], **after.experts["heads"]}
    for name, value in golden.items():
        expected = torch.tensor(value, dtype=torch.float64)
        torch.testing.assert_close(trained[name], expected, rtol=0, atol=1e-6, msg=name)
    pi = torch.tensor([[0.509563, 0.490437]]).double()
    torch.testing.assert_close(after.pi, pi, rtol=0, atol=1e-6)


def test_damped_and_renormalised_averages_of_section_8_2():
    federation = toy_federation(sizes=(50, 30, 20), unseen=0)
    task = tiny_task()
    local = torch.tensor([1.0, 3.0]).double()
    for aggregation, expected in (("damped", 0.5 * 1 + 0.2 * 3), ("renormalised", 11 / 7)):
        cohort = cohort_of(task, federation, [0, 2], aggregation=aggregation)
        averaged = cohort.average({"w": local}, {"w": torch.zeros(()).double()})
        assert averaged["w"] == pytest.approx(expected)


def test_running_statistics_are_averaged_like_parameters_and_are_never_trained():
    federation, task = toy_federation(sizes=(8, 4), unseen=0), tiny_task(norm=True)
    hand = ByHand(federation)
    nets = [hand.module(task.init(0)).train() for _ in hand.seen]
    solver = sgd(lr=0.0)
    for c, net in zip(hand.seen, nets, strict=True):
        batches = draw_batches(int(federation.train.sizes[c]), solver, 0, 0, "fit", c)
        for step in batches.steps:
            rows = federation.train.of(c)[batches.order[step.start : step.stop]]
            net(torch.from_numpy(federation.x[rows]))
    method = methods.load("fedavg")(task=task, local=solver)
    state = method.round(method.init(2, 0), cohort_of(task, federation))
    assert_params(state.params, hand.average(copy.deepcopy(nets)))
    assert not task.trainable(state.params).keys() & task.statistics
