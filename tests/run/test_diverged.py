"""Training that diverges: one line, which names the client, and never a number."""

from dataclasses import fields, replace
from numbers import Real

import numpy as np
import pytest
import torch
from every_method import METHODS, make
from support import federation_for, simulation_of, toy_federation
from torch import nn

from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.engine.solvers import Solver
from fedlib.errors import DataError, DivergedError
from fedlib.methods.parts import chosen
from fedlib.run import evaluate

HUGE = 1e25  # two layers of such weights are infinite in float32


def rates(method):
    """Names of the fields of a method that are learning rates, factors of some, or solvers."""
    return [f.name for f in fields(method) if made_huge(f.name, getattr(method, f.name))]


def made_huge(name, value):
    """The field with a huge rate; None for what is no rate."""
    if isinstance(value, Solver):
        return replace(value, lr=HUGE)
    if isinstance(value, dict) and "lr" in value:
        return value | {"lr": HUGE}
    rate = "lr" in name.split("_") and not isinstance(value, bool)
    return HUGE if rate and (value is None or isinstance(value, Real)) else None


def unbounded(name):
    """The method with networks whose outputs grow with their weights."""
    return make(name, dtype=torch.float32, bend=nn.ReLU)


CASES = [(name, rate) for name in METHODS for rate in rates(unbounded(name))]
FINITE = {
    ("afl", "lr_lambda"): "the clients' weights are projected: they stay in [0, 1] and sum to 1",
    ("fedapen", "lam_lr"): "lam is kept in [0, 1]",
    ("fedmoe", "alpha_lr_scale"): "a mixture's probability that falls below 0 is taken as tiny",
    ("uniform_mixture", "alpha_lr_scale"): "likewise",
}


def simulation(name, rate, rounds=2):
    method = unbounded(name)
    method = replace(method, **{rate: made_huge(rate, getattr(method, rate))})
    return simulation_of(method, federation_for(name), rounds=rounds)


def evaluated(run):
    """Scores of the end under all protocols."""
    state, _ = run.run(report=lambda line: None)
    rounds = run.course.rounds
    return evaluate.final(run.method, state, lambda group: run.everyone(group, rounds))


@pytest.mark.parametrize(("name", "rate"), sorted({*CASES} - FINITE.keys()))
def test_a_rate_that_is_too_high_ends_in_one_line(name, rate):
    told = r"(client \d|the server) diverged (in|by) \w+ \d.*: .* loss .*is (nan|-?inf).*; a lower"
    with pytest.raises(DivergedError, match=told):
        evaluated(simulation(name, rate))


@pytest.mark.parametrize(("name", "rate"), FINITE)
def test_a_rate_of_what_is_kept_in_bounds_does_not_diverge(name, rate):
    for scores in evaluated(simulation(name, rate)).scores.values():
        assert np.isfinite(scores.loss).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fedavg", "client 0 diverged by round 1: test loss of 'default'"),
        ("fedkd", "client 0 diverged in round 1: its student's squared"),  # before compression
    ],
)
def test_a_model_that_diverges_in_the_last_step_is_no_number_either(name, message):
    # A batch a round: the loss that is recorded is that before the step.
    run = simulation(name, "local", rounds=1)
    local = replace(run.method.local, batch_size=32)
    with pytest.raises(DivergedError, match=message):
        evaluated(replace(run, method=replace(run.method, local=local)))


def test_an_expert_whose_loss_is_not_finite_is_not_passed_over():
    run = simulation("ifca", "local")
    method = run.method
    state = method.init(run.federation.num_clients, 0)
    second = torch.tensor([1])
    broken = {name: x.index_fill(0, second, torch.nan) for name, x in state.experts.items()}
    with pytest.raises(DivergedError, match="client 3 diverged by round 5: an expert's training"):
        method.observe(state._replace(experts=broken), run.everyone("unseen", 5), "unseen")


def test_a_best_model_is_not_kept_in_place_of_one_that_diverged():
    best = chosen.start({"w": torch.ones(2)}).update({"w": torch.zeros(2)}, torch.tensor(0.5), 1)
    with pytest.raises(DivergedError, match="the server diverged in round 2: val loss is nan"):
        best.update({"w": torch.ones(2)}, torch.tensor(torch.nan), 2)


def test_what_a_loss_leads_to_is_told_as_the_divergence_that_it_is(monkeypatch):
    run = simulation("fedavg", "local")

    def broken(self, trained, previous):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(Cohort, "average", broken)
    with pytest.raises(DivergedError, match="client 0 diverged in round 1: training loss is nan"):
        evaluated(run)


def test_a_client_without_training_examples_has_not_diverged():
    data = toy_federation((7, 0, 6))
    run = simulation("fedavg", "local")
    run = replace(run, data=DeviceData(data, torch.float32, torch.device("cpu")))
    with pytest.raises(DataError, match="client 1 takes part in training and has no training ex"):
        evaluated(run)
