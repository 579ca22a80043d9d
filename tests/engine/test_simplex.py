"""Projection onto the simplex."""

import numpy as np
import pytest
import torch

from fedlib.engine.simplex import project


@pytest.mark.parametrize(
    ("v", "nearest"),
    [
        ((0.5, 0.4, 0.3, -0.2), (0.43333, 0.33333, 0.23333, 0)),
        ((0.3, 0.3, 0.9), (0.13333, 0.13333, 0.73333)),
    ],
)
def test_projections_of_section_2_10(v, nearest):
    expected = torch.tensor(nearest, dtype=torch.float64)
    torch.testing.assert_close(project(torch.tensor(v).double()), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_no_point_of_the_simplex_is_nearer(seed):
    draw = np.random.default_rng(seed)
    size, total = draw.integers(1, 12), draw.uniform(0.1, 3)
    v = torch.from_numpy(draw.normal(scale=draw.choice([0.01, 1, 100]), size=size))
    nearest = project(v, total)
    assert nearest.min() >= 0
    assert float(nearest.sum()) == pytest.approx(total)
    # The set is convex: the way to any of its points leads away from v.
    others = total * torch.from_numpy(draw.dirichlet(np.full(size, 0.3), size=500))
    corners = total * torch.eye(size, dtype=torch.float64)
    angles = (torch.cat([others, corners]) - nearest) @ (v - nearest)
    assert angles.max() <= 1e-9 * max(1, float(v.abs().max()))


def test_nothing_is_left_of_a_simplex_whose_sum_is_zero():
    assert torch.equal(project(torch.tensor([0.3, -1.0, 2.0]), 0.0), torch.zeros(3))
