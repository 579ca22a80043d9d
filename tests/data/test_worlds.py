"""Made-up worlds: their optimum is true, and accuracy in expectation has no noise of labels."""

import numpy as np
import pytest
import torch
from data_fixtures import federation
from support import cohort_of, everybody_of, run, sgd

from fedlib import methods
from fedlib.data.sources import worlds
from fedlib.engine.task import Task
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation
from fedlib.models import linear
from fedlib.results import OPTIMUM, View
from fedlib.run.evaluate import final
from fedlib.run.scoring import score

SMALL = {"num_clients": 6, "train_examples": 40, "val_examples": 8, "test_examples": 300}
LINEAR = Task(lambda: linear.build(20, 2), dtype=torch.float64)


def world(name, seed=1, **params):
    params = {"world": name, **SMALL, **params}
    return federation("worlds", "natural", seed=seed, params=params, unseen_fraction=0.2)


@pytest.mark.parametrize("name", worlds.WORLDS)
def test_labels_are_drawn_from_the_truth(name):
    made = world(name, test_examples=4000)
    p = made.truth[:, 1].astype(np.float64)
    # The mean of y - p, for x on either side of every coordinate, within 4.5 standard errors.
    for side in made.x.T > 0:
        chosen = np.flatnonzero(side)
        error = np.sqrt((p[chosen] * (1 - p[chosen])).sum())
        assert abs((made.y[chosen] - p[chosen]).sum()) < 4.5 * error


@pytest.mark.parametrize("name", worlds.WORLDS)
def test_no_other_rule_beats_the_optimum(name):
    made = world(name)
    for client in range(made.num_clients):
        own = made.truth[made.test.of(client)].astype(np.float64)
        assert made.optimum[client] == pytest.approx(np.maximum(own[:, 0], own[:, 1]).mean())
        assert 0.5 <= own.max(1).min() and made.optimum[client] > 0.7


def fitted(made, rows):
    """The linear rule of the log odds of some examples -> [F]"""
    logit = np.log(made.truth[rows, 1] / made.truth[rows, 0])
    return np.linalg.lstsq(made.x[rows], logit, rcond=None)[0]


def test_clients_of_a_cluster_have_the_same_concept_and_others_another():
    made = world("clusters", num_clients=9, train_examples=2000)
    found = [fitted(made, made.train.of(client)) for client in range(made.num_clients)]
    rules = np.array([theta / np.linalg.norm(theta) for theta in found])
    assert np.array_equal(rules @ rules.T > 0.99, made.cluster[:, None] == made.cluster)
    assert len(set(made.cluster)) == 3


def test_heads_see_three_numbers_of_the_input():
    made = world("heads", num_clients=8, train_examples=500)
    rules = [fitted(made, made.train.of(client)) for client in range(made.num_clients)]
    sizes = np.linalg.svd(np.array(rules), compute_uv=False)
    assert sizes[2] > 0.5 and sizes[3] < 0.01


def test_a_region_is_where_its_coordinate_is_the_largest():
    made = world("regions", test_examples=3000, alpha=1.0)
    region = made.x[:, :3].argmax(1)
    logit = np.log(made.truth[:, 1] / made.truth[:, 0])
    for side in (region == number for number in range(3)):
        theta, *_ = np.linalg.lstsq(made.x[side], logit[side], rcond=None)
        np.testing.assert_allclose(made.x[side] @ theta, logit[side], atol=0.02, rtol=0.02)
    # Visits differ between clients, and whoever does not choose sees all regions alike.
    shares = [(region[made.test.of(c)] == 0).mean() for c in range(made.num_clients)]
    assert max(shares) - min(shares) > 0.2


@pytest.mark.parametrize("executor", ["loop", "batched"])
def test_accuracy_is_expected_over_the_label(executor):
    made = world("one")
    theta = torch.from_numpy(fitted(made, slice(None))).double()
    method = methods.load("fedavg")(task=LINEAR, local=sgd())
    cohort = cohort_of(LINEAR, made, executor=executor)
    for sign, expected in ((1, made.optimum), (-1, 1 - made.optimum)):
        rule = {"head.weight": sign * theta[None], "head.bias": torch.zeros(1).double()}
        found = score(method, cohort.held(rule), cohort, "test")
        np.testing.assert_allclose(found.correct / found.count, expected[cohort.host_ids])


def test_a_final_evaluation_knows_the_optimum_and_regret_is_below_it():
    made = world("one")
    method = methods.load("fedavg")(task=LINEAR, local=sgd())
    found = final(method, run(method, made, 5), everybody_of(LINEAR, made))
    np.testing.assert_array_equal(found.diagnostics[OPTIMUM], made.optimum)
    scores = found.scores[View("seen", "default", "test")]
    accuracy = scores.correct[0] / scores.count
    assert np.all(accuracy < made.optimum[scores.clients]) and accuracy.mean() > 0.6


def test_a_shard_file_keeps_the_truth(tmp_path):
    made = world("mixtures")
    made.save(tmp_path / "shards.h5", tmp_path / "manifest.json")
    again = Federation.load(tmp_path / "shards.h5", tmp_path / "manifest.json")
    np.testing.assert_array_equal(again.truth, made.truth)


def test_a_world_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="no world 'flat'; choose one of own, one, clusters"):
        world("flat")


def test_truths_that_are_no_probabilities_are_refused():
    made = world("one")
    fields = {**vars(made), "truth": made.truth * 2}
    known = {name: fields[name] for name in Federation.__dataclass_fields__}
    with pytest.raises(DataError, match="truth must be probabilities"):
        Federation(**known)
