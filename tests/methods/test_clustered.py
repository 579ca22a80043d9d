"""Clustered FL finds populations whose labels contradict each other, and says what it cannot do."""

import numpy as np
import pytest
import torch
from support import assert_close, clients_with, cohort_of, run, sgd, toy_federation

from fedlib import methods, tree
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.models.linear import build
from fedlib.run import checkpoint


def clustering(**params):
    task = Task(lambda: build(4, 3), dtype=torch.float64)
    # Where populations contradict each other their mean stands still before the clients do.
    settings = {"local": sgd(lr=0.1, momentum=0.0), "eps1": 0.1, "eps2": 0.4}
    return methods.load("clustered")(task=task, **settings | params)


def populations(of, examples=30, seed=0):
    """Clients with the same inputs and, in each population, other labels; the last are unseen.

    Args:
      of: population of each client; as many unseen ones as there are populations are added.
    """
    kinds = len(set(of))
    of = [*of, *range(kinds)]
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(len(of) * examples, 4))
    best = (x @ draw.normal(size=(4, 3))).argmax(1)
    owner = np.arange(len(x)) // examples
    rows = [np.flatnonzero(owner == client) for client in range(len(of))]
    y = (best + np.array(of)[owner]) % 3
    return clients_with(x, y, [(r[:-5], r[-5:]) for r in rows], 3, unseen=kinds)


def as_sets(cluster):
    return {frozenset(np.flatnonzero(cluster.numpy() == c).tolist()) for c in set(cluster.tolist())}


def test_a_second_split_still_knows_who_is_who():
    federation, method = populations([2, 0, 1, 0, 2, 1, 1, 2, 0, 0]), clustering()
    state, sizes = method.init(federation.num_clients, 0), []
    for number in range(30):
        cohort = cohort_of(method.task, federation, executor="batched", round=number)
        state = method.round(state, cohort)
        sizes.append(len(tree.leaves(state.models)[0]))
    assert sorted(set(sizes)) == [1, 2, 3]  # one split, then one of a part
    expected = {frozenset({1, 3, 8, 9}), frozenset({2, 5, 6}), frozenset({0, 4, 7})}
    assert as_sets(state.cluster[:10]) == expected
    unseen = cohort_of(method.task, federation, federation.ids("unseen"), round=30)
    # Unseen clients 10, 11 and 12 are of populations 0, 1 and 2, as clients 1, 2 and 0 are.
    alike = cohort_of(method.task, federation, [1, 2, 0], round=30)
    assert_close(method.assign(state, unseen), method.personalise(state, alike), 0)


def test_a_grown_state_survives_a_checkpoint():
    federation, method = populations([0, 1, 1, 0, 1]), clustering()
    state = run(method, federation, rounds=12)
    template = method.init(federation.num_clients, 0)
    restored = checkpoint.restore(template, checkpoint.flatten(state))
    assert len(tree.leaves(restored.models)[0]) == 2
    again = cohort_of(method.task, federation, round=12)
    assert_close(method.round(restored, again), method.round(state, again), 0)


def test_clustered_fl_refuses_a_part_of_the_clients():
    federation, method = toy_federation(), clustering()
    state = method.init(federation.num_clients, 0)
    with pytest.raises(ConfigError, match=r"participation rate 1\), got 2 of 3"):
        method.round(state, cohort_of(method.task, federation, [0, 2]))
