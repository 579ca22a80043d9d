"""Recorded steps with oneDNN's products of matrices; PyTorch uses oneDNN for convolutions only.

Results are equal to those of PyTorch's own products, except for rounding. Which are faster depends
on sizes and processor (benchmarks/results/executors.md).
"""

from collections.abc import Iterator

import torch

from fedlib.engine.recording import Call

aten = torch.ops.aten
LINEAR = "_linear_pointwise"  # of torch.ops.mkldnn; a private name, so check `available`


def available() -> bool:
    """Whether this build of PyTorch has oneDNN's products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, LINEAR)


def rewritten(calls: list[Call]) -> list[Call]:
    """`calls` with oneDNN's products of float32 matrices."""
    return [new for call in calls for new in _by_onednn(call)]


def _by_onednn(call: Call) -> Iterator[Call]:
    if call.op is aten.mm.default:
        bias, (x, w) = None, call.args
    elif call.op is aten.addmm.default and not call.kwargs and call.args[0].dim() == 1:
        bias, x, w = call.args
    else:
        yield call
        return
    if x.dtype != torch.float32:
        yield call
        return
    turned = w.t()
    yield Call(aten.t.default, (w,), {}, turned)
    op = getattr(torch.ops.mkldnn, LINEAR).default
    yield Call(op, (x, turned, bias, "none", [], ""), {}, call.result)
