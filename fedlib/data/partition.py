"""Who owns which example: partitions of a data set.

A partition says which examples each client owns; `fedlib.data.cut` makes a federation of it.

All randomness comes from `random.Random(seed)` and `numpy.random.RandomState(seed)`, the two
generators (and the order of draws) with which the papers' public code makes its federations, so
that the same seed gives the same clients. Global generators are neither read nor moved.

Source: pFedMM and FedEM (Marfoq et al., NeurIPS 2021), data preparation of the official code;
  specification sections 3.2 to 3.5 and 3.8.
Deviation: the pathological partition shuffles with the seeded generator (3.5).
"""

import math
import random
from dataclasses import MISSING, dataclass, fields
from typing import NamedTuple, Protocol

import numpy as np

from fedlib.errors import ConfigError


class Examples(NamedTuple):
    """What a partition may know of a data set.

    Attributes:
      labels: [N] class of each example.
      coarse: [L] coarse label of each class, where the data set has a hierarchy.
      writer: [N] who wrote each example, where the data set says so.
    """

    labels: np.ndarray
    coarse: np.ndarray | None = None
    writer: np.ndarray | None = None


class Partition(Protocol):
    """Assigns examples to clients; its fields are its parameters, checked on construction."""

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, a random `fraction` of all -> [C] arrays of int64"""


@dataclass(frozen=True)
class Iid:
    """Every client owns an equal, random share of the data.

    Attributes:
      num_clients: C.
    """

    num_clients: int

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        check_count("num_clients", self.num_clients)

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows owned by each client; sizes differ by at most one -> [C] arrays of int64"""
        rows = _subset(random.Random(seed), len(examples.labels), fraction, self.num_clients)
        return _rows(_chunks(rows, self.num_clients))


