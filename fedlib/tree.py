"""Arithmetic on pytrees of tensors (nested dicts and tuples), client dimension first.

Values of clients are stacked, with leaves [C, ...], or in `Rows`, a tree for each client. One tree
may have both.

Letters for dimensions in the whole package:
  C clients in the cohort   N examples of one client (padded)   B batch
  E experts                 L classes                           D flattened parameters
  T evaluations             M examples in the pool
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import SequenceKey, register_pytree_node

Tree = dict | tuple | list | Tensor
Index = Tensor | np.ndarray | int | slice  # of clients
T = TypeVar("T", bound=Tree)  # goes in and comes out with the same structure


class Rows(tuple):
    """A tree for each client; shapes and keys may differ between clients.

    Each client has its own tensors (untrained models may share theirs), so replacing some rows
    copies no others. Rows may stay in host memory: executors bring those of a cohort to the device.
    A leaf may be another object than a tensor, such as the client's `Task`; functions get it
    unchanged.

        private = tree.in_turn([task.init(seed) for task in large], range(num_clients))
        start = tree.take(private, cohort.host_ids)
        trained, memory = cohort.fit(loss, start, cohort.in_turn(large), ...)
        private = cohort.put(private, trained)  # the others stay the same objects
    """

    __slots__ = ()


register_pytree_node(
    Rows,
    lambda rows: (list(rows), None),
    lambda rows, _: Rows(rows),
    serialized_type_name="fedlib.tree.Rows",
    flatten_with_keys_fn=lambda rows: ([(SequenceKey(i), row) for i, row in enumerate(rows)], None),
)


def map(fn: Callable, tree: T, *others: Tree) -> T:
    """`tree` with every leaf replaced by `fn(leaf, *leaves of the others)`.

    Like `torch.utils._pytree.tree_map`, but several times faster, which matters for the steps of
    small models.

    Raises:
      ValueError: if dicts have other keys than in `tree`, or tuples another length.
    """
    return _map(fn, None, tree, *others)


def map_clients(fn: Callable, tree: T, *others: Tree) -> T:
    """As `map`, but `Rows` in `tree` are leaves: `fn` gets them whole."""
    return _map(fn, Rows, tree, *others)


def _map(fn: Callable, leaf: type | None, tree: T, *others: Tree) -> T:
    kind = type(tree)
    if kind is dict:
        for other in others:
            if other.keys() != tree.keys():
                raise ValueError(f"trees differ: {sorted(tree)} and {sorted(other)}")
        return {
            key: _map(fn, leaf, x, *[other[key] for other in others]) for key, x in tree.items()
        }
    if kind is leaf or not isinstance(tree, tuple | list):
        return fn(tree, *others)
    parts = [_map(fn, leaf, *xs) for xs in zip(tree, *others, strict=True)]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def leaves(tree: Tree) -> list:
    """All leaves, in the order in which `map` visits them."""
    if isinstance(tree, dict):
        return [leaf for x in tree.values() for leaf in leaves(x)]
    return [leaf for x in tree for leaf in leaves(x)] if isinstance(tree, tuple | list) else [tree]


def unflatten(values: list, like: T) -> T:
    """A tree structured like `like` whose leaves are `values`, in their order."""
    rest = iter(values)
    return map(lambda _: next(rest), like)


def stack(trees: list[T]) -> T:
    """Trees of equal structure along a new leading dimension: n x [...] -> [n, ...]

    Leaves that are not tensors must be equal; this is not checked.
    """
    return map(lambda *rows: torch.stack(rows) if isinstance(rows[0], Tensor) else rows[0], *trees)


def unstack(tree: T) -> list[T]:
    """Undo `stack`: [n, ...] -> n x [...]; one backward operation per leaf, not n."""
    every = zip(*(x.unbind(0) for x in leaves(tree)), strict=True)
    return [unflatten(row, tree) for row in every]


def concatenate(trees: list[T]) -> T:
    """Trees of equal structure along their leading dimension."""
    return map(lambda *rows: torch.cat(rows), *trees)


def broadcast(tree: T, n: int) -> T:
    """`tree` repeated n times along a new leading dimension (a view, no copy)."""
    return map(lambda x: x.expand(n, *x.shape), tree)


def repeat(tree: T, n: int) -> T:
    """n copies of `tree` along a new leading dimension."""
    return map(lambda x: x.expand(n, *x.shape).clone(), tree)


def take(tree: T, index: Index) -> T:
    """The rows of the clients `index`: [C, ...] -> [len(index), ...], as of `Rows`.

    An integer index gives that client's row alone. For `Rows`, give numbers or an array in host
    memory, such as `Cohort.host_ids`: reading a tensor waits for the device.
    """
    return map_clients(lambda x: _take_rows(x, index) if type(x) is Rows else x[index], tree)


def put(tree: T, index: Tensor | np.ndarray, rows: Tree) -> T:
    """A copy of `tree` in which the clients `index` have `rows`.

    `Rows` are not copied: other clients keep the same objects, and a new row moves to the device
    of the row that it replaces.
    """

    def replace(x: Tensor | Rows, new: Tensor | Rows) -> Tensor | Rows:
        if type(x) is not Rows:
            return x.index_copy(0, index, new.to(x.dtype))
        after = list(x)
        for client, row in zip(index.tolist(), new, strict=True):
            after[client] = map(lambda old, own: own.to(old), x[client], row)
        return Rows(after)

    return map_clients(replace, tree, rows)


def put_(tree: Tree, index: Tensor | np.ndarray, rows: Tree) -> None:
    """Overwrite the rows of the clients `index` of `tree` with `rows`, in place."""

    def replace(x: Tensor | Rows, new: Tensor | Rows) -> None:
        if type(x) is not Rows:
            x.index_copy_(0, index, new.to(x.dtype))
            return
        for client, row in zip(index.tolist(), new, strict=True):
            map(Tensor.copy_, x[client], row)

    map_clients(replace, tree, rows)


def where(chosen: Tensor, tree: T, other: T) -> T:
    """Rows of `tree`, whose leaves are [N, ...], where `chosen` [N] is True, else of `other`."""
    return map(lambda x, y: torch.where(along(chosen, x), x, y), tree, other)


def along(weights: Tensor, x: Tensor) -> Tensor:
    """`weights` of the first dimensions of `x`, reshaped to be multiplied with `x`."""
    return weights.reshape([*weights.shape, *[1] * (x.dim() - weights.dim())])


def _take_rows(rows: Rows, index: Index) -> Tree:
    if isinstance(index, int | np.integer):
        return rows[index]
    if isinstance(index, slice):
        return Rows(rows[index])
    return Rows(rows[client] for client in index.tolist())


def in_turn(values: Sequence[Any], clients: Iterable[int]) -> Rows:
    """`values[k % len(values)]` for each client k; several clients share an object."""
    return Rows(values[client % len(values)] for client in clients)


def of_client(tree: T, client: int) -> T:
    """One client's tree: its own rows of all `Rows`, and all other leaves, which are shared."""
    return map_clients(lambda x: x[client] if type(x) is Rows else x, tree)


