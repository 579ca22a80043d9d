"""Gates: pooled features, masks, and the gate of nobody in particular."""

import pytest
import torch

from fedlib.engine.task import Task
from fedlib.methods.parts import gating


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(*shape, seed=1):
    return draw(*shape, seed=seed).softmax(-1)


def test_a_model_whose_head_has_no_matrix_is_refused():
    def build():
        net = torch.nn.Module()
        net.body, net.head = torch.nn.Linear(2, 2), torch.nn.ReLU()
        return net

    with pytest.raises(ValueError, match="linear head, got none"):
        gating.features_of(Task(build))


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
