"""Clients of a few classes each, as in pFedMoE and its sibling papers.

Golden values are those of the published procedure with seed 42, recomputed from its description.
"""

import numpy as np
import pytest

from fedlib.data.examples import Examples
from fedlib.data.partitions import parse
from fedlib.data.partitions.path_dir import PathDir
from fedlib.data.partitions.path_line import PathLine
from fedlib.errors import ConfigError

SEED = 42
SPLIT = {"train_fraction": 0.8}


def of_labels(num_classes: int, each: int) -> Examples:
    """A data set with so many examples of each class."""
    labels = np.arange(num_classes * each) % num_classes
    return Examples(np.zeros((len(labels), 1)), labels, num_classes)


CIFAR10, CIFAR100 = of_labels(10, 4000), of_labels(100, 400)


def counts(data: Examples, owners: list[np.ndarray]) -> np.ndarray:
    """Examples of each class of each client -> [C, L]"""
    return np.stack([np.bincount(data.y[rows], minlength=data.num_classes) for rows in owners])


@pytest.mark.parametrize(
    ("data", "num_clients", "per_client", "expected"),
    [
        (CIFAR10, 10, 2, (3579, 4596)),
        (CIFAR10, 50, 2, (666, 926)),
        (CIFAR10, 100, 2, (328, 461)),
        (CIFAR100, 10, 10, (4000, 4000)),
        (CIFAR100, 50, 10, (749, 859)),
        (CIFAR100, 100, 10, (362, 425)),
    ],
)
def test_clients_have_the_sizes_of_the_published_procedure(data, num_clients, per_client, expected):
    sizes = [len(rows) for rows in PathLine(num_clients, per_client, **SPLIT).owners(data, SEED)]
    assert (min(sizes), max(sizes)) == expected


@pytest.mark.parametrize(
    ("data", "per_client", "twice"),
    [
        *((CIFAR10, 4, 2), (CIFAR10, 6, 3), (CIFAR10, 8, 6)),
        *((CIFAR100, 30, 2), (CIFAR100, 70, 6), (CIFAR100, 90, 8)),
    ],
)
def test_a_client_may_get_a_class_twice_unless_classes_are_to_be_distinct(data, per_client, twice):
    def fewer(distinct: bool) -> int:
        partition = PathLine(10, per_client, distinct=distinct, **SPLIT)
        held = (counts(data, partition.owners(data, SEED)) > 0).sum(axis=1)
        return int((held < per_client).sum())

    assert fewer(distinct=False) == twice
    assert fewer(distinct=True) < twice


def test_where_no_class_comes_twice_distinct_changes_nothing():
    for per_client in (1, 2, 5, 10):
        one, other = (
            PathLine(10, per_client, distinct=distinct, **SPLIT).owners(CIFAR10, SEED)
            for distinct in (True, False)
        )
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("partition", [PathLine(50, 2, **SPLIT), PathDir(50, 2, 1.0, **SPLIT)])
def test_every_class_has_as_many_owners_and_no_example_has_two(partition):
    owners = partition.owners(CIFAR10, SEED)
    rows = np.concatenate(owners)
    assert len(np.unique(rows)) == len(rows)
    # Of each class, rounding loses less than one example for each of its ten owners.
    table = counts(CIFAR10, owners)
    assert (4000 - 10 < table.sum(0)).all() and (table.sum(0) <= 4000).all()
    if isinstance(partition, PathLine):
        assert (table > 0).sum(0).tolist() == [10] * 10
        assert (table > 0).sum(1).tolist() == [2] * 50


def test_shares_are_as_even_as_their_interval():
    # Equal shares of 4,000 examples for ten owners, and uniform ones: at most 0.6 / (0.6 + 9 * 0.4)
    # of a class, at least 0.4 / (0.4 + 9 * 0.6).
    even, uneven = (
        counts(CIFAR10, PathLine(50, 2, low=low, high=0.6, **SPLIT).owners(CIFAR10, SEED))
        for low in (0.6, 0.4)
    )
    assert set(even.ravel()) <= {0, 399, 400}
    found = uneven[uneven > 0]
    assert int(4000 * 0.4 / 5.8) <= found.min() and found.max() <= 4000 * 0.6 / 4.2
    assert found.std() > 20


def test_a_large_concentration_shares_evenly_and_a_small_one_does_not():
    even, uneven = (
        counts(CIFAR10, PathDir(50, 2, alpha, **SPLIT).owners(CIFAR10, SEED)).max(0)
        for alpha in (1e6, 0.1)
    )
    assert (even < 410).all() and np.median(uneven) > 1000


@pytest.mark.parametrize("cls", [PathLine, PathDir])
def test_test_images_are_of_the_same_classes(cls):
    partition = cls(10, 2, **({"alpha": 10.0} if cls is PathDir else {}), **SPLIT)
    built = partition.deal(CIFAR10, 1).federation()
    for client in range(built.num_clients):
        train, test = (
            np.bincount(built.y[split.of(client)], minlength=10)
            for split in (built.train, built.test)
        )
        assert set(np.flatnonzero(test)) <= set(np.flatnonzero(train))
        # A fifth of a class is for testing; a deviation is below sqrt(0.16 * 4000) = 26.
        assert np.abs(test - (train + test) / 5).max() < 5 * 26


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"low": 0.7}, "low must be at most high, got 0.7 and 0.6"),
        ({"low": 0}, "low must be a positive number, got 0"),
        ({"classes_per_client": 0}, "classes_per_client must be"),
        ({"kind": "path_dir", "alpha": 0}, "alpha must be a positive number, got 0"),
    ],
)
def test_values_that_make_no_sense_are_refused(declared, message):
    sound = {"kind": "path_line", "num_clients": 10, "classes_per_client": 2, **SPLIT}
    with pytest.raises(ConfigError, match=message):
        parse({**sound, **declared})


@pytest.mark.parametrize(("num_clients", "per_client"), [(10, 11), (7, 3)])
def test_classes_that_cannot_have_as_many_owners_each_are_refused(num_clients, per_client):
    with pytest.raises(ConfigError, match=f"{num_clients} clients with {per_client} classes each"):
        PathLine(num_clients, per_client, **SPLIT).owners(CIFAR10, SEED)
