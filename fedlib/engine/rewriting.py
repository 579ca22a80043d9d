"""Recorded steps with other kernels: results are equal except for rounding.

    fused    plain SGD subtracts matrix products (gradients of linear layers, or one for each expert
             of a mixture) from the weights directly, without storing the gradient
    onednn   oneDNN multiplies matrices; PyTorch uses it for convolutions only

Which kernels are fastest depends on sizes and processor: on Intel's, MKL is faster than oneDNN; on
AMD's not always. `fedlib.run.calibrate` measures it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedlib.engine.recording import SAME, Call, tensors

aten = torch.ops.aten
UPDATE = aten._fused_sgd_.default
LINEAR = "_linear_pointwise"  # of torch.ops.mkldnn; a private name, so check `available`


class Product(NamedTuple):
    """The product of two matrices, or its transpose.

    Attributes:
      place: of its call.
      factors: [n, k] and [k, m].
      turned: whether the product is transposed.
    """

    place: int
    factors: tuple[Tensor, Tensor]
    turned: bool


def fused(calls: list[Call], outputs: list[Tensor]) -> list[Call]:
    """`calls` without gradients that are products and used by plain SGD only."""
    made = {id(x): place for place, call in enumerate(calls) for x in tensors(call.result)}
    uses = Counter(id(x) for call in calls for x in tensors((call.args, call.kwargs)))
    uses.update(map(id, outputs))
    found = []
    for place, call in enumerate(calls):
        if call.op is not UPDATE or not _is_plain(call):
            found.append(call)
            continue
        left = []
        for weight, gradient in zip(*call.args[:2], strict=True):
            products = _products(gradient, calls, made, uses)
            if products and not any(_is_changed(p, calls[p.place : place]) for p in products):
                found += _subtracted(weight, products, call.kwargs["lr"])
            else:
                left.append((weight, gradient))
        if left:
            found.append(call._replace(args=(*map(list, zip(*left, strict=True)), [])))
    return _needed(found, outputs)


def onednn(calls: list[Call], outputs: list[Tensor]) -> list[Call]:
    """`calls` with oneDNN's products of float32 matrices."""
    return [new for call in calls for new in _by_onednn(call)]


WAYS: dict[str, Callable[[list[Call], list[Tensor]], list[Call]]] = {
    "fused": fused,
    "onednn": onednn,
}


def available() -> tuple[str, ...]:
    """The names in `WAYS` that this build of PyTorch supports."""
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, LINEAR)
    return tuple(way for way in WAYS if way != "onednn" or there)


def _is_plain(call: Call) -> bool:
    """Whether an update is p = p - lr g."""
    others = ("weight_decay", "momentum", "nesterov", "maximize")
    return isinstance(call.kwargs["lr"], float) and not any(call.kwargs[name] for name in others)


def _products(x: Tensor, calls: list[Call], made: dict[int, int], uses: Counter) -> list[Product]:
    """The product that makes `x` [n, m], or the products in a stack `x` [E, n, m].

    The list is empty if `x` is neither, or if the products have other uses.
    """
    place, turned = _origin(x, calls, made, uses)
    if place is None:
        return []
    op, args = calls[place].op, calls[place].args
    if op is aten.mm.default:
        return [Product(place, args, turned)]
    if op is aten.stack.default and len(args) == 1:
        each = [_products(part, calls, made, uses) for part in args[0]]
        return [product for [product] in each] if all(len(found) == 1 for found in each) else []
    return []


def _origin(
    x: Tensor, calls: list[Call], made: dict[int, int], uses: Counter
) -> tuple[int | None, bool]:
    """(place of the call that makes `x` or the tensor it is a view of, whether `x` is transposed).

    The place is None if no call makes the tensor, or if it has other uses.
    """
    turned = False
    while id(x) in made and uses[id(x)] == 1:
        call = calls[made[id(x)]]
        if call.op is not aten.t.default and call.op not in SAME:
            return made[id(x)], turned
        turned ^= call.op is aten.t.default
        x = call.args[0]
    return None, False


def _is_changed(product: Product, since: list[Call]) -> bool:
    """Whether one of the calls `since` writes to a factor's memory."""
    own = {x.untyped_storage().data_ptr() for x in product.factors}
    return any(
        call.op._schema.is_mutable
        and own & {x.untyped_storage().data_ptr() for x in tensors((call.args, call.kwargs))}
        for call in since
    )


def _subtracted(weight: Tensor, products: list[Product], rate: float) -> Iterator[Call]:
    """weight = weight - rate product, in place; for a stack of weights, each with its product."""
    for number, product in enumerate(products):
        own, factors = weight, product.factors
        if weight.dim() > 2:
            own = weight.select(0, number)
            yield Call(aten.select.int, (weight, 0, number), {}, own)
        if product.turned:
            factors = tuple(x.t() for x in reversed(factors))
            for x, turned in zip(reversed(product.factors), factors, strict=True):
                yield Call(aten.t.default, (x,), {}, turned)
        yield Call(aten.addmm_.default, (own, *factors), {"alpha": -rate}, own)


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


def _needed(calls: list[Call], outputs: list[Tensor]) -> list[Call]:
    """The calls that change a tensor in place, or whose result is used."""
    used, found = {id(x) for x in outputs}, []
    for call in reversed(calls):
        if call.op._schema.is_mutable or used & {id(x) for x in tensors(call.result)}:
            used |= {id(x) for x in tensors((call.args, call.kwargs))}
            found.append(call)
    return found[::-1]
