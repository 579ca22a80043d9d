"""Calling modules with other parameters than their own."""

import pytest
import torch
from torch import nn

from fedlib.engine.functional import _prepare, call


def net() -> nn.Module:
    """Nested, with running statistics."""
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))


def floats(module):
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: v.detach().clone() for name, v in named if v.is_floating_point()}


def test_the_module_keeps_its_own_parameters_even_after_an_error():
    module = net()
    before = floats(module)
    with pytest.raises(RuntimeError):
        call(module, floats(net()), torch.randn(5, 7))
    for kept in (module, _prepare(module)[0]):  # and this thread's copy, which is what is called
        torch.testing.assert_close(floats(kept), before, rtol=0, atol=0)


def test_parameters_that_do_not_fit_are_named():
    params = floats(net())
    del params["0.bias"]
    with pytest.raises(ValueError, match="0.bias"):
        call(net(), params | {}, torch.randn(5, 3))