@dataclass(frozen=True)
class Dirichlet:
    """Each group of labels is dealt to the clients in Dirichlet proportions (section 3.3).

    Attributes:
      num_clients: C.
      alpha: concentration; small is heterogeneous, 1e6 is practically uniform.
      num_groups: random groups that the labels are put into (3 on CIFAR-10; the code's
        n_components), or None for one group per label.
      min_examples: clients with fewer are left empty; small alphas leave some with one or two,
        on which batch normalisation cannot train.
    """

    num_clients: int
    alpha: float
    num_groups: int | None = None
    min_examples: int = 1

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        check_count("num_clients", self.num_clients)
        check_positive("alpha", self.alpha)
        check_count("min_examples", self.min_examples)
        if self.num_groups is not None:
            check_count("num_groups", self.num_groups)

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, group by group; a client may own none -> [C] arrays"""
        draw, numpy_draw = random.Random(seed), np.random.RandomState(seed)
        group_of = self._groups(draw, examples.labels)
        chosen = _subset(draw, len(examples.labels), fraction, self.num_clients)
        members = [[] for _ in range(max(group_of.values()) + 1)]
        for row in chosen:
            members[group_of[int(examples.labels[row])]].append(row)
        for rows in members:
            draw.shuffle(rows)
        clients = [[] for _ in range(self.num_clients)]
        for rows in members:
            shares = dirichlet(numpy_draw, self.alpha, self.num_clients)
            counts = numpy_draw.multinomial(len(rows), shares)
            for client, part in zip(clients, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
                client.extend(part)
        return _rows([rows if len(rows) >= self.min_examples else [] for rows in clients])

    def _groups(self, draw: random.Random, labels: np.ndarray) -> dict[int, int]:
        order = list(range(int(labels.max()) + 1))
        num_groups = len(order) if self.num_groups is None else self.num_groups
        if num_groups > len(order):
            raise ConfigError(
                f"num_groups must be at most the {len(order)} labels of the data, got {num_groups}"
            )
        draw.shuffle(order)
        chunks = _chunks(order, num_groups)
        return {label: group for group, chunk in enumerate(chunks) for label in chunk}


@dataclass(frozen=True)
class Pachinko:
    """Equal clients whose coarse labels, and classes within them, are Dirichlet (section 3.4).

    Attributes:
      num_clients: C.
      alpha: concentration over coarse labels.
      beta: concentration over the classes of one coarse label.
    """

    num_clients: int
    alpha: float
    beta: float

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        check_count("num_clients", self.num_clients)
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, all of one size -> [C] arrays of int64"""
        if examples.coarse is None:
            raise ConfigError(
                "partition pachinko needs a data set with coarse labels (CIFAR-100); "
                f"choose one of {_others('pachinko')}"
            )
        draw, numpy_draw = random.Random(seed), np.random.RandomState(seed)
        left = [[] for _ in range(len(examples.coarse))]  # rows of each class nobody owns yet
        chosen = _subset(draw, len(examples.labels), fraction, self.num_clients)
        for row in chosen:
            left[int(examples.labels[row])].append(row)
        tree = [
            [int(fine) for fine in np.flatnonzero(examples.coarse == coarse) if left[fine]]
            for coarse in range(int(examples.coarse.max()) + 1)
        ]
        tree = [fines for fines in tree if fines]
        size = len(chosen) // self.num_clients
        clients = [
            self._client(tree, left, size, draw, numpy_draw) for _ in range(self.num_clients)
        ]
        return _rows(clients)

    def _client(
        self,
        tree: list[list[int]],
        left: list[list[int]],
        size: int,
        draw: random.Random,
        numpy_draw: np.random.RandomState,
    ) -> list[int]:
        """One client's rows; what it takes is removed from `tree` and `left`."""
        coarse_shares = dirichlet(numpy_draw, self.alpha, len(tree))
        fine_shares = [dirichlet(numpy_draw, self.beta, len(fines)) for fines in tree]
        taken = []
        for _ in range(size):
            coarse = int(numpy_draw.multinomial(1, coarse_shares).argmax())
            fine = int(numpy_draw.multinomial(1, fine_shares[coarse]).argmax())
            rows = left[tree[coarse][fine]]
            row = draw.choice(rows)
            rows.remove(row)
            taken.append(row)
            if not rows:
                del tree[coarse][fine]
                fine_shares[coarse] = _without(fine_shares[coarse], fine)
            if not tree[coarse]:
                del tree[coarse], fine_shares[coarse]
                coarse_shares = _without(coarse_shares, coarse)
        return taken


