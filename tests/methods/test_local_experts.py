"""Local experts: each client trains once, whatever the rounds, and stops early."""

import numpy as np
import pytest
from support import cohort_of, same_bits, sgd, silently, simulation_of, tiny_task, toy_federation

from fedlib import methods, tree


def make(local=None, **params):
    params = {"max_epochs": 3, "check_every": 1, "stop_split": "test"} | params
    method = methods.load("local_experts")
    return method(task=tiny_task(), local=local or sgd(momentum=0.0), **params)


def test_epochs_are_whole_whatever_the_solver_does_in_a_round():
    federation, results = toy_federation(), []
    for own in ({}, {"epochs": 2}, {"steps": 1}):
        method = make(sgd(momentum=0.0, **own))
        cohort = cohort_of(method.task, federation)
        results.append((method.train(cohort).models, cohort.journal.examples))
    assert [examples for _, examples in results] == [3 * (7 + 12 + 6)] * 3
    assert all(same_bits(results[0][0], models) for models, _ in results)


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_every_client_trains_once_and_alike_in_however_many_rounds(at_once):
    federation = toy_federation((7, 12, 6, 10, 9))  # the last one is unseen
    method = make(at_once=at_once)
    state, result = silently(simulation_of(method, federation, rounds=7))
    assert state.epochs.tolist() == [3] * 5
    assert result.examples[-1] == 3 * (7 + 12 + 6 + 10 + 9)
    rounds = {1: [1] * 5, 2: [2, 2, 1], 10: [4, 1]}[at_once]  # group by group
    done = np.cumsum(rounds).tolist()
    sizes = np.cumsum([0, 7, 12, 6, 10, 9])
    trained = ([0, *done] + [5] * 7)[:8]  # clients, round by round
    assert result.examples.tolist() == (3 * sizes[trained]).tolist()
    for group in ("seen", "unseen"):
        cohort = cohort_of(method.task, federation, federation.ids(group), round=4)
        trained = tree.unstack(method.train(cohort).models["best"])
        own = method.personalise(state, cohort)
        assert all(same_bits(*pair) for pair in zip(own, trained, strict=True))


@pytest.mark.parametrize(
    ("stopping", "epochs"),
    [
        ({"max_epochs": 10, "patience": 2}, 5),  # checks after epochs 1, 3 and 5, of which two fail
        ({"max_epochs": 10, "patience": 9}, 9),  # the tenth is of no use to the best
        ({"max_epochs": 10, "patience": 9, "keep": ["best", "last"]}, 10),
    ],
)
def test_an_equal_loss_is_no_better(stopping, epochs):
    method = make(sgd(lr=0.0), check_every=2, **stopping)
    assert method.train(cohort_of(method.task, toy_federation())).epochs.tolist() == [epochs] * 3


def test_who_does_not_train_keeps_the_start():
    federation = toy_federation((7, 12, 6, 10, 9))
    method = make(personal_clients=2, groups=["seen"])
    state = method.init(5, 0)
    for number in range(3):
        state = method.round(state, cohort_of(method.task, federation, round=number))
    assert state.epochs.tolist() == [3, 3, 0, 0, 0]
    start = method.start(0)
    same = [same_bits(row, start) for row in state.models["best"]]
    assert same == [False, False, True, True, True]
