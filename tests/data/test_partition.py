"""Clients who divide a whole data set. Section numbers are those of the pFedMM specification."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest
from data_fixtures import class_counts, numbered

from fedlib.data.draws import divide, unseen_clients
from fedlib.data.joined import Joined
from fedlib.data.partitions.dirichlet import Dirichlet
from fedlib.data.partitions.pachinko import Pachinko
from fedlib.data.partitions.path_dir import PathDir
from fedlib.data.partitions.path_line import PathLine
from fedlib.data.partitions.pathological import Pathological
from fedlib.data.partitions.writer import Writer
from fedlib.errors import ConfigError
from fedlib.federation import SPLITS

SEED = 12345  # partition seed of the paper, section 1.7
SPLIT = {"train_fraction": 0.8}

# Coarse label of each fine label of CIFAR-100, from its official files. As JSON its SHA-256 starts
# with dfdc0e872df7a783 (section 3.4), which a test below checks.
CIFAR100_COARSE = [
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
]


def short_hash(value: list) -> str:
    """Section 8: 16 hex digits of the SHA-256 of the JSON text without spaces."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:16]


def lists(owners: list[np.ndarray]) -> list[list[int]]:
    return [rows.tolist() for rows in owners]


def of_classes(num: int, num_classes: int = 10, **known):
    """So many examples, the classes in turn."""
    return numbered(np.arange(num) % num_classes, **known)


@dataclass(frozen=True)
class Given(Joined):
    """Clients who own what they are said to."""

    rows: tuple = ()

    def owners(self, examples, seed):
        return list(self.rows)


def federation(owners, **changes):
    return Given(tuple(owners), **{**SPLIT, **changes}).deal(of_classes(100), SEED).federation()


# Golden values, section 8.1


def test_dirichlet_gives_the_official_clients_of_the_small_example():
    owners = Dirichlet(8, 0.4, 3, **SPLIT).owners(of_classes(600), SEED)
    assert [len(rows) for rows in owners] == [47, 33, 46, 320, 85, 27, 17, 25]
    assert owners[0][:5].tolist() == [523, 547, 303, 488, 263]
    assert owners[7][:5].tolist() == [378, 583, 597, 491, 575]
    assert short_hash(lists(owners)) == "29829a8a188531fa"
    some = Dirichlet(8, 0.4, 3, min_examples=33, **SPLIT).owners(of_classes(600), SEED)
    assert [len(rows) for rows in some] == [47, 33, 46, 320, 85, 0, 0, 0]
    assert all(map(np.array_equal, some[:5], owners[:5]))


def test_pachinko_gives_the_official_clients_of_the_small_example():
    assert short_hash(CIFAR100_COARSE) == "dfdc0e872df7a783"
    data = of_classes(6000, 100, coarse=np.array(CIFAR100_COARSE))
    owners = Pachinko(10, 0.4, 10, **SPLIT).owners(data, SEED)
    assert [len(rows) for rows in owners] == [600] * 10
    assert owners[0][:5].tolist() == [4679, 988, 1978, 117, 2947]
    assert short_hash(lists(owners)) == "dcdf8090e67d5e05"


def test_a_client_is_split_as_officially_and_as_scikit_learn_does():
    from sklearn.model_selection import train_test_split

    train, test = divide(np.arange(10), 0.8, SEED)
    assert (train.tolist(), test.tolist()) == ([3, 9, 6, 4, 1, 8, 5, 2], [0, 7])
    for num in range(5, 60):
        expected = train_test_split(np.arange(num), train_size=0.8, random_state=SEED)
        assert lists(divide(np.arange(num), 0.8, SEED)) == lists(expected)


def test_unseen_clients_are_the_official_ones():
    unseen = [45, 48, 28, 61, 68, 60, 4, 25, 73, 2, 6, 13, 52, 76, 54, 20]
    assert unseen_clients(80, 0.2, SEED).tolist() == unseen
    unseen = [69, 33, 86, 60, 20, 49, 63, 42, 88, 35, 28, 4, 78, 13, 51, 9, 40, 65, 25, 75]
    assert unseen_clients(100, 0.2, SEED).tolist() == unseen
    assert len(unseen_clients(6, 0.2, SEED)) == 2  # rounded up


# What makes each partition what it is; what holds for all is in test_partitions.py


def test_pathological_clients_have_as_many_labels_as_shards():
    data = of_classes(1000)
    table = class_counts(data.y, Pathological(10, 2, **SPLIT).owners(data, 0))
    # 20 shards of 50 examples and 100 examples of each label: no shard has two labels.
    assert (table.sum(1) == 100).all() and ((table > 0).sum(1) <= 2).all()


