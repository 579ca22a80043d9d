"""The divergence of clients' updates: clients who agree, and the double sum that it stands for."""

import pytest
import torch
from reference import double_sum

from fedlib import tree
from fedlib.methods.parts.divergence import directions, divergence


def gradient_divergence(differences, weights):
    """Of clients [C, ...] with weights [C], who are those of a single expert."""
    one = tree.map(lambda d: d.unsqueeze(1), differences)
    return divergence(tree.map(lambda x: x.sum(0), directions(one, weights[:, None])))[0]


def of(rows, weights):
    rows, weights = (torch.tensor(x, dtype=torch.float64) for x in (rows, weights))
    return gradient_divergence({"w": rows}, weights).item()


def test_identical_clients_do_not_diverge():
    # Rounding of three squares and a root in float64.
    assert of([[1, 2, 2]] * 4, [0.1, 0.2, 0.3, 0.4]) == pytest.approx(0, abs=1e-15)
    assert of([[1, 2], [10, 20]], [1, 1]) == pytest.approx(0, abs=1e-15)  # lengths do not matter


def test_tensors_add_up_and_the_closed_form_is_the_double_sum():
    draw = torch.Generator().manual_seed(0)
    shapes = {"conv": (4, 3, 2, 2), "bias": (4,), "scale": ()}
    tensors = {n: torch.randn(5, *s, generator=draw).double() for n, s in shapes.items()}
    weights = torch.rand(5, generator=draw).double()
    tensors["bias"][2] = 0
    found = gradient_divergence(tensors, weights)
    torch.testing.assert_close(found, double_sum(tensors, weights))
    apart = [gradient_divergence({name: d}, weights) for name, d in tensors.items()]
    torch.testing.assert_close(found, sum(apart))
    assert all(0 < value <= 0.5 for value in apart)
