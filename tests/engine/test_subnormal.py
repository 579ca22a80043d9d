"""Numbers that are too small to have all their digits become zero where clients train."""

import pytest
import torch
from support import cohort_of, sgd, tiny_task, toy_federation

from fedlib.engine.executors import Batched, Loop
from fedlib.engine.graphs import Graphs
from fedlib.engine.subnormal import flush_subnormal
from fedlib.engine.traced import Traced

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
    with pytest.raises(KeyError), flush_subnormal():
        with flush_subnormal():
            assert tiny() == 0
        assert tiny() == 0  # as it was
        raise KeyError
    assert tiny() > 0


@pytest.mark.parametrize("kind", [Loop, Traced, Batched, Graphs])
@pytest.mark.parametrize("sizes", [(7, 12), (8,)])
def test_every_executor_does_it(kind, sizes):
    task, federation = tiny_task(dtype=torch.float32), toy_federation(sizes, unseen=0)
    cohort, start = cohort_of(task, federation, executor=kind()), SMALL.repeat(len(sizes))
    assert not cohort.scan(lambda x, batch: x * 1e-10, start, local=sgd(steps=1)).any()
