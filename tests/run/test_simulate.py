"""Whole runs: what is recorded, how they are interrupted, and what cannot influence them."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from every_method import a_fourth, make
from support import (
    assert_same_result,
    assert_same_tensors,
    cohort_of,
    federation_for,
    same_bits,
    sgd,
    silently,
    simulation_of,
    solver_of,
    toy_federation,
    with_validation,
)
from torch import nn

from fedlib import methods
from fedlib.engine.participation import sample
from fedlib.engine.schedules import Schedule
from fedlib.errors import DivergedError
from fedlib.methods.fedavg import FedAvg
from fedlib.results import View
from fedlib.run import evaluate, operations
from fedlib.run.checkpoint import Checkpoints, flatten
from fedlib.run.simulate import Course

ADAM = {"server": {"solver": "adam", "lr": 0.01, "batch_size": 6}}
# As in test_methods.py, but with more to remember from round to round, and more to evaluate.
CHANGED = {
    "adaptive_experts": {"stop_every": 2, "patience": 2},
    "fedavg_adam": {"curves": ["finetuned"]},
    "fedmix": {"gate_epochs": 2, "curves": ["new_shard"]},
    "fedmix_clients": {"curves": ["finetuned"]},
    "fedmoe": ADAM | {"log_rounds": [1, 9]},
    "local_global": {"curves": ["new_shard"]},
    "pfedme_moreau": {"inner_steps": 2},
    "pfedmoe": {"gate_lr_scale": 0.5},
    "plain_mixture": {"table_rounds": [1, 9]},
    "server_finetuning": ADAM,
    "uniform_mixture": ADAM,
}
SIZES = (7, 12, 6, 10, 11)  # the last client is unseen; no batch of 4 leaves one alone
STAMP = {"run": "test"}


def simulation(name="fedavg", *, federation=None, dtype=torch.float32, local=None, **course):
    """A run with momentum, dropout, batch statistics and a falling rate; half take part."""
    rate = 1.0 if name == "clustered" else 0.5  # which needs everybody
    local = local or solver_of(name, schedule=Schedule(kind="multi_step", milestones=(2,)))
    changes = {"local": local, **CHANGED.get(name, {})}
    method = replace(make(name, dtype=dtype, norm=True, dropout=0.3), **changes)
    federation = federation or federation_for(name, SIZES)
    return simulation_of(method, federation, **{"rounds": 3, "seed": 3, "rate": rate} | course)


def seed_generators(seed):
    """Those of PyTorch, NumPy and Python, which runs neither use nor change."""
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)


def generators():
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


@cache
def uninterrupted(name):
    """A run of three rounds, and its state and result."""
    seed_generators(0)
    run = simulation(name, evaluate_every=2)
    return run, silently(run)


def assert_same_bits(one, other):
    """Two (state, result) are equal in every tensor and array."""
    (state, result), (other_state, other_result) = one, other
    assert_same_tensors(flatten(state), flatten(other_state))
    assert_same_result(result, other_result)


# -- what is recorded ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(7, 3, [0, 3, 6, 7]), (6, 3, [0, 3, 6]), (3, 1, [0, 1, 2, 3]), (2, 10, [0, 2]), (0, 1, [0])],
)
def test_evaluations_are_at_the_start_every_so_often_and_at_the_end(rounds, every, expected):
    _, result = silently(simulation(rounds=rounds, evaluate_every=every))
    assert result.round.tolist() == expected
    assert len(result.train_loss) == rounds
    for scores in result.scores.values():
        assert scores.correct.shape == scores.loss.shape == (len(expected), len(scores.clients))


def test_a_loss_has_the_number_of_its_round_where_nobody_trains_in_some(monkeypatch):
    train = FedAvg.round

    def sometimes(self, state, cohort):
        return train(self, state, cohort) if cohort.round % 2 else state

    monkeypatch.setattr(FedAvg, "round", sometimes)
    _, result = silently(simulation(rounds=5))
    assert np.isfinite(result.train_loss).tolist() == [False, True, False, True]


def test_scores_are_counts_of_right_predictions_and_mean_losses():
    run = simulation(rounds=2, dtype=torch.float64)
    state, result = silently(run)
    federation = run.federation
    module = run.method.task.build().double().eval()
    module.load_state_dict(state.params, strict=False)  # all but the counts of batches
    assert set(result.scores) == {View(g, "default", "test") for g in ("seen", "unseen")}
    for view, scores in result.scores.items():
        assert scores.clients.tolist() == federation.ids(view.group).tolist()
        for position, client in enumerate(scores.clients):
            rows = federation.test.of(client)
            logits = module(torch.from_numpy(federation.x[rows]))
            y = torch.from_numpy(federation.y[rows])
            assert scores.count[position] == len(rows)
            assert scores.correct[-1, position] == (logits.argmax(-1) == y).sum()
            # Float64 on both sides; the pool is scored in one batch, this in one per client.
            expected = nn.functional.cross_entropy(logits, y).item()
            assert scores.loss[-1, position] == pytest.approx(expected, rel=1e-12)


def test_validation_data_are_scored_where_there_are_any():
    # The unseen client has no validation data.
    federation = with_validation(toy_federation(SIZES), [1, 0, 2, 0, 0])
    _, result = silently(simulation(federation=federation, rounds=1))
    views = {(view.group, view.split) for view in result.scores}
    assert views == {("seen", "val"), ("seen", "test"), ("unseen", "test")}
    scores = result.scores[View("seen", "default", "val")]
    assert scores.count.tolist() == [1, 0, 2, 0]
    assert (scores.loss[:, [1, 3]] == 0).all() and (scores.correct <= scores.count).all()


@pytest.mark.parametrize("name", ["afl", "pfedmm"])  # one sends more up than down
def test_bytes_are_four_for_each_number_of_each_client_of_the_cohort(name):
    # Of 4 seen clients, a rate of 0.5 takes 2; evaluations send nothing that counts.
    run = simulation(name, rounds=3, dtype=torch.float64)
    _, result = silently(run)
    cohort = cohort_of(run.method.task, run.federation)
    run.method.round(run.init(), cohort)
    sent, share = cohort.journal, 2 / cohort.size
    assert result.bytes_down.tolist() == [4 * share * sent.down * done for done in range(4)]
    assert result.bytes_up.tolist() == [4 * share * sent.up * done for done in range(4)]


@pytest.mark.parametrize("aggregation", ["damped", "renormalised"])
def test_a_run_is_the_rounds_of_its_method_on_sampled_cohorts(aggregation):
    run = simulation(aggregation=aggregation)
    state, _ = silently(run)
    expected = run.init()
    for number in range(3):
        ids = sample(run.federation.ids("seen"), 0.5, seed=3, round=number)
        how = {"round": number, "seed": 3, "aggregation": aggregation}
        cohort = cohort_of(run.method.task, run.federation, ids, **how)
        expected = run.method.round(expected, cohort)
    assert same_bits(state, expected)


@pytest.mark.parametrize("size_of_parts", [None, 1])
def test_predictions_are_kept_where_they_are_asked_for(size_of_parts, monkeypatch):
    if size_of_parts:  # a client at a time
        monkeypatch.setattr(evaluate, "FINAL_BYTES", size_of_parts)
        monkeypatch.setattr(methods.load("local"), "personal_numbers", lambda method: 1)
    else:  # nobody is prepared for the final protocols
        monkeypatch.setattr(methods.load("local"), "finalists", lambda *_: np.empty(0, np.int64))
    run = simulation("local", rounds=1)
    state, _ = silently(run)
    everyone = lambda group: run.everyone(group, 1)  # noqa: E731
    assert evaluate.final(run.method, state, everyone).predictions == {}
    found = evaluate.final(run.method, state, everyone, predictions=True)
    view = View("seen", "default", "test")
    assert found.predictions.keys() == {view for view in found.scores if view.split == "test"}
    log_probs, y = found.predictions[view]
    rows = np.concatenate([run.federation.test.of(c) for c in run.federation.ids("seen")])
    assert np.array_equal(y, run.federation.y[rows]) and log_probs.dtype == np.float32
    right = (log_probs.argmax(1) == y).reshape(-1, 4).sum(1)  # clients have four examples
    assert right.tolist() == found.scores[view].correct[0].tolist()
    losses = -log_probs[np.arange(len(y)), y].reshape(-1, 4).mean(1)
    np.testing.assert_allclose(losses, found.scores[view].loss[0], rtol=1e-5)  # float32


@a_fourth
def test_the_final_evaluation_finds_what_the_last_one_during_training_found(name):
    run, (state, result) = uninterrupted(name)
    final = evaluate.final(run.method, state, lambda group: run.everyone(group, 3))
    assert final.round.tolist() == [3]
    assert result.scores.keys() <= final.scores.keys()
    for view, scores in result.scores.items():
        assert np.array_equal(final.scores[view].correct[0], scores.correct[-1]), view
        assert np.array_equal(final.scores[view].loss[0], scores.loss[-1]), view
        assert np.array_equal(final.scores[view].count, scores.count)
    trained_on = {view for view in final.scores if view.split == "train"}
    assert {view._replace(split="train") for view in final.scores} == trained_on


def test_progress_ends_with_round_loss_and_accuracies():
    lines = []
    simulation(rounds=2).run(report=lines.append)
    assert lines[-1].startswith("round 2/2  loss ")
    assert "  seen " in lines[-1] and "  unseen " in lines[-1]


# -- interruptions ------------------------------------------------------------------------


@a_fourth
def test_a_run_that_is_stopped_after_every_round_ends_with_the_same_bits(name, tmp_path):
    # Every round is done by another run, which knows nothing but the checkpoint, and neither uses
    # nor changes global generators.
    _, reference = uninterrupted(name)
    seed_generators(1)
    before = generators()
    for done in (1, 2):
        checkpoints = Checkpoints(tmp_path, STAMP, every=100)
        with pytest.raises(SystemExit) as stopped:
            silently(simulation(name, evaluate_every=2), checkpoints, stop=lambda: True)
        assert stopped.value.code == 143
        assert checkpoints.load()[0] == done
    last = simulation(name, evaluate_every=2)
    assert_same_bits(silently(last, Checkpoints(tmp_path, STAMP), stop=lambda: True), reference)
    assert generators() == before


@pytest.mark.parametrize("killed_in", [2, 3, 4])
def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(killed_in, tmp_path):
    # Checkpoints after rounds 2 and 4; what came after the last one is done again.
    run = simulation("fedavg_plus", rounds=5, evaluate_every=2)
    reference = silently(run)
    calls = []

    def kill():
        calls.append(None)
        if len(calls) == killed_in:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        silently(run, Checkpoints(tmp_path, STAMP, every=2), stop=kill)
    lines = []
    resumed = run.run(Checkpoints(tmp_path, STAMP, every=2), report=lines.append)
    # Asked after a round, before its checkpoint.
    expected = {2: None, 3: "resuming after round 2", 4: "resuming after round 2"}[killed_in]
    assert (lines[0] if "resuming" in lines[0] else None) == expected
    assert_same_bits(resumed, reference)


# -- divergence ---------------------------------------------------------------------------


def test_a_loss_that_is_no_number_names_client_and_round():
    # The first step leads to infinity. Four batches a round: later ones see that. A rate of 0.5
    # takes one client.
    local, federation = sgd(lr=1e308, batch_size=2), toy_federation((8, 8, 8), unseen=1)
    run = simulation(federation=federation, dtype=torch.float64, local=local)
    (client,) = sample(run.federation.ids("seen"), 0.5, seed=3, round=0)
    message = rf"client {client} diverged in round 1: training loss is (nan|inf);"
    with pytest.raises(DivergedError, match=message):
        silently(run)


# -- independence -------------------------------------------------------------------------


@a_fourth
def test_measuring_its_cost_leaves_no_trace(name):
    run, (state, _) = uninterrupted(name)
    before = {key: value.clone() for key, value in flatten(state).items()}
    groups = run.federation.group.copy()
    random = generators()
    first = operations.flops_per_example(run, state)
    assert (first > 0) == (name != "centmoe")  # whose clients never train
    assert_same_tensors(flatten(state), before)
    assert np.array_equal(run.federation.group, groups)
    assert generators() == random
    assert operations.flops_per_example(run, state) == first


# -- declarations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": -1}, "rounds must be at least 0, got -1"),
        ({"rate": 0.0}, r"rate must be in \(0, 1\], got 0.0"),
        ({"rate": 1.1}, r"rate must be in \(0, 1\], got 1.1"),
        ({"rate": float("nan")}, "rate must be a finite number, got nan"),
        ({"aggregation": "median"}, "aggregation must be one of .*'gossip'.*, got 'median'"),
        ({"aggregation": "gossip", "rate": 0.5}, "rate must be 1 in a decentralised run, got 0.5"),
        ({"edge_probability": 0.0}, r"edge_probability must be in \(0, 1\], got 0.0"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, got 0"),
    ],
)
def test_a_course_that_makes_no_run_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Course(**{"rounds": 3, "seed": 0} | change)