def kinds(tree: Tree) -> np.ndarray | None:
    """Number of each client's kind, in order of appearance -> [C]; None if there is only one kind.

    Clients of one kind can be stacked: in all `Rows` of `tree` they have equal keys and shapes, and
    the same leaves that are not tensors.
    """
    numbers: dict[Hashable, int] = {}
    clients = zip(*rows_in(tree), strict=True)
    found = [numbers.setdefault(_kind(own), len(numbers)) for own in clients]
    return np.array(found) if len(numbers) > 1 else None


def by_kind(fn: Callable[[int], Tree], numbers: np.ndarray | None, size: int) -> Rows:
    """`fn(client)` of the first client of each kind, for all `size` clients.

    Args:
      numbers: [C] kinds of the clients, see `kinds`; None if all are of one kind.
    """
    if numbers is None:
        return Rows((fn(0),) * size)
    made = [fn(int(client)) for client in np.unique(numbers, return_index=True)[1]]
    return Rows(made[number] for number in numbers)


def rows_in(tree: Tree) -> list[Rows]:
    """All `Rows` in `tree`."""
    found = []
    map_clients(lambda x: found.append(x) if type(x) is Rows else None, tree)
    return found


def _kind(tree: Tree) -> Hashable:
    if isinstance(tree, dict):
        return frozenset((key, _kind(x)) for key, x in tree.items())
    if isinstance(tree, tuple | list):
        return tuple([_kind(x) for x in tree])
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype
    return tree if isinstance(tree, bool | int | float | str | None) else id(tree)


