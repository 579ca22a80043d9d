"""Gates: pooled features, masks, and the gate of nobody in particular."""

import pytest
import torch
from support import batch_of
from torch.nn.utils.parametrizations import weight_norm

from fedlib.engine.task import Task
from fedlib.methods.parts import gating
from fedlib.models import linear


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(*shape, seed=1):
    return draw(*shape, seed=seed).softmax(-1)


def with_head(make):
    return Task(lambda: torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2), "head": make()}))


def test_features_are_the_inputs_of_the_heads_matrix():
    # Its parameters are a bias, the scales of rows [3, 1], and the matrix.
    assert with_head(lambda: weight_norm(torch.nn.Linear(2, 3))).num_features == 2
    with pytest.raises(ValueError, match="linear head, got none"):
        _ = with_head(torch.nn.ReLU).num_features


def test_experts_without_a_body_see_the_input():
    task = Task(lambda: linear.build(4, 3), dtype=torch.float64)
    experts = {"head.weight": draw(2, 3, 4), "head.bias": draw(2, 3, seed=1)}
    x = draw(5, 4, seed=2)
    features, log_probs = gating.outputs(task, experts, batch_of(x))
    torch.testing.assert_close(features, x[:, None].expand(5, 2, 4))
    logits = torch.einsum("bf,elf->bel", x, experts["head.weight"]) + experts["head.bias"]
    torch.testing.assert_close(log_probs, logits.log_softmax(-1))


def by_hand(gates, pooling, prior, features):
    """The mean gate, client by client."""
    total = 0
    for s, p in enumerate(prior):
        gate = {"A": gates["A"][s], "b": gates["b"][s]}
        weights = gating.log_weights(gate, gating.pool(pooling[s], features)).exp()
        total = total + p[..., None] * weights
    return total


GATES = {"A": draw(6, 5, 3), "b": draw(6, 3, seed=4)}


@pytest.mark.parametrize("block", [1, 70, 2**24])  # one client at a time, two, all
def test_the_gate_of_nobody_is_the_mean_of_all(monkeypatch, block):
    monkeypatch.setattr(gating, "BLOCK", block)
    features, pooling, prior = draw(7, 3, 5, seed=2), weights(6, 3), weights(6, seed=3)
    found = gating.marginalise(GATES, pooling, prior.log(), features).exp()
    torch.testing.assert_close(found, by_hand(GATES, pooling, prior, features))
    torch.testing.assert_close(found.sum(1), torch.ones(7, dtype=torch.float64))
