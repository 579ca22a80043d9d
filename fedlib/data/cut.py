"""Federations from partitioned data: train, validation and test parts, seen and unseen clients.

`cut` splits every client's examples, sets unseen clients apart and packs the result into a
`Federation`. `Scheme` partitions first: it is what the `build` of a data set takes.

Randomness is that of `fedlib.data.partition`: the papers' generators and order of draws.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  specification section 3.6.
Deviation: clients that would have no training or no test example are dropped, because nothing can
  be measured on them (3.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedlib.data.partition import Examples, check_count, check_fraction, parse
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS, Federation, Split


def split_in_two(num: int, num_test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the two parts of `num` items, scikit-learn's train_test_split (section 3.6).

    Returns:
      The first `num - num_test` and the last `num_test`, each shuffled: two int64 arrays.
    """
    order = np.random.RandomState(seed).permutation(num)
    return order[num_test:], order[:num_test]


def divide(rows: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """floor(fraction * n) random rows and the rest, each shuffled (section 3.6, train_size)."""
    first, second = split_in_two(len(rows), len(rows) - math.floor(fraction * len(rows)), seed)
    return rows[first], rows[second]


def unseen_clients(num_clients: int, fraction: float, seed: int) -> np.ndarray:
    """Numbers of the clients set apart from training (section 3.6) -> [ceil(fraction * C)] int64"""
    return split_in_two(num_clients, math.ceil(fraction * num_clients), seed)[1]


def client_groups(num_clients: int, unseen_fraction: float, seed: int) -> np.ndarray:
    """Group of each client, an index into `GROUPS` -> [C] uint8"""
    groups = np.full(num_clients, GROUPS.index("seen"), np.uint8)
    groups[unseen_clients(num_clients, unseen_fraction, seed)] = GROUPS.index("unseen")
    return groups


def last_are_unseen(num_clients: int, fraction: float) -> np.ndarray:
    """Groups of clients whose order is random: the first int((1 - fraction) * C) are seen (3.8).

    Returns:
      [C] uint8, as `client_groups`, which draws the unseen clients.
    """
    return (np.arange(num_clients) >= int((1 - fraction) * num_clients)).astype(np.uint8)


def cut(
    x: np.ndarray,
    y: np.ndarray,
    owners: Sequence[np.ndarray],
    *,
    num_classes: int,
    train_fraction: float,
    val_fraction: float,
    unseen_fraction: float,
    seed: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    group: np.ndarray | None = None,
) -> Federation:
    """The federation in which client c owns the rows `owners[c]` of `x` and `y`.

    Examples that nobody owns are not stored; the others keep their order. A client without a
    training or a test example is dropped, `client_id` keeps the numbers of the others.

    Args:
      x: [N, ...] inputs; y: [N, ...] labels.
      owners: [C] arrays of row numbers, disjoint.
      num_classes: L.
      train_fraction: of a client's examples, validation included; the rest is its test part.
      val_fraction: of the training part, 0 for none.
      unseen_fraction: of the clients, 0 for none.
      seed: of every split; the papers use the same one for every client.
      mean, std: per channel, see `Federation`.
      group: [C] uint8, who is seen and who unseen; None draws `unseen_fraction` of the clients.

    Raises:
      ConfigError: if no client, or no seen client, has both training and test examples.
      DataError: if a row has two owners.
    """
    parts = [_split(rows, train_fraction, val_fraction, seed) for rows in owners]
    kept = [c for c, (train, _, test) in enumerate(parts) if len(train) and len(test)]
    if group is None:
        group = client_groups(len(owners), unseen_fraction, seed)
    group = group[kept]
    if GROUPS.index("seen") not in group:
        raise ConfigError(
            f"none of the {len(owners)} clients is seen and has training and test examples; "
            f"take fewer clients, more data or an unseen_fraction below {unseen_fraction}"
        )
    stored = np.unique(np.concatenate([rows for c in kept for rows in parts[c]]))
    train, val, test = (
        Split.from_lists([np.searchsorted(stored, parts[c][split]) for c in kept])
        for split in range(3)
    )
    return Federation(
        x=x[stored],
        y=y[stored],
        num_classes=num_classes,
        train=train,
        val=val,
        test=test,
        group=group,
        client_id=np.array(kept, np.int64),
        mean=mean,
        std=std,
    )


@dataclass(frozen=True)
class Scheme:
    """How a data set becomes a federation; the parameters that every image data set shares.

    Attributes:
      partition: {"kind": ..., parameters}, see `PARTITIONS`.
      fraction: of the data set that is used, in (0, 1] (of the writers, for partition "writer").
      train_fraction, val_fraction, unseen_fraction, seed: see `cut`; the seed is also the
        partition's.
    """

    partition: dict
    fraction: float
    train_fraction: float
    val_fraction: float
    unseen_fraction: float
    seed: int

    def __post_init__(self):
        """Raises ConfigError for a value that makes no sense, before any file is read."""
        parse(self.partition)
        check_fraction("fraction", self.fraction, one=True)
        check_fraction("train_fraction", self.train_fraction)
        check_splits(self.val_fraction, self.unseen_fraction, self.seed)

    def federation(
        self,
        x: np.ndarray,
        y: np.ndarray,
        *,
        num_classes: int,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
        coarse: np.ndarray | None = None,
        writer: np.ndarray | None = None,
        unseen: np.ndarray | None = None,
    ) -> Federation:
        """The examples x [N, ...], y [N], cut into clients.

        Args:
          x, y, num_classes, mean, std: see `cut`.
          coarse, writer: see `Examples`.
          unseen: [N] bool; the clients who own such an example are the unseen ones. None draws
            `unseen_fraction` of the clients.
        """
        owners = parse(self.partition).owners(
            Examples(y, coarse, writer), fraction=self.fraction, seed=self.seed
        )
        group = None
        if unseen is not None:
            group = np.array([unseen[rows].any() for rows in owners], np.uint8)
        return cut(
            x,
            y,
            owners,
            num_classes=num_classes,
            train_fraction=self.train_fraction,
            val_fraction=self.val_fraction,
            unseen_fraction=self.unseen_fraction,
            seed=self.seed,
            mean=mean,
            std=std,
            group=group,
        )


def check_splits(val_fraction: float, unseen_fraction: float, seed: int) -> None:
    """Raises ConfigError unless these parameters of `cut` make sense."""
    check_fraction("val_fraction", val_fraction, zero=True)
    check_fraction("unseen_fraction", unseen_fraction, zero=True)
    check_count("seed", seed, least=0)
    if seed >= 2**32:
        raise ConfigError(f"seed must be below 2**32 (numpy's legacy generator), got {seed}")


def _split(
    rows: np.ndarray, train_fraction: float, val_fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test rows of one client (section 3.6)."""
    train, test = divide(rows, train_fraction, seed)
    fit, val = divide(train, 1 - val_fraction, seed) if val_fraction else (train, train[:0])
    return fit, val, test
