"""The trial of a user's model against plain PyTorch: what is trained right, and what is refused."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import toy_run
from reference import assert_params, fedavg
from support import assert_same_result, seeded
from torch import nn
from torch.utils.checkpoint import checkpoint

import fedlib
from fedlib import methods
from fedlib.api.reference import loss_of
from fedlib.draws import positions
from fedlib.engine.task import Task, log_probs
from fedlib.errors import ConfigError
from fedlib.methods.fedavg import FedAvg, State
from fedlib.run.build import build_method, build_task

Y = np.arange(64) % 3
X = (np.random.default_rng(0).normal(size=(64, 6)) + np.eye(3, 6)[Y]).astype(np.float32)
X[:, 5] = 0  # padding, where inputs are tokens
SGD = fedlib.SGD(lr=0.1, batch_size=8)


def cut(x=X, sizes=(17, 9), held=(12, 9)):
    """Two clients with so many examples for training and for tests."""
    ends = np.cumsum([0, *sizes, *held])
    *parts, one, two = (slice(*ends) for ends in pairwise(ends.tolist()))
    pairs = [[(x[part], Y[part]) for part in which] for which in (parts, (one, two))]
    return fedlib.Federation.from_arrays(*pairs, num_classes=3)


class Net(nn.Module):
    """A layer, a step between that a test gives, and a head; with state of several kinds."""

    between = staticmethod(lambda model, x: model.first(x))

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.calls, self.same = 0, [self.first.weight]

    def forward(self, x):
        return self.last(self.between(self, x).relu())


def net(between, base=Net):
    return type("Own", (base,), {"between": staticmethod(between)})


def train(model, federation=None, rounds=2, method="fedavg", **options):
    options = {"local": SGD, "executor": "auto", "progress": None} | options
    return fedlib.simulate(federation or cut(), model, method, rounds=rounds, **options)


def ema(model, x):
    if model.training:
        model.mean = 0.9 * model.mean + 0.1 * x.detach().mean(0)
    return model.first(x - model.mean)


class Words(nn.Module):
    """A text model whose padding is token 0."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.table(x.abs().round().long().clamp(max=8)).sum(1))


def normalised(**options):
    return lambda: nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8, **options), nn.ReLU(), nn.Linear(8, 3)
    )


RIGHT = {
    "constant buffer": net(lambda model, x: model.first(x - model.mean)),
    "assigned buffer": net(ema),
    "example minus mean of its batch": net(lambda model, x: model.first(x - x.mean(0))),
    "padding row": Words,
    "batch normalisation": normalised(),
    "batch normalisation without statistics": normalised(track_running_stats=False),
    "branch on a number": net(lambda m, x: m.first(x if x.sum().item() > 0 else -x)),
    "assertion": net(lambda m, x: m.first(x) if torch.isfinite(x).all() else None),
    "list": net(lambda m, x: m.first(x if sum(x.flatten().tolist()) > 0 else -x)),
    "autocast": net(lambda m, x: torch.autocast("cpu", torch.bfloat16)(m.first)(x).float()),
    "float32 only": net(lambda m, x: m.first(x.float())),
}