def test_a_writer_is_a_client_and_small_ones_are_left_out():
    data = numbered(np.zeros(9, int), owner=np.array([1, 0, 1, 2, 1, 0, 0, 2, 0]), num_owners=3)
    assert sorted(lists(Writer(**SPLIT).owners(data, 0))) == [[0, 2, 4], [1, 5, 6, 8]]


# Clients of a few classes each, as in pFedMoE and its sibling papers. Golden values are those of
# the published procedure with seed 42, recomputed from its description.

OF_10, OF_100 = of_classes(40_000), of_classes(40_000, 100)


def line(num_clients, per_client, data=OF_10) -> np.ndarray:
    """Examples of each class of each client -> [C, L]"""
    partition = PathLine(num_clients, per_client, **SPLIT)
    return class_counts(data.y, partition.owners(data, 42), data.num_classes)


@pytest.mark.parametrize(
    ("data", "num_clients", "per_client", "expected"),
    [
        (OF_10, 10, 2, (3579, 4596)),
        (OF_10, 50, 2, (666, 926)),
        (OF_10, 100, 2, (328, 461)),
        (OF_100, 10, 10, (4000, 4000)),
        (OF_100, 50, 10, (749, 859)),
        (OF_100, 100, 10, (362, 425)),
    ],
)
def test_clients_have_the_sizes_of_the_published_procedure(data, num_clients, per_client, expected):
    sizes = line(num_clients, per_client, data).sum(1)
    assert (sizes.min(), sizes.max()) == expected


def test_shares_are_as_even_as_their_interval_or_their_concentration():
    # Uniform shares of ten owners: at most 0.6 / (0.6 + 9 * 0.4) of the 4,000 examples of a class,
    # at least 0.4 / (0.4 + 9 * 0.6).
    uneven = line(50, 2)
    found = uneven[uneven > 0]
    assert int(4000 * 0.4 / 5.8) <= found.min() and found.max() <= 4000 * 0.6 / 4.2
    assert found.std() > 20
    dealt = (PathDir(50, 2, alpha, **SPLIT).owners(OF_10, 42) for alpha in (1e6, 0.1))
    even, uneven = (class_counts(OF_10.y, owners).max(0) for owners in dealt)
    assert (even < 410).all() and np.median(uneven) > 1000


# From owners to a federation


def test_the_splits_of_a_client_are_its_own_rows():
    owners = [np.arange(0, 50), np.arange(50, 100)]
    built = federation(owners, val_fraction=0.25)
    sizes = [built.split(name).sizes.tolist() for name in SPLITS]
    assert sizes == [[30, 30], [10, 10], [10, 10]]  # section 3.6: 60/20/20
    for client, rows in enumerate(owners):
        held = [built.x[built.split(name).of(client)] for name in SPLITS]
        assert sorted(np.concatenate(held).ravel().tolist()) == rows.tolist()


def test_examples_without_an_owner_are_not_stored():
    built = federation([np.array([90, 10, 50, 70, 30]), np.array([5, 6, 7, 8, 9])])
    assert built.x.ravel().tolist() == [5, 6, 7, 8, 9, 10, 30, 50, 70, 90]
    assert built.y.tolist() == [5, 6, 7, 8, 9, 0, 0, 0, 0, 0]


def test_clients_without_training_or_test_examples_are_dropped_and_numbers_kept():
    built = federation([np.arange(0, 10), np.array([], int), np.array([20]), np.arange(30, 40)])
    assert built.client_id.tolist() == [0, 3]
    assert len(built.x) == 20


def test_dropping_a_client_moves_no_other_client_to_another_group():
    owners = [np.arange(10 * c, 10 * c + 10) for c in range(10)]
    unseen = set(unseen_clients(10, 0.3, SEED).tolist())
    dropped = min(set(range(10)) - unseen)
    owners[dropped] = owners[dropped][:0]
    built = federation(owners, unseen_fraction=0.3)
    assert set(built.client_id[built.ids("unseen")].tolist()) == unseen


@pytest.mark.parametrize("unseen_fraction", [0.0, 0.9])
def test_a_federation_without_a_seen_client_is_refused(unseen_fraction):
    owners = [np.arange(10), np.array([10])] if unseen_fraction else [np.array([1])]
    with pytest.raises(ConfigError, match=f"none of the {len(owners)} clients is seen"):
        federation(owners, unseen_fraction=unseen_fraction)