@dataclass(frozen=True)
class Pathological:
    """Every client owns a few shards of the data sorted by label (section 3.5).

    Attributes:
      num_clients: C.
      shards_per_client: shards of one client, about its number of classes.
    """

    num_clients: int
    shards_per_client: int = 2

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        check_count("num_clients", self.num_clients)
        check_count("shards_per_client", self.shards_per_client)

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows owned by each client, shard by shard -> [C] arrays of int64"""
        draw = random.Random(seed)
        num_shards = self.num_clients * self.shards_per_client
        chosen = _subset(draw, len(examples.labels), fraction, num_shards)
        shards = _chunks(sorted(chosen, key=lambda row: examples.labels[row]), num_shards)
        draw.shuffle(shards)
        hands = _chunks(shards, self.num_clients)
        return _rows([[row for shard in hand for row in shard] for hand in hands])


@dataclass(frozen=True)
class Writer:
    """One client per writer, the natural partition (section 3.8).

    Attributes:
      min_examples: writers with fewer are left out (3: "writers with <= 2 images dropped").
    """

    min_examples: int = 3

    def __post_init__(self):
        """Raises ConfigError for a parameter that makes no sense."""
        check_count("min_examples", self.min_examples)

    def owners(self, examples: Examples, *, fraction: float, seed: int) -> list[np.ndarray]:
        """Rows of each of a random `fraction` of the writers -> [C] arrays of int64"""
        if examples.writer is None:
            raise ConfigError(
                "partition writer needs a data set that names the writers; "
                f"choose one of {_others('writer')}"
            )
        names, counts = np.unique(examples.writer, return_counts=True)
        writers = draw_some(list(names[counts >= self.min_examples]), fraction, seed)
        return [np.flatnonzero(examples.writer == writer) for writer in writers]


PARTITIONS: dict[str, type[Partition]] = {
    "dirichlet": Dirichlet,
    "iid": Iid,
    "pachinko": Pachinko,
    "pathological": Pathological,
    "writer": Writer,
}


def parse(partition: dict) -> Partition:
    """The partition declared as {"kind": ..., parameter: value, ...}.

    Raises:
      ConfigError: for an unknown kind, an unknown, missing or senseless parameter.
    """
    kind = partition.get("kind") if isinstance(partition, dict) else partition
    if not isinstance(partition, dict) or kind not in list(PARTITIONS):
        raise ConfigError(f"no partition kind {kind!r}; choose one of {', '.join(PARTITIONS)}")
    params = {name: value for name, value in partition.items() if name != "kind"}
    cls = PARTITIONS[kind]
    known = [field.name for field in fields(cls)]
    required = [field.name for field in fields(cls) if field.default is MISSING]
    for name in [*params, *required]:
        if name not in known or name not in params:
            problem = "has no parameter" if name not in known else "needs the parameter"
            raise ConfigError(f"partition {kind} {problem} {name!r}; it takes {', '.join(known)}")
    return cls(**params)


def draw_some(clients: list, fraction: float, seed: int) -> list:
    """A random `fraction` of the natural clients of a data set, in random order (section 3.8)."""
    draw = random.Random(seed)
    clients = list(clients)
    draw.shuffle(clients)
    clients = clients[: int(len(clients) * fraction)]
    draw.shuffle(clients)
    return clients


def dirichlet(
    draw: np.random.RandomState | np.random.Generator, alpha: float, size: int
) -> np.ndarray:
    """Shares that sum to 1 -> [size] float64

    Raises:
      ConfigError: if `alpha` is so small that every share underflows to 0.
    """
    shares = draw.dirichlet(np.full(size, alpha))
    if not np.all(np.isfinite(shares)):
        raise ConfigError(f"a Dirichlet concentration of {alpha} is too small: all shares are 0")
    return shares


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = False) -> None:
    """Raises ConfigError unless `value` is in (0, 1); `zero` and `one` admit that end."""
    interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
    if not _is_number(value) or not (
        0 < value < 1 or (zero and value == 0) or (one and value == 1)
    ):
        raise ConfigError(f"{name} must be in {interval}, got {value!r}")


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raises ConfigError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raises ConfigError unless `value` is a positive, finite number."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ConfigError(f"{name} must be a positive number, got {value!r}")


def _others(kind: str) -> str:
    return ", ".join(other for other in PARTITIONS if other != kind)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _subset(draw: random.Random, num: int, fraction: float, at_least: int) -> list[int]:
    """A random `fraction` of range(num), in random order."""
    size = int(num * fraction)
    if size < at_least:
        raise ConfigError(
            f"{size} examples (fraction {fraction} of {num}) cannot be dealt to {at_least} "
            "clients or shards; take fewer of these or a larger fraction"
        )
    return draw.sample(range(num), size)


def _chunks(items: list, num: int) -> list[list]:
    """`items` in `num` consecutive chunks; the last len(items) mod num have one item more."""
    base, longer = divmod(len(items), num)
    ends = [base * (i + 1) + max(0, i + 1 - (num - longer)) for i in range(num)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _without(shares: np.ndarray, index: int) -> np.ndarray:
    """The shares without one of them, summing to 1 again; uniform if only zeros are left."""
    left = np.delete(shares, index)
    total = left.sum()
    return left / total if total > 0 else np.full(len(left), 1 / max(1, len(left)))


def _rows(clients: list[list[int]]) -> list[np.ndarray]:
    return [np.array(rows, dtype=np.int64) for rows in clients]
