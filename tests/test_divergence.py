"""The divergence of clients' updates: known angles, and the double sum that it stands for."""

import pytest
import torch
from reference import double_sum

from fedlib import tree
from fedlib.methods.parts.divergence import directions, divergence


def gradient_divergence(differences, weights):
    """Of clients [C, ...] with weights [C], or of the experts in [C, E, ...] with [C, E]."""
    if weights.dim() == 1:
        one = tree.map(lambda d: d.unsqueeze(1), differences)
        return gradient_divergence(one, weights[:, None])[0]
    return divergence(tree.map(lambda x: x.sum(0), directions(differences, weights)))


def of(rows, weights=None):
    d = torch.tensor(rows, dtype=torch.float64)
    p = torch.ones(len(rows)) if weights is None else torch.tensor(weights)
    return gradient_divergence({"w": d}, p.double()).item()


def drawn(clients=5):
    draw = torch.Generator().manual_seed(0)
    shapes = {"conv": (4, 3, 2, 2), "bias": (4,), "scale": ()}
    tensors = {n: torch.randn(clients, *s, generator=draw).double() for n, s in shapes.items()}
    return tensors, torch.rand(clients, generator=draw).double()


def test_identical_clients_do_not_diverge():
    # Rounding of three squares and a root in float64.
    assert of([[1, 2, 2]] * 4, [0.1, 0.2, 0.3, 0.4]) == pytest.approx(0, abs=1e-15)
    assert of([[1, 2], [10, 20]]) == pytest.approx(0, abs=1e-15)  # lengths do not matter


def test_opposite_clients_diverge_by_the_weight_of_their_pairs():
    # Two pairs (i, j), (j, i) of p (1 - p), each of (1 - (-1)) / 2 = 1; pairs (i, i) are 0.
    assert of([[3, 4], [-3, -4]]) == pytest.approx(2 * 0.5 * 0.5)
    assert of([[3, 4], [-6, -8]], [0.9, 0.1]) == pytest.approx(2 * 0.9 * 0.1)


def test_orthogonal_clients_diverge_half_as_much():
    assert of([[1, 0], [0, 5]]) == pytest.approx(2 * 0.5 * 0.5 * 0.5)


def test_clients_that_did_not_move_are_left_out():
    assert of([[3, 4], [0, 0], [-3, -4]], [0.3, 0.4, 0.3]) == pytest.approx(0.5)
    assert of([[3, 4], [0, 0], [-3, -4]], [0.6, 0.4, 0.0]) == pytest.approx(0, abs=1e-15)


def test_tensors_add_up_and_the_closed_form_is_the_double_sum():
    tensors, weights = drawn()
    tensors["bias"][2] = 0
    found = gradient_divergence(tensors, weights)
    torch.testing.assert_close(found, double_sum(tensors, weights))
    apart = [gradient_divergence({name: d}, weights) for name, d in tensors.items()]
    torch.testing.assert_close(found, sum(apart))
    assert all(0 < value <= 0.5 for value in apart)


def test_experts_can_be_a_dimension():
    first, weights = drawn()
    second = {name: d.roll(1, 0).abs() - 0.1 for name, d in first.items()}
    second["bias"][:] = 0
    both = {name: torch.stack([d, second[name]], 1) for name, d in first.items()}
    p = torch.stack([weights, weights.flip(0)], 1)
    found = gradient_divergence(both, p)
    apart = [gradient_divergence(first, p[:, 0]), gradient_divergence(second, p[:, 1])]
    torch.testing.assert_close(found, torch.stack(apart))
