"""Each method's rounds against an independent loop of `nn.Module` and `torch.optim`, and the golden
values of the specification (sections 2.11, 8.2 and 8.3), which come from the official code.

The loops share nothing with the engine but the order of the batches, which is drawn.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import (
    ADAM,
    EPOCHS,
    ROUNDS,
    SOLVER,
    Reference,
    assert_params,
    assert_predicts,
    assert_rows,
    cross_entropy_of,
    descent,
    distance,
    learn,
    mixed,
    module_of,
    owned,
    trained,
)
from support import clients_with, cohort_of, everybody_of, run, sgd, tiny_task, toy_federation
from torch import nn
from torch.nn.functional import cross_entropy

from fedlib import methods, tree
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.experts import expert_seed
from fedlib.engine.graphs import Graphs
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced
from fedlib.results import View
from fedlib.run import evaluate


@pytest.mark.parametrize("mu", [None, 0.7])
def test_fedavg_and_fedprox(mu):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)

    def client(c, number):
        net = hand.receive(c)
        received = copy.deepcopy(net)

        def loss(batch):
            return cross_entropy(net(batch.x), batch.y) + (mu or 0) / 2 * distance(net, received)

        hand.fit(c, number, hand.solvers[c], loss)

    hand.rounds(client)
    name, params = ("fedavg", {}) if mu is None else ("fedprox", {"mu": mu})
    _, state = trained(name, task, federation, **params)
    assert_params(state.params, hand.shared)


class Added(nn.Module):
    """Two biases that are only added, as in an LSTM: they have one gradient."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6, bias=False), nn.Linear(6, 3)
        self.a, self.b = nn.Parameter(torch.rand(6)), nn.Parameter(torch.rand(6))

    def forward(self, x):
        return self.head(torch.tanh(self.body(x) + (self.a + self.b)))


@pytest.mark.parametrize("executor", [Loop, Traced, Batched, lambda: Batched(2), Graphs])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_parameters_that_share_a_gradient_decay_each_by_itself(executor, momentum):
    federation, task = toy_federation(), Task(Added, dtype=torch.float64)
    solver = replace(SOLVER, momentum=momentum, weight_decay=0.1)
    cohorts = [0, 1], [0, 1, 2], [1, 2]  # so that clients are at different rates
    hand = Reference(federation, task, solver)

    def client(c, number):
        hand.receive(c)
        hand.learn(c, number)

    hand.rounds(client, cohorts=cohorts)
    method = methods.load("fedavg")(task=task, local=solver)
    state = run(method, federation, cohorts, executor=executor(), aggregation="renormalised")
    assert_params(state.params, hand.shared)


def test_local():
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)
    hand.rounds(hand.learn)
    _, state = trained("local", task, federation)
    assert_rows(state.models, hand.nets)


@pytest.mark.parametrize("mode", ["persistent", "fresh"])
def test_fedavg_plus_fine_tunes_with_an_old_or_a_new_solver(mode):
    federation, task = toy_federation(), tiny_task(norm=True)
    hand = Reference(federation, task)
    method = methods.load("fedavg_plus")(task=task, local=SOLVER)
    state = method.init(federation.num_clients, 0)
    globals_ = []
    for number in range(ROUNDS):  # an evaluation after every round
        state = method.round(state, cohort_of(task, federation, executor="batched", round=number))
        everyone = cohort_of(task, federation, executor="batched", round=number + 1)
        state = method.observe(state, everyone, "seen")
        globals_.append(state.trained.params)
    ours = method.personalise(state, everyone)
    if mode == "fresh":
        ours = method.adapt(state, everyone)
    for c, net in hand.nets.items():
        [(optimiser, scheduler)] = hand.solvers[c]
        if mode == "fresh":  # a new solver at the rate that training has reached
            for _ in range(ROUNDS * EPOCHS):
                optimiser.step()
                scheduler.step()
        for number in range(ROUNDS) if mode == "persistent" else [ROUNDS - 1]:
            net.load_state_dict(globals_[number], strict=False)
            hand.learn(c, number + 1, "tune")
        assert_params(tree.take(ours, c), net.state_dict())


