"""What the server of FedAvg reads from the clients' first updates: section 7.5 of the
specification, and the numbers that say how well it does.
"""

import numpy as np
import pytest
import torch
from reference import Reference, assert_params
from support import cohort_of, run, sgd, tiny_task, toy_federation

from fedlib import methods


def plain(**changes):
    """One step on a whole shard."""
    return sgd(**{"batch_size": 100, "momentum": 0.0, "weight_decay": 0.0} | changes)


def make(task=None, local=None, **params):
    return methods.load("label_leakage")(task=task or tiny_task(), local=local or plain(), **params)


def true_shares(federation, client):
    labels = federation.y[federation.train.of(client)]
    return torch.from_numpy(np.bincount(labels, minlength=3) / len(labels))


@pytest.mark.parametrize("lr", [0.05, 1.3])
def test_one_full_batch_step_from_a_zero_output_layer_gives_the_labels_away_exactly(lr):
    federation = toy_federation(sizes=(7, 12, 6, 10))
    method = make(local=plain(lr=lr))
    state = method.init(federation.num_clients, 0)
    zeros = {name: torch.zeros_like(x) for name, x in state.params.items() if "head" in name}
    state = state._replace(params=state.params | zeros)
    state = method.round(state, cohort_of(method.task, federation, executor="batched"))
    recovered = method.diagnostics(state)["recovered"]
    for client in federation.ids("seen"):
        # The shares are exact but for the rounding of a few operations in float64.
        expected = true_shares(federation, client)
        torch.testing.assert_close(recovered[client], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("batch_size", [100, 4])
def test_the_estimate_is_the_formula_on_a_loop_in_plain_pytorch(batch_size):
    federation, task = toy_federation(), tiny_task()
    local = plain(batch_size=batch_size, epochs=2 if batch_size == 4 else 1)
    state = run(make(task, local), federation, 1, executor="batched")
    hand, start = Reference(federation, task, local), task.init(0)
    hand.rounds(hand.learn, cohorts=[hand.seen])
    for client, net in hand.nets.items():
        steps = len([*hand.batches(client, 0)])
        change = net.head[1].bias.detach() - start["head.1.bias"]
        estimate = change / (0.1 * steps) + 1 / 3
        if steps > 1:
            estimate = estimate.clamp(min=0) / estimate.clamp(min=0).sum()
        # Float64; steps of a network of two layers.
        torch.testing.assert_close(state.recovered[client], estimate, rtol=1e-9, atol=1e-12)
    assert_params(state.params, hand.average(hand.nets))


def test_only_the_first_round_is_read_and_only_those_who_took_part_in_it():
    federation = toy_federation()
    method = make()
    first = run(method, federation, 1, ids=[0, 2])
    later = run(method, federation, 3, ids=[0, 2])
    recovered = method.diagnostics(later)["recovered"]
    assert torch.equal(first.recovered, later.recovered)
    assert recovered[[0, 2]].isfinite().all()
    assert recovered[[1, 3]].isnan().all()


def test_the_true_shares_of_the_labels_are_measured_for_every_client():
    federation = toy_federation()
    method = make()
    state = run(method, federation, 1)
    for group in ("seen", "unseen"):
        cohort = cohort_of(method.task, federation, federation.ids(group))
        measured = method.measure("default", method.personalise(state, cohort), cohort)
        expected = [true_shares(federation, client) for client in federation.ids(group)]
        torch.testing.assert_close(measured["labels"], torch.stack(expected))