@pytest.mark.parametrize("executor", ["auto", "traced", "batched"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_model_is_trained_and_evaluated_as_in_plain_pytorch(name, executor):
    single = {"constant buffer": 17, "padding row": 17}  # a batch of 1: no batch normalisation
    federation, make = cut(sizes=(single.get(name, 15), 11)), seeded(RIGHT[name])
    found = train(make, federation, rounds=3, executor=executor)
    expected = fedavg(make, federation, SGD, 3)
    network = found.client_model(0).network
    trained = dict(network.named_parameters()) | dict(network.named_buffers())
    # Float32 has 7 digits; a few steps cost two or three.
    assert_params(trained, expected.state_dict(), rtol=1e-3, atol=1e-4)
    for client in (0, 1):
        rows = federation.test.of(client)
        right = expected(torch.from_numpy(federation.x[rows])).argmax(1)
        share = (right.numpy() == federation.y[rows]).mean()
        assert found.accuracy()[client].iloc[-1] == pytest.approx(share)


def count(model, x):
    model.steps += model.training
    return model.first(x)


def tick(model, x):
    model.calls += 1
    return model.first(x)


GENERATOR = torch.Generator()


def draw_by_own(model, x):
    return model.first(x) + model.training * torch.rand(8, generator=GENERATOR)


def switch(model, x):
    if model.training:
        model.seen = [*getattr(model, "seen", []), x.detach().mean()]
    return model.first(x) / (1 + len(getattr(model, "seen", [])))


def by_data(model, x):
    if model.training:
        model.mean.data = 0.9 * model.mean.data + 0.1 * x.mean(0)
    return model.first(x - model.mean)


def in_evaluation(model, x):
    model.mean.add_(1e-9)
    return model.first(x)


class Counting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


class Masked(Net):
    """Has another mask each time it is made."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.rand(6) > 0.5)


REFUSED = {
    "num_batches_tracked": normalised(momentum=None),
    "steps.*int64": net(count, Counting),
    "attribute calls": net(tick),
    "reads the same inputs again": net(draw_by_own),
    "outputs change": net(switch),
    "'mean' is trained": net(by_data),
    "'mean' in evaluation": net(in_evaluation),
    "weight' is trained": net(lambda m, x: nn.functional.linear(x, m.same[0], m.first.bias)),
    "batch of one": type("Own", (Net,), {"forward": lambda m, x: m.last(m.first(x)).squeeze()}),
    "cannot be run": net(lambda model, x: checkpoint(model.first, x, use_reentrant=False)),
    "'mask' of torch.bool": Masked,
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_model_that_the_engine_cannot_train_as_pytorch_does_is_refused(message):
    with pytest.raises(ConfigError, match=message) as error:
        train(REFUSED[message])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "told"), [("padding row", "padding"), ("batch normalisation", "")]
)
def test_progress_says_why_a_fast_executor_is_not_taken(name, told):
    lines = []
    found = train(RIGHT[name], cut(sizes=(15, 11)), executor="batched", progress=lines.append)
    assert found.simulation.executor.name == ("loop" if told else "batched")
    about = [line for line in lines if "executor loop" in line]
    assert len(about) == bool(told) and all(told in line for line in about)


def test_a_clients_accuracy_does_not_depend_on_others_if_a_model_mixes_examples():
    x = X.copy()
    first = train(seeded(normalised(track_running_stats=False)), cut(x, (15, 11)))
    x[38:] = 5 * x[38:] + 3  # test examples of client 1
    second = train(seeded(normalised(track_running_stats=False)), cut(x, (15, 11)))
    assert first.accuracy()[0].tolist() == second.accuracy()[0].tolist()


def test_the_trial_leaves_all_generators_as_they_are_and_repeats_its_bits():
    before = positions()
    one, two = (train(RIGHT["batch normalisation"], cut(sizes=(15, 11))) for _ in range(2))
    assert before == positions()
    assert_same_result(one.history, two.history)


@dataclass(frozen=True, kw_only=True)
class Helped(FedAvg):
    helper: Task

    def init(self, num_clients, seed):
        both = {"model": self.task.init(seed), "helper": self.helper.init(seed)}
        return State(both, self.local.memory(self.task.trainable(both), num_clients))

    def predict(self, own, batch):
        further = self.helper.logits(own["helper"], batch)
        return log_probs(self.task.logits(own["model"], batch) + further)

    def round(self, state, cohort):
        return self.minimise(lambda own, b: loss_of(self.predict(own, b), b), state, cohort)


def test_buffers_of_a_users_further_modules_are_not_trained(monkeypatch):
    found = train(nn.Linear(6, 3), method=Helped, helper=RIGHT["constant buffer"]())
    assert not found.state.params["helper"]["body.mean"].any()
    monkeypatch.setattr(methods, "load", lambda name: Helped)  # as a run of the workflow
    helper = {"helper": {"model": "pfedmoe_gate", "params": {}}}
    spec = toy_run(model_params={"hidden": 4}, modules=helper).spec(0)
    assert build_method(spec, build_task(spec)).task.statistics


def test_a_buffer_that_would_be_trained_under_another_name_is_refused():
    other = lambda params: {f"my {name}": value for name, value in params.items()}  # noqa: E731
    fit = lambda own, now, us: us.fit(None, us.held(other(now.params)), local=SGD)  # noqa: E731
    with pytest.raises(ConfigError, match="Own: it would train a buffer"):
        train(RIGHT["constant buffer"], method=type("Own", (FedAvg,), {"round": fit}))