@pytest.mark.parametrize(
    ("local", "tuned", "solver"),
    [
        # 6 epochs were trained, which is past both milestones, 3 and 5; the absent one did 2.
        (SOLVER, {}, sgd(epochs=EPOCHS, lr=0.001)),
        (sgd(steps=1), {"tune_epochs": 3, "tune_lr_scale": 0.5}, sgd(epochs=3, lr=0.05)),
    ],
    ids=["rate of training", "epochs and rate of its own"],
)
def test_fresh_fine_tuning_of_absent_and_unseen_clients(local, tuned, solver):
    federation, task = toy_federation(), tiny_task(norm=True)
    seen, [unseen] = federation.ids("seen").tolist(), federation.ids("unseen")
    method, absent = methods.load("fedavg_plus")(task=task, local=local, **tuned), seen[0]
    cohorts = [seen, *[seen[1:]] * (ROUNDS - 1)]  # the first one stays away
    state = run(method, federation, cohorts, executor="batched")
    cohort = cohort_of(task, federation, [absent, unseen], executor="batched", round=ROUNDS)
    ours = method.adapt(state, cohort)
    for row, c in enumerate((absent, unseen)):
        net = module_of(task, state.trained.params)
        examples = owned(federation, c)
        learn(net.parameters(), cross_entropy_of(net), *examples, solver, ROUNDS, "tune", c)
        assert_params(tree.take(ours, row), net.state_dict())


def test_before_fine_tuning_all_clients_have_the_model_of_fedavg():
    federation, task = toy_federation(), tiny_task(norm=True)
    everybody = everybody_of(task, federation)
    plus, fedavg = (
        evaluate.final(*trained(name, task, federation), everybody).scores
        for name in ("fedavg_plus", "fedavg")
    )
    for group in ("seen", "unseen"):
        default, untuned = (View(group, protocol, "test") for protocol in ("default", "untuned"))
        assert plus[untuned].loss.tolist() == fedavg[default].loss.tolist()
        assert plus[default].loss.tolist() != fedavg[default].loss.tolist()


@pytest.mark.parametrize("solver", [SOLVER, ADAM], ids=["sgd", "adam"])
def test_fedem(solver):
    federation, task, experts = toy_federation(), tiny_task(norm=True), 2
    hand = Reference(federation, solver=solver)
    shared = [task.init(expert_seed(0, e)) for e in range(experts)]
    nets = {c: [module_of(task, s) for s in shared] for c in hand.seen}
    solvers = {c: [hand.solvers_of(net) for net in own] for c, own in nets.items()}
    pi = {c: torch.full((experts,), 1 / experts).double() for c in hand.seen}

    def each(net, x, y):
        return cross_entropy(net(x), y, reduction="none")

    def client(c, number):
        for net, params in zip(nets[c], shared, strict=True):
            net.load_state_dict(params, strict=False)
        with torch.no_grad():
            losses = [each(net.eval(), *hand.shard(c)) for net in nets[c]]
        q = torch.softmax(pi[c].log()[:, None] - torch.stack(losses), dim=0)
        pi[c] = q.mean(1)
        for e, net in enumerate(nets[c]):
            net.train()
            loss = lambda b, e=e, net=net: (q[e][b.index] * each(net, b.x, b.y)).mean()  # noqa: E731
            hand.fit(c, number, solvers[c][e], loss)

    def server(ids):
        shared[:] = [hand.average({c: nets[c][e] for c in ids}) for e in range(experts)]

    hand.rounds(client, server)
    method, state = trained("fedem", task, federation, num_experts=experts, local=solver)
    assert_rows(state.experts, shared)
    for c in hand.seen:
        torch.testing.assert_close(state.pi[c], pi[c])
    averaged = [module_of(task, params) for params in shared]
    assert_predicts(method, state, hand, lambda c, x: mixed(averaged, pi[c], x))


