"""What an evaluation computes, and what it does not compute again: forward passes are counted."""

from collections import Counter

import numpy as np
import pytest
import torch
from every_method import METHODS
from support import silently
from test_simulate import SIZES, simulation

from fedlib import methods
from fedlib.engine.task import Task
from fedlib.methods.adaptive_experts import AdaptiveExperts
from fedlib.run import scoring
from fedlib.run.evaluate import final

SEEN, UNSEEN, TEST = 4, 1, 4  # clients, and test examples of each; SIZES are the training ones
E = 3


@pytest.fixture
def passes(monkeypatch):
    """{part of a model: examples that went through it}, in all models."""
    counted, call = Counter(), Task._call

    def counting(self, module, params, inputs, batch):
        parts = {id(self._evaluating): "whole", id(self._evaluating.body): "body"}
        parts[id(self._evaluating.head)] = "head"
        counted[parts.get(id(module), "in training")] += len(inputs)
        return call(self, module, params, inputs, batch)

    monkeypatch.setattr(Task, "_call", counting)
    return counted


def evaluated(run, state, passes):
    """The passes of an evaluation during training."""
    passes.clear()
    scoring.during_training(run.method, state, lambda group: run.everyone(group, 1))
    return dict(passes)


def test_new_clients_of_a_mixture_predict_once_with_two_kinds_of_weights(passes):
    """Each kind needs an E-step; both predict by the same experts."""
    run = simulation("fedem", rounds=0)
    found = evaluated(run, run.init(), passes)
    assert found == {"whole": E * (SEEN * TEST + UNSEEN * (2 * SIZES[-1] + TEST))}


def test_heads_on_one_body_cost_one_body(passes):
    run = simulation("pfedmm", rounds=0)
    examples = SEEN * TEST + UNSEEN * (2 * SIZES[-1] + TEST)
    assert evaluated(run, run.init(), passes) == {"body": examples, "head": E * examples}


def test_a_shard_without_labels_is_predicted_by_the_experts_of_one_with(passes):
    """FedMix has "default" and "new_shard" in its curves here, for seen and unseen clients."""
    run = simulation("fedmix", rounds=0)
    found = evaluated(run, run.init(), passes)
    examples = E * (SEEN + UNSEEN) * TEST
    fitting = {name: found.pop(name, 0) - examples for name in ("body", "head")}
    assert not found  # the batches in which a gate is fitted run frozen experts, as in evaluation
    steps = run.method.gate_epochs * SIZES[-1]
    assert fitting == {"body": E * steps, "head": E * steps}


def test_a_client_runs_its_large_extractor_once_for_both_protocols(passes):
    run = simulation("pfedmoe", rounds=0)
    examples = SEEN * TEST
    # bodies: the large one, and the small one of either protocol; a gate; a head for either
    expected = {"body": (1 + 2) * examples, "whole": examples, "head": 2 * examples}
    assert evaluated(run, run.init(), passes) == expected


def test_what_a_gate_says_of_test_examples_is_asked_once(passes):
    run = simulation("pfedmoe", rounds=0)
    cohort = run.everyone("seen", 0)
    personal = run.method.personalise(run.init(), cohort)
    passes.clear()
    run.method.measure("default", personal, cohort)
    assert dict(passes) == {"whole": SEEN * TEST}


ALIKE = {name for name in METHODS if methods.load(name).alike}


def test_each_view_is_told_before_the_next_way_to_predict_is_prepared(monkeypatch):
    """Mixtures can take an hour, in which nobody knew what the other ways had given."""
    run, said, before = simulation("adaptive_experts", rounds=0), [], []
    mix = AdaptiveExperts.mix
    monkeypatch.setattr(AdaptiveExperts, "mix", lambda *a: before.append([*said]) or mix(*a))
    found = final(run.method, run.init(), lambda group: run.everyone(group, 0), report=said.append)
    assert len(said) == len(found.scores) > len(before[0])
    right = found.scores["seen", "local", "test"].correct.sum() / (SEEN * TEST // 2)
    assert f"seen/local/test: {right:.1%} right, {SEEN} clients" in before[0]


def test_methods_with_protocols_alike_are_these():
    assert ALIKE == {"fedem", "pfedmm", "fedmix", "fedmix_clients", "fedmix_vae", "pfedmoe"}


@pytest.mark.parametrize("name", sorted(ALIKE))
def test_protocols_alike_predict_as_each_does_alone(name):
    run = simulation(name, dtype=torch.float64, rounds=2)
    state, _ = silently(run)
    checked = 0
    for group in ("seen", "unseen"):
        ways = run.method.protocols[group] | run.method.final_protocols.get(group, {})
        ways = {p: way for p, way in ways.items() if p in run.method.alike}
        cohort = run.everyone(group, 2)
        personals = [getattr(run.method, way)(state, cohort) for way in ways.values()]
        if len(personals) > 1:
            together = scoring.score_alike(run.method, personals, cohort, "test")
            for personal, found in zip(personals, together, strict=True):
                alone = scoring.score(run.method, personal, cohort, "test")
                assert np.array_equal(found.correct, alone.correct)
                # Models that all clients share are alone given everybody's examples at once.
                np.testing.assert_allclose(found.loss, alone.loss, rtol=1e-12)
                checked += 1
    assert checked
