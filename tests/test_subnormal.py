"""Numbers that are too small to have all their digits become zero where clients train."""

import pytest
import torch

from fedlib.engine.executors import Workers
from fedlib.engine.subnormal import flushed

pytestmark = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor keeps subnormal numbers"
)
SMALL = torch.tensor([1e-30])


def tiny() -> float:
    """A product that is subnormal in float32."""
    return float((SMALL * 1e-15)[0])


def slope() -> float:
    """A derivative that is, by autograd."""
    x = torch.ones(1, requires_grad=True)
    with torch.enable_grad():
        (grad,) = torch.autograd.grad((x * SMALL * 1e-15).sum(), x)
    return float(grad[0])


def test_only_there_and_even_after_an_error():
    assert tiny() > 0 and slope() > 0
    with pytest.raises(KeyError), flushed():
        with flushed():
            assert tiny() == 0
        assert tiny() == 0  # as it was
        raise KeyError
    assert tiny() > 0


@pytest.mark.parametrize("count", [1, 2])
def test_workers_do_it_for_what_they_compute_and_differentiate(count):
    found = {}
    Workers(count).visit(lambda n: found.__setitem__(n, (tiny(), slope())), range(4))
    assert found == {n: (0, 0) for n in range(4)}
    assert tiny() > 0 and slope() > 0
