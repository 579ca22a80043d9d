"""`Examples`, the result of a source, and `Dealt`, the result of a partition.

A source reads `Examples`. A partition deals them to clients, which gives `Dealt`: it may rotate,
copy or relabel examples, and decides which client trains, validates and tests on which examples.
`Dealt.federation` packs the result.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedlib.errors import ConfigError
from fedlib.federation import CLIENTS, GROUPS, Federation, Split, Tokens

TRAIN, VAL, TEST = range(3)  # values of `Examples.part`

# Features of a data set besides inputs and labels: those that a source `HAS` and a partition
# `needs`.
FEATURES = {
    "classes": "one class for each example",
    "coarse": "coarse labels",
    "images": "images",
    "owner": "natural clients, such as writers",
    "own_test": "a test part of your own (or a train_fraction)",
    "part": "an official test part (own data: a client of 4 examples, or a class without clients)",
    "ten_classes": "ten classes",
}


class Examples(NamedTuple):
    """A data set.

    Attributes:
      x: [M, ...] inputs.
      y: [M] labels, or [M, T].
      num_classes: L.
      mean, std: per channel, see `Federation`.
      part: [M] uint8, `TRAIN`, `VAL` or `TEST`, if there are official parts.
      owner: [M] int64, the natural client of each example, such as its writer.
      num_owners: number of natural clients, including those without examples.
      coarse: [L] coarse label of each class, if there is a hierarchy.
      group: [num_owners] uint8, an index into `GROUPS`, if some owner is a server or a probe.
      tokens: of texts, see `Federation`.
      cluster: [num_owners] int64 true cluster of each owner, if known.
      truth: [M, L] p(y | x) of the owner, see `Federation`, if known.
      own_test: whether a user gave the test part, on which nobody then trains.
      owner_name: [num_owners], class_name: [L], column_name: [F] what a user calls them, see
        `Federation`.
    """

    x: np.ndarray
    y: np.ndarray
    num_classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    part: np.ndarray | None = None
    owner: np.ndarray | None = None
    num_owners: int = 0
    coarse: np.ndarray | None = None
    group: np.ndarray | None = None
    tokens: Tokens | None = None
    cluster: np.ndarray | None = None
    truth: np.ndarray | None = None
    own_test: bool = False
    owner_name: np.ndarray | None = None
    class_name: np.ndarray | None = None
    column_name: np.ndarray | None = None

    @property
    def num_train(self) -> int:
        """Number of examples in the official training part."""
        return int(np.count_nonzero(self.part == TRAIN))

    @property
    def features(self) -> set[str]:
        """The `FEATURES` that the data set has."""
        there = {
            "classes": self.y.ndim == 1,
            "coarse": self.coarse is not None,
            "images": self.x.ndim == 4,
            "owner": self.owner is not None,
            "own_test": self.own_test,
            "part": self.part is not None,
            "ten_classes": self.num_classes == 10,
        }
        return {name for name, is_there in there.items() if is_there}

    def take(self, rows: np.ndarray) -> "Examples":
        """The examples in these rows, in this order."""
        each = {name: getattr(self, name) for name in ("x", "y", "part", "owner", "truth")}
        return self._replace(**{k: a if a is None else a[rows] for k, a in each.items()})

    def by_part(self) -> "Examples":
        """The training part, then the test part, without validation; in a part the order stays."""
        if VAL not in self.part and np.all(self.part[:-1] <= self.part[1:]):
            return self
        return self.take(np.concatenate([np.flatnonzero(self.part == x) for x in (TRAIN, TEST)]))

    def of_owner(self, part: int | None = None) -> list[np.ndarray]:
        """Rows of each owner, in ascending order -> [num_owners] arrays of int64

        Args:
          part: only those of this part; None for all.
        """
        chosen = np.arange(len(self.y)) if part is None else np.flatnonzero(self.part == part)
        order = chosen[np.argsort(self.owner[chosen], kind="stable")]
        counts = np.bincount(self.owner[chosen], minlength=self.num_owners)
        return np.split(order, np.cumsum(counts)[:-1])


def ownership(sizes: Sequence[int], *parts: int) -> dict[str, Any]:
    """The fields `part`, `owner` and `num_owners` of examples that come owner by owner.

    Args:
      sizes: number of examples in each part of owner 0, then of owner 1, and so on.
      parts: of each owner, in the order of its examples.
    """
    counts = np.reshape(sizes, (-1, len(parts)))
    return {
        "part": np.repeat(np.tile(np.array(parts, np.uint8), len(counts)), counts.ravel()),
        "owner": np.repeat(np.arange(len(counts)), counts.sum(1)),
        "num_owners": len(counts),
    }


class Dealt(NamedTuple):
    """The training, validation and test examples of each client.

    Attributes:
      examples: the pool; the partition may have changed the source's examples.
      train, val, test: [C] arrays of rows of the pool, all disjoint.
      group: [C] uint8, an index into `GROUPS`.
      client_id: [C] int64, see `Federation`; None for 0, 1, ...
      side: [M] int64 of each example of the pool, cluster: [C] int64; see `Federation`.
      known: whether the clients are the owners, so that the pool's `truth` holds for them.
      left_out: number of clients that lacked training or test examples.
    """

    examples: Examples
    train: list[np.ndarray]
    val: list[np.ndarray]
    test: list[np.ndarray]
    group: np.ndarray
    client_id: np.ndarray | None = None
    side: np.ndarray | None = None
    cluster: np.ndarray | None = None
    known: bool = False
    left_out: int = 0

    def without_the_untestable(self) -> "Dealt":
        """The same without clients that lack training or test examples; others keep their numbers.

        Nothing can be measured on such clients. They need no test examples if a server has some. A
        server or a probe may have either part alone.

        Raises:
          ConfigError: if no seen client is left.
        """
        train, test = (np.array([*map(len, part)]) for part in (self.train, self.test))
        is_client = np.isin(self.group, [GROUPS.index(group) for group in CLIENTS])
        tested = test[~is_client].any()
        kept = np.flatnonzero(~is_client | ((train > 0) & ((test > 0) | tested)))
        if GROUPS.index("seen") not in self.group[kept]:
            raise ConfigError(
                f"none of the {len(self.train)} clients is seen and has training and test "
                "examples; take fewer clients, more data or a smaller unseen_fraction"
            )
        splits = {name: [getattr(self, name)[c] for c in kept] for name in ("train", "val", "test")}
        cluster = None if self.cluster is None else self.cluster[kept]
        dealt = self._replace(**splits, group=self.group[kept], client_id=kept, cluster=cluster)
        return dealt._replace(left_out=len(train) - len(kept))

    def federation(self) -> Federation:
        """The federation; examples without an owner are left out, the others keep their order.

        Raises:
          DataError: if a row has two owners.
        """
        splits = {"train": self.train, "val": self.val, "test": self.test}
        rows = [rows for owned in splits.values() for rows in owned]
        stored = np.unique(np.concatenate(rows))
        pool, side = self.examples, self.side
        if len(stored) < len(pool.y):  # otherwise a copy would waste memory
            pool, side = pool.take(stored), side if side is None else side[stored]
        number = np.arange(len(self.group)) if self.client_id is None else self.client_id
        names = self._names()
        return Federation(
            x=pool.x,
            y=pool.y,
            num_classes=pool.num_classes,
            **{
                name: Split.from_lists([np.searchsorted(stored, rows) for rows in owned])
                for name, owned in splits.items()
            },
            group=self.group,
            client_id=number,
            mean=pool.mean,
            std=pool.std,
            side=side,
            cluster=self.cluster,
            truth=pool.truth if self.known else None,
            tokens=pool.tokens,
            client_name=None if np.array_equal(names, number) else names,
            left_out=self.left_out,
            class_name=pool.class_name,
            column_name=pool.column_name,
        )

    def _names(self) -> np.ndarray | None:
        """Name of each client; None unless every client is one owner, as a user called it."""
        pool = self.examples
        if pool.owner_name is None or pool.owner is None:
            return None
        rows = map(np.concatenate, zip(self.train, self.val, self.test, strict=True))
        found = [np.unique(pool.owner[own]) for own in rows]
        owners = np.concatenate(found)
        alone = len({*owners.tolist()}) == len(owners) and all(len(own) == 1 for own in found)
        return pool.owner_name[owners] if alone else None