class PFedMM(Reference):
    """Algorithm 1: a body and E heads a client."""

    def __init__(self, federation, method, body, heads):
        super().__init__(federation, solver=method.local)
        self.task, self.heads, self.method = method.task, heads, method
        self.own = {c: self.client_of({**body, **heads[0]}) for c in self.seen}
        self.body = body
        self.pi = {c: torch.full((len(heads),), 1 / len(heads)).double() for c in self.seen}

    def client_of(self, params):
        """Modules that have one body, and their solver: the body's rate is higher by a factor."""
        nets = [module_of(self.task, params) for _ in self.heads]
        for net in nets[1:]:
            net.body = nets[0].body
        rate = self.solver.lr * (self.method.body_lr_scale or len(nets))
        groups = [{"params": nets[0].body.parameters(), "lr": rate}]
        groups += [{"params": net.head.parameters()} for net in nets]
        return nets, [descent(groups, self.solver)]

    def losses(self, nets, x, y):
        features = nets[0].body(x)
        outputs = [net.head(features) for net in nets]
        if self.method.relu_logits:
            outputs = [output.relu() for output in outputs]
        return torch.stack([cross_entropy(out, y, reduction="none") for out in outputs])

    def responsibilities(self, nets, pi, x, y):
        for net in nets:
            net.eval()
        with torch.no_grad():
            return torch.softmax(pi.log()[:, None] - self.losses(nets, x, y), dim=0)

    def client(self, c, number):
        nets, solvers = self.own[c]
        for net, head in zip(nets, self.heads, strict=True):
            net.load_state_dict({**self.body, **head}, strict=False)
        prior = torch.ones(len(nets)) if self.method.prior == "uniform" else self.pi[c]
        q = self.responsibilities(nets, prior, *self.shard(c))
        counted = q.sum(1) + self.method.concentration - 1  # of a Dirichlet prior
        self.pi[c] = counted / counted.sum()
        for net in nets:
            net.train()
        loss = lambda b: (q[:, b.index] * self.losses(nets, b.x, b.y)).mean(1).sum()  # noqa: E731
        self.fit(c, number, solvers, loss)

    def server(self, ids):
        means = [self.average({c: self.own[c][0][e] for c in ids}) for e in range(len(self.heads))]
        self.body = {name: means[0][name] for name in self.body}
        pairs = zip(means, self.heads, strict=True)
        self.heads = [{n: mean[n] for n in head} for mean, head in pairs]


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"relu_logits": True}, {"prior": "uniform", "concentration": 3.0}, {"local": ADAM}),
        {"body_lr_scale": 1.5},
    ],
    ids=["", "relu", "prior", "adam", "rate"],
)
def test_pfedmm(settings):
    federation, task, experts = toy_federation(), tiny_task(norm=True), 3
    method, state = trained("pfedmm", task, federation, num_experts=experts, **settings)
    start = method.init(4, 0).experts
    hand = PFedMM(federation, method, start["body"], tree.unstack(start["heads"]))
    hand.rounds(hand.client, hand.server)
    assert_params(state.experts["body"], hand.body)
    assert_rows(state.experts["heads"], hand.heads)
    for c in hand.seen:
        torch.testing.assert_close(state.pi[c], hand.pi[c])


def test_unseen_clients_carry_their_weights_from_one_evaluation_to_the_next():
    federation = toy_federation()
    method, state = trained("fedem", tiny_task(), federation, num_experts=3)
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=ROUNDS)
    once = method.observe(state, unseen, "unseen")
    twice = method.observe(once, unseen, "unseen")
    # Fresh weights know nothing of earlier evaluations; carried ones sharpen each time.
    torch.testing.assert_close(once.pi[unseen.ids], method.welcome(twice, unseen)[1])
    assert twice.pi[unseen.ids].max() > once.pi[unseen.ids].max()


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
    both = np.concatenate([x, x]), np.concatenate([y, y])
    return clients_with(*both, [([0, 1, 2], [3, 4, 5])], 2)


def tensors(values):
    return {name: torch.tensor(v, dtype=torch.float64) for name, v in values.items()}


def golden_state(method):
    body = {"body.weight": [[0.2, 0.1, -0.1], [0, 0.3, 0.2]], "body.bias": [0.05, -0.05]}
    heads = {
        "head.weight": [[[1, 0], [0, 1]], [[0.5, -0.5], [-0.5, 0.5]]],
        "head.bias": [[0, 0], [0.1, -0.1]],
    }
    return method.init(1, 0)._replace(experts={"body": tensors(body), "heads": tensors(heads)})


def golden_method():
    task = Task(TinyLinear, dtype=torch.float64)
    return methods.load("pfedmm")(task=task, local=sgd(lr=0.1, batch_size=3), num_experts=2)


def test_pfedmm_local_step_of_section_8_3():
    method, federation = golden_method(), golden_federation()
    cohort = cohort_of(method.task, federation, executor="batched")
    state = golden_state(method)
    losses = cohort.score(lambda batch: method.losses(state.experts, batch))[0]
    expected = torch.tensor([[0.854355, 0.798139, 0.744397], [0.744397, 0.913015, 0.854355]])
    torch.testing.assert_close(losses.T, expected.double(), rtol=0, atol=1e-6)

    from fedlib.run.scoring import score

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
    for name, expected in tensors(golden).items():
        torch.testing.assert_close(trained[name], expected, rtol=0, atol=1e-6, msg=name)
    pi = torch.tensor([[0.509563, 0.490437]]).double()
    torch.testing.assert_close(after.pi, pi, rtol=0, atol=1e-6)
