"""Gates: pooled features, masks, and the gate of nobody in particular."""

import pytest
import torch
from support import tiny_task, toy_federation

from fedlib import tree
from fedlib.engine.experts import mixture_log_probs
from fedlib.engine.task import Batch, Task
from fedlib.methods.parts import gating


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(*shape, seed=1):
    return draw(*shape, seed=seed).softmax(-1)


def batch(size=7):
    federation = toy_federation()
    rows = torch.arange(size)
    x, y = torch.from_numpy(federation.x), torch.from_numpy(federation.y)
    return Batch(x[rows], y[rows], rows)


def test_a_new_gate_is_uniform():
    gate = gating.uniform(5, 3, draw(1))
    found = gating.log_weights(gate, draw(4, 5)).exp()
    torch.testing.assert_close(found, torch.full((4, 3), 1 / 3, dtype=torch.float64))


def test_the_number_of_features_is_that_of_the_head():
    assert gating.features_of(tiny_task(hidden=6)) == 6


def test_a_model_whose_head_has_no_matrix_is_refused():
    def build():
        net = torch.nn.Module()
        net.body, net.head = torch.nn.Linear(2, 2), torch.nn.ReLU()
        return net

    with pytest.raises(ValueError, match="linear head, got none"):
        gating.features_of(Task(build))


def test_outputs_are_those_of_the_whole_models():
    task, examples = tiny_task(), batch()
    experts = tree.stack([task.init(seed) for seed in range(3)])
    features, log_probs = gating.outputs(task, experts, examples)
    for e in range(3):
        expert = tree.take(experts, e)
        torch.testing.assert_close(log_probs[:, e], task.log_probs(expert, examples))
        torch.testing.assert_close(features[:, e], task.features(task.split(expert)[0], examples))


def test_features_are_pooled_by_weight():
    features, q = draw(4, 2, 5), torch.tensor([0.3, 0.7], dtype=torch.float64)
    expected = 0.3 * features[:, 0] + 0.7 * features[:, 1]
    torch.testing.assert_close(gating.pool(q, features), expected)


def test_a_mask_renormalises_over_the_rest():
    gate, pooled = {"A": draw(5, 3), "b": draw(3)}, draw(4, 5)
    whole = gating.log_weights(gate, pooled).exp()
    kept = gating.log_weights(gate, pooled, torch.tensor([True, False, True])).exp()
    assert not kept[:, 1].any()
    expected = whole[:, [0, 2]] / whole[:, [0, 2]].sum(1, keepdim=True)
    torch.testing.assert_close(kept[:, [0, 2]], expected)


def test_a_mask_that_keeps_all_changes_no_bit():
    gate, pooled = {"A": draw(5, 3), "b": draw(3)}, draw(4, 5)
    everything = torch.ones(3, dtype=torch.bool)
    assert torch.equal(
        gating.log_weights(gate, pooled), gating.log_weights(gate, pooled, everything)
    )


def by_hand(gates, pooling, prior, features):
    """The mean gate, client by client."""
    total = 0
    for s, p in enumerate(prior):
        gate = {"A": gates["A"][s], "b": gates["b"][s]}
        total = (
            total + p[..., None] * gating.log_weights(gate, gating.pool(pooling[s], features)).exp()
        )
    return total


GATES = {"A": draw(6, 5, 3), "b": draw(6, 3, seed=4)}


@pytest.mark.parametrize("block", [1, 70, 2**24])  # one client at a time, two, all
def test_the_gate_of_nobody_is_the_mean_of_all(monkeypatch, block):
    monkeypatch.setattr(gating, "BLOCK", block)
    features, pooling, prior = draw(7, 3, 5, seed=2), weights(6, 3), weights(6, seed=3)
    found = gating.marginalised(GATES, pooling, prior.log(), features).exp()
    torch.testing.assert_close(found, by_hand(GATES, pooling, prior, features))
    torch.testing.assert_close(found.sum(1), torch.ones(7, dtype=torch.float64))


def test_the_prior_may_depend_on_the_example():
    features, pooling, prior = draw(7, 3, 5, seed=2), weights(6, 3), weights(7, 6, seed=3)
    found = gating.marginalised(GATES, pooling, prior.log(), features).exp()
    torch.testing.assert_close(found, by_hand(GATES, pooling, prior.T, features))


def test_a_client_without_weight_in_the_prior_does_not_count():
    features, pooling = draw(7, 3, 5, seed=2), weights(6, 3)
    prior = torch.tensor([0, 0, 1, 0, 0, 0], dtype=torch.float64)
    found = gating.marginalised(GATES, pooling, prior.log(), features)
    gate = {name: value[2] for name, value in GATES.items()}
    torch.testing.assert_close(found, gating.log_weights(gate, gating.pool(pooling[2], features)))


def test_a_gate_that_all_share_gives_what_copies_of_it_give():
    shared = {name: value[0] for name, value in GATES.items()}
    copies = tree.broadcast(shared, 6)
    features, pooling, prior = draw(7, 3, 5, seed=2), weights(6, 3), weights(6, seed=3)
    found, expected = (
        gating.marginalised(gates, pooling, prior.log(), features) for gates in (shared, copies)
    )
    torch.testing.assert_close(found, expected)


def test_probabilities_are_mixed_and_not_logits():
    log_probs = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]], dtype=torch.float64).log()
    log_weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64).log()
    expected = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    torch.testing.assert_close(mixture_log_probs(log_weights, log_probs).exp(), expected)
    only = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    torch.testing.assert_close(mixture_log_probs(only, log_probs), log_probs[:, 0])
