"""Arithmetic on pytrees of tensors (nested dicts and tuples), client dimension first.

Dimension key used in the whole package:
  C clients in the cohort   N examples of one client (padded)   B batch
  E experts                 L classes                           D flattened parameters
  T evaluations             M examples in the pool
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

Tree = dict | tuple | list | Tensor


def map(fn: Callable, tree: Tree, *others: Tree) -> Tree:
    """`fn(leaf, *leaves of the others)` in place of every leaf of `tree`.

    As `torch.utils._pytree.tree_map`, which is several times slower; a step of a small model does
    little else.

    Raises:
      ValueError: if the others are not structured like `tree`.
    """
    kind = type(tree)
    if kind is dict:
        for other in others:
            if other.keys() != tree.keys():
                raise ValueError(f"trees differ: {sorted(tree)} and {sorted(other)}")
        return {key: map(fn, x, *[other[key] for other in others]) for key, x in tree.items()}
    if not isinstance(tree, tuple | list):
        return fn(tree, *others)
    parts = [map(fn, *xs) for xs in zip(tree, *others, strict=True)]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def leaves(tree: Tree) -> list:
    """All leaves, in the order in which `map` visits them."""
    if isinstance(tree, dict):
        return [leaf for x in tree.values() for leaf in leaves(x)]
    if isinstance(tree, tuple | list):
        return [leaf for x in tree for leaf in leaves(x)]
    return [tree]


flatten_with_structure = tree_flatten


def unflatten(values: list, like: Tree) -> Tree:
    """A tree structured like `like` whose leaves are `values`, in their order."""
    rest = iter(values)
    return map(lambda _: next(rest), like)


def stack(trees: list[Tree]) -> Tree:
    """Trees of equal structure along a new leading dimension: n x [...] -> [n, ...]"""
    return map(lambda *rows: torch.stack(rows), *trees)


def unstack(tree: Tree) -> list[Tree]:
    """Undo `stack`: [n, ...] -> n x [...]; gradients flow through in one piece."""
    return [
        unflatten(rows, tree) for rows in zip(*(x.unbind(0) for x in leaves(tree)), strict=True)
    ]


def concatenate(trees: list[Tree]) -> Tree:
    """Trees of equal structure along their leading dimension."""
    return map(lambda *rows: torch.cat(rows), *trees)


def broadcast(tree: Tree, n: int) -> Tree:
    """`tree` repeated n times along a new leading dimension (a view, no copy)."""
    return map(lambda x: x.expand(n, *x.shape), tree)


def repeat(tree: Tree, n: int) -> Tree:
    """n copies of `tree` along a new leading dimension."""
    return map(lambda x: x.expand(n, *x.shape).clone(), tree)


def take(tree: Tree, index: Tensor | int | slice) -> Tree:
    """Rows `index` of every leaf: [C, ...] -> [len(index), ...]."""
    return map(lambda x: x[index], tree)


def put(tree: Tree, index: Tensor, rows: Tree) -> Tree:
    """A copy of `tree` whose rows `index` are `rows`."""
    return map(lambda x, new: x.index_copy(0, index, new.to(x.dtype)), tree, rows)


def put_(tree: Tree, index: Tensor, rows: Tree) -> None:
    """Put `rows` where the rows `index` of `tree` are, in place."""
    map(lambda x, new: x.index_copy_(0, index, new.to(x.dtype)), tree, rows)


def mix(tree: Tree, weights: Tensor) -> Tree:
    """Linear combinations over clients: [C, ...] with weights [C] -> [...], [E, C] -> [E, ...]."""
    return map(lambda x: torch.tensordot(weights.to(x.dtype), x, dims=1), tree)


def mean(tree: Tree, weights: Tensor) -> Tree:
    """Weighted average over clients: [C, ...] -> [...]; weights [C] need not sum to 1."""
    return mix(tree, weights / weights.sum())


def add(a: Tree, b: Tree, scale: float | Tensor = 1.0) -> Tree:
    """a + scale * b."""
    return map(lambda x, y: x + scale * y, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b."""
    return map(torch.sub, a, b)


def sqnorm(tree: Tree) -> Tensor:
    """Squared Euclidean norm over all leaves -> []"""
    return sum(x.square().sum() for x in leaves(tree))


def numel(tree: Tree) -> int:
    """Numbers in all leaves together."""
    return sum(x.numel() for x in leaves(tree))


def clone(tree: Tree) -> Tree:
    """A copy that shares no memory with `tree`."""
    return map(lambda x: x.clone(memory_format=torch.contiguous_format), tree)


def is_broadcast(x: Tensor) -> bool:
    """Whether every row of `x` is the same memory, as `broadcast` makes it."""
    return x.dim() > 0 and x.shape[0] > 1 and x.stride(0) == 0


def partition(tree: dict, names: Callable[[str], bool]) -> tuple[dict, dict]:
    """(the rest, the entries whose key satisfies `names`), through nested dicts."""
    rest, chosen = {}, {}
    for key, value in tree.items():
        if isinstance(value, dict):
            rest[key], chosen[key] = partition(value, names)
        else:
            (chosen if names(key) else rest)[key] = value
    return rest, chosen


def merge(rest: dict, chosen: dict) -> dict:
    """Undo `partition`."""
    nested = {k: merge(v, chosen[k]) for k, v in rest.items() if isinstance(v, dict)}
    return {**rest, **chosen, **nested}