def together(tree: T) -> T:
    """`tree` with its `Rows` stacked, leaves [C, ...]; leaves that are not tensors are shared.

    Raises:
      ValueError: if clients are of different kinds.
    """
    return map_clients(lambda x: _together(x) if type(x) is Rows else x, tree)


def apart(tree: T, size: int) -> list[T]:
    """The tree of each of `size` clients, without copying: [C, ...] -> C x [...]; rows of `Rows`.

    Faster than `take` for one client after the other.
    """
    parts: list = []
    map_clients(lambda x: parts.append(x if type(x) is Rows else x.unbind(0)), tree)

    def own(client: int) -> T:
        rest = iter(parts)
        return map_clients(lambda _: next(rest)[client], tree)

    return [own(client) for client in range(size)]


def _together(rows: Rows) -> Tree:
    check_alike(rows, len(rows))
    return stack(list(rows))


def check_alike(tree: Tree, size: int) -> None:
    """Raise ValueError if `size` clients have `Rows` of different kinds in `tree`."""
    if kinds(tree) is not None:
        raise ValueError(
            f"{size} clients have trees of different shapes, which cannot be stacked or "
            "averaged; do it kind by kind (fedlib.tree.kinds), or with what they have in common"
        )


def combine(tree: T, weights: Tensor) -> T:
    """Linear combinations over clients: [C, ...] with weights [C] -> [...], [E, C] -> [E, ...].

    The result is on the device of the weights, whatever memory the clients' values are in.

    Raises ValueError for `Rows` of different kinds.
    """

    def combine_leaf(x: Tensor) -> Tensor:
        return torch.tensordot(weights.to(x.dtype), x.to(weights.device), dims=1)

    return map(combine_leaf, together(tree))


def mean(tree: T, weights: Tensor) -> T:
    """Weighted average over clients: [C, ...] -> [...]; weights [C] need not sum to 1."""
    return combine(tree, weights / weights.sum())


def add(a: T, b: T, scale: float | Tensor = 1.0) -> T:
    """a + scale * b."""
    return map(lambda x, y: x + scale * y, a, b)


def sub(a: T, b: T) -> T:
    """a - b."""
    return map(torch.sub, a, b)


def sqnorm(tree: Tree) -> Tensor:
    """Squared Euclidean norm over all leaves -> []"""
    return sum(x.square().sum() for x in leaves(tree))


def numel(tree: Tree) -> int:
    """Number of elements in all leaves together."""
    return sum(x.numel() for x in leaves(tree))


def clone(tree: T) -> T:
    """A copy that shares no memory with `tree`."""
    return map(lambda x: x.clone(memory_format=torch.contiguous_format), tree)


def clone_entries(tree: T, names: Callable[[str], bool]) -> T:
    """`tree` with copies of the entries that `names` selects; its other tensors are the same."""
    if isinstance(tree, dict):
        return {k: clone(x) if names(k) else clone_entries(x, names) for k, x in tree.items()}
    if not isinstance(tree, tuple | list):
        return tree
    parts = [clone_entries(x, names) for x in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def is_broadcast(x: Tensor) -> bool:
    """Whether all rows of `x` share their memory, as those of `broadcast` do."""
    return x.dim() > 0 and x.shape[0] > 1 and x.stride(0) == 0


def partition(tree: Tree, names: Callable[[str], bool]) -> tuple[Tree, Tree]:
    """(other entries, entries whose key satisfies `names`), through nested dicts and `Rows`."""
    if type(tree) is Rows:
        pairs = [partition(row, names) for row in tree]
        return Rows(rest for rest, _ in pairs), Rows(chosen for _, chosen in pairs)
    rest, chosen = {}, {}
    for key, value in tree.items():
        if isinstance(value, dict | Rows):
            rest[key], chosen[key] = partition(value, names)
        else:
            (chosen if names(key) else rest)[key] = value
    return rest, chosen


def merge(rest: Tree, chosen: Tree) -> Tree:
    """Undo `partition`."""
    if type(rest) is Rows:
        return Rows(merge(*pair) for pair in zip(rest, chosen, strict=True))
    nested = {k: merge(v, chosen[k]) for k, v in rest.items() if isinstance(v, dict | Rows)}
    return {**rest, **chosen, **nested}
