"""Who owns which example. Section numbers are those of the pFedMM specification."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pytest

from fedlib.data.draws import dirichlet, divide, unseen_clients
from fedlib.data.examples import Examples
from fedlib.data.joined import Joined
from fedlib.data.partitions import parse
from fedlib.data.partitions.dirichlet import Dirichlet
from fedlib.data.partitions.iid import Iid
from fedlib.data.partitions.pachinko import Pachinko
from fedlib.data.partitions.pathological import Pathological
from fedlib.data.partitions.writer import Writer
from fedlib.errors import ConfigError, DataError

SEED = 12345  # partition seed of the paper, section 1.7

# Coarse label of each fine label of CIFAR-100, from its official files. As JSON its SHA-256 starts
# with dfdc0e872df7a783 (section 3.4), which a test below checks.
CIFAR100_COARSE = [
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
    *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
    *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
    *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
    *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
]

SPLIT = {"train_fraction": 0.8}

# One of each kind, for what holds for all of them.
EVERY_KIND = {
    "dirichlet": {"num_clients": 7, "alpha": 0.4, "num_groups": 3},
    "iid": {"num_clients": 7},
    "pachinko": {"num_clients": 7, "alpha": 0.4, "beta": 10.0},
    "pathological": {"num_clients": 7, "shards_per_client": 2},
    "writer": {"min_examples": 1},
}


def short_hash(value: list) -> str:
    """Section 8: 16 hex digits of the SHA-256 of the JSON text without spaces."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:16]


def lists(owners: list[np.ndarray]) -> list[list[int]]:
    return [rows.tolist() for rows in owners]


def of_labels(labels, **known) -> Examples:
    """A data set of these labels."""
    labels = np.asarray(labels)
    return Examples(np.zeros((len(labels), 1)), labels, int(labels.max()) + 1, **known)


def examples(num: int = 700) -> Examples:
    owner = np.arange(num) * 37 % 20
    return of_labels(np.arange(num) % 10, coarse=np.arange(10) // 5, owner=owner, num_owners=20)


def made(kind: str, **changes) -> Joined:
    return parse({"kind": kind, **EVERY_KIND[kind], **SPLIT, **changes})


def owners_of(kind: str, fraction: float = 1.0, seed: int = 3) -> list[np.ndarray]:
    return made(kind, fraction=fraction).owners(examples(), seed)


@dataclass(frozen=True)
class Given(Joined):
    """Clients who own what they are said to."""

    rows: tuple = ()

    def owners(self, examples, seed):
        return list(self.rows)


def federation(owners, num=100, **changes):
    x = np.arange(num, dtype=np.float32)[:, None]
    partition = Given(tuple(owners), **{**SPLIT, **changes})
    return partition.deal(Examples(x, np.arange(num) % 10, 10), SEED).federation()


# Golden values, section 8.1


def test_dirichlet_gives_the_official_clients_of_the_small_example():
    owners = Dirichlet(8, 0.4, 3, **SPLIT).owners(of_labels(np.arange(600) % 10), SEED)
    assert [len(rows) for rows in owners] == [47, 33, 46, 320, 85, 27, 17, 25]
    assert owners[0][:5].tolist() == [523, 547, 303, 488, 263]
    assert owners[7][:5].tolist() == [378, 583, 597, 491, 575]
    assert short_hash(lists(owners)) == "29829a8a188531fa"


def test_dirichlet_leaves_clients_with_too_few_examples_empty_and_the_others_as_they_were():
    labels = of_labels(np.arange(600) % 10)
    everybody = Dirichlet(8, 0.4, 3, **SPLIT).owners(labels, SEED)
    owners = Dirichlet(8, 0.4, 3, min_examples=33, **SPLIT).owners(labels, SEED)
    assert [len(rows) for rows in owners] == [47, 33, 46, 320, 85, 0, 0, 0]
    assert all(map(np.array_equal, owners[:5], everybody[:5]))


@pytest.fixture(scope="module")
def cifar10_labels():
    """60,000 labels; the order of the images does not change the counts."""
    return np.arange(60_000) % 10


def test_dirichlet_gives_the_official_counts_of_cifar10(cifar10_labels):
    owners = Dirichlet(80, 0.4, 3, **SPLIT).owners(of_labels(cifar10_labels), SEED)
    sizes = [len(rows) for rows in owners]
    assert sizes[:10] == [1033, 511, 1855, 1748, 207, 416, 360, 47, 329, 1382]
    assert (min(sizes), max(sizes), np.median(sizes), sum(sizes)) == (8, 2470, 532, 60_000)

    groups = [{8, 7, 3}, {5, 1, 2}, {9, 4, 0, 6}]  # section 3.3
    counts = [
        [int(np.isin(cifar10_labels[rows], list(group)).sum()) for group in groups]
        for rows in owners
    ]
    assert counts[:5] == [
        [760, 31, 242],
        [3, 131, 377],
        [87, 0, 1768],
        [1248, 49, 451],
        [206, 0, 1],
    ]
    assert short_hash(counts) == "19e7c8f8147636de"


def test_cifar10_has_the_official_training_and_test_sizes(cifar10_labels):
    partition = Dirichlet(80, 0.4, 3, unseen_fraction=0.2, **SPLIT)
    built = partition.deal(of_labels(cifar10_labels), SEED).federation()
    train = built.train.sizes
    assert (train.sum(), built.test.sizes.sum()) == (47_965, 12_035)
    assert ((train <= 128).sum(), train.min()) == (12, 6)
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (64, 16)  # section 3.2


def test_the_coarse_labels_are_those_of_cifar100():
    assert short_hash(CIFAR100_COARSE) == "dfdc0e872df7a783"


def test_pachinko_gives_the_official_clients_of_the_small_example():
    data = of_labels(np.arange(6000) % 100, coarse=np.array(CIFAR100_COARSE))
    owners = Pachinko(10, 0.4, 10, **SPLIT).owners(data, SEED)
    assert [len(rows) for rows in owners] == [600] * 10
    assert owners[0][:5].tolist() == [4679, 988, 1978, 117, 2947]
    assert short_hash(lists(owners)) == "dcdf8090e67d5e05"


@pytest.mark.parametrize(
    ("num", "train", "test"),
    [(10, [3, 9, 6, 4, 1, 8, 5, 2], [0, 7]), (7, [4, 0, 1, 5, 2], [6, 3])],
)
def test_a_client_is_split_as_officially(num, train, test):
    assert [part.tolist() for part in divide(np.arange(num), 0.8, SEED)] == [train, test]


def test_a_client_is_split_as_scikit_learn_does():
    from sklearn.model_selection import train_test_split

    for num in range(5, 60):
        expected = train_test_split(np.arange(num), train_size=0.8, random_state=SEED)
        found = divide(np.arange(num), 0.8, SEED)
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.parametrize(
    ("num_clients", "unseen"),
    [
        (80, [45, 48, 28, 61, 68, 60, 4, 25, 73, 2, 6, 13, 52, 76, 54, 20]),
        (
            100,
            [69, 33, 86, 60, 20, 49, 63, 42, 88, 35, 28, 4, 78, 13, 51, 9, 40, 65, 25, 75],
        ),
    ],
)
def test_unseen_clients_are_the_official_ones(num_clients, unseen):
    assert unseen_clients(num_clients, 0.2, SEED).tolist() == unseen


# What holds for every partition


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_example_has_exactly_one_owner(kind):
    assert np.sort(np.concatenate(owners_of(kind))).tolist() == list(range(700))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_no_example_of_a_subset_has_two_owners(kind):
    rows = np.concatenate(owners_of(kind, fraction=0.5))
    assert len(rows) == len(set(rows.tolist())) == 350


# What makes each partition what it is


def test_iid_clients_differ_in_size_by_at_most_one():
    assert sorted(len(rows) for rows in Iid(9, **SPLIT).owners(examples(), 0)) == [
        *[77] * 2,
        *[78] * 7,
    ]  # 700 = 9 * 77 + 7


def test_a_huge_alpha_deals_every_label_evenly():
    owners = Dirichlet(5, 1e6, **SPLIT).owners(examples(1000), 0)
    counts = np.array([np.bincount(rows % 10, minlength=10) for rows in owners])
    # 100 examples of a label: 20 per client on average, standard deviation sqrt(100 * .2 * .8) = 4.
    assert np.abs(counts - 20).max() <= 4 * 4


def test_a_tiny_alpha_gives_a_label_to_one_client():
    owners = Dirichlet(5, 0.01, **SPLIT).owners(examples(1000), 0)
    counts = np.array([np.bincount(rows % 10, minlength=10) for rows in owners])
    assert np.median(counts.max(axis=0)) == 100


def test_labels_of_one_group_go_to_a_client_in_the_same_proportion():
    owners = Dirichlet(4, 0.4, num_groups=1, **SPLIT).owners(examples(10_000), 0)
    for rows in owners:
        share = np.bincount(rows % 10, minlength=10) / max(1, len(rows))
        # Shares of ten labels, 0.1 each; standard deviation sqrt(0.1 * 0.9 / n).
        assert np.abs(share - 0.1).max() <= 4 * np.sqrt(0.09 / max(1, len(rows)))


def test_pathological_clients_have_as_many_labels_as_shards():
    owners = Pathological(10, 2, **SPLIT).owners(examples(1000), 0)
    # 20 shards of 50 examples and 100 examples of each label: no shard has two labels.
    assert all(len(rows) == 100 and len(np.unique(rows % 10)) <= 2 for rows in owners)


def test_pachinko_takes_the_last_example_of_every_class():
    owners = owners_of("pachinko")
    assert [len(rows) for rows in owners] == [100] * 7


def test_a_writer_is_a_client_and_small_ones_are_left_out():
    owner = np.array([1, 0, 1, 2, 1, 0, 0, 2, 0])
    data = of_labels(np.zeros(9, int), owner=owner, num_owners=3)
    owners = Writer(**SPLIT).owners(data, 0)
    assert sorted(lists(owners)) == [[0, 2, 4], [1, 5, 6, 8]]


# From owners to a federation


def test_the_splits_of_a_client_are_its_own_rows():
    owners = [np.arange(0, 50), np.arange(50, 100)]
    built = federation(owners, val_fraction=0.25)
    assert [built.split(name).sizes.tolist() for name in ("train", "val", "test")] == [
        [30, 30],
        [10, 10],
        [10, 10],
    ]  # section 3.6: 60/20/20
    for client, rows in enumerate(owners):
        held = [built.x[built.split(name).of(client)] for name in ("train", "val", "test")]
        assert sorted(np.concatenate(held).ravel().tolist()) == rows.tolist()


def test_examples_without_an_owner_are_not_stored():
    built = federation([np.array([90, 10, 50, 70, 30]), np.array([5, 6, 7, 8, 9])])
    assert built.x.ravel().tolist() == [5, 6, 7, 8, 9, 10, 30, 50, 70, 90]
    assert built.y.tolist() == [5, 6, 7, 8, 9, 0, 0, 0, 0, 0]


def test_clients_without_training_or_test_examples_are_dropped_and_numbers_kept():
    owners = [np.arange(0, 10), np.array([], int), np.array([20]), np.arange(30, 40)]
    built = federation(owners)
    assert built.client_id.tolist() == [0, 3]
    assert len(built.x) == 20


def test_dropping_a_client_moves_no_other_client_to_another_group():
    owners = [np.arange(10 * c, 10 * c + 10) for c in range(10)]
    unseen = set(unseen_clients(10, 0.3, SEED).tolist())
    dropped = min(set(range(10)) - unseen)
    owners[dropped] = owners[dropped][:0]
    built = federation(owners, unseen_fraction=0.3)
    assert set(built.client_id[built.ids("unseen")].tolist()) == unseen


def test_a_row_with_two_owners_is_named():
    owners = [np.arange(0, 10), np.arange(9, 19)]
    with pytest.raises(DataError, match="row 9 belongs to clients 0 and 1"):
        federation(owners)


@pytest.mark.parametrize("unseen_fraction", [0.0, 0.9])
def test_a_federation_without_a_seen_client_is_refused(unseen_fraction):
    owners = [np.arange(10), np.array([10])] if unseen_fraction else [np.array([1])]
    with pytest.raises(ConfigError, match=f"none of the {len(owners)} clients is seen"):
        federation(owners, unseen_fraction=unseen_fraction)


# Mistakes


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"kind": "dirichlett"},
            "no partition kind 'dirichlett'; choose one of angled, dirichlet, ",
        ),
        ({}, "no partition kind None; choose one of"),
        ("iid", "a partition is declared as"),
        ({"kind": ["iid"]}, r"no partition kind \['iid'\]"),
        ({"kind": "iid"}, "partition iid needs the parameter 'num_clients'"),
        (
            {"kind": "iid", "num_clients": 2, "alpha": 1},
            "partition iid has no parameter 'alpha'; it takes num_clients",
        ),
        ({"kind": "iid", "num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"kind": "iid", "num_clients": 2.5}, "num_clients must be an integer .* got 2.5"),
        ({"kind": "iid", "num_clients": True}, "num_clients must be an integer .* got True"),
        (
            {"kind": "dirichlet", "num_clients": 2, "alpha": 0},
            "alpha must be a positive number, got 0",
        ),
        ({"kind": "dirichlet", "num_clients": 2, "alpha": "1"}, "alpha must be .* got '1'"),
        ({"kind": "dirichlet", "num_clients": 2, "alpha": 1, "num_groups": 0}, "num_groups must"),
        ({"kind": "pachinko", "num_clients": 2, "alpha": 1, "beta": -1}, "beta must be .* got -1"),
        ({"kind": "pathological", "num_clients": 2, "shards_per_client": 0}, "shards_per_client"),
        ({"kind": "writer", "min_examples": 0}, "min_examples must be"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declared, message):
    with pytest.raises(ConfigError, match=message):
        parse({**SPLIT, **declared} if isinstance(declared, dict) else declared)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fraction": 0}, r"fraction must be in \(0, 1\], got 0"),
        ({"fraction": 1.5}, r"fraction must be in \(0, 1\], got 1.5"),
        ({"fraction": None}, "fraction must be in .* got None"),
        ({"train_fraction": 1}, r"train_fraction must be in \(0, 1\), got 1"),
        ({"val_fraction": 1.0}, r"val_fraction must be in \[0, 1\), got 1.0"),
        ({"unseen_fraction": -0.1}, r"unseen_fraction must be in \[0, 1\), got -0.1"),
    ],
)
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_fractions_that_make_no_sense_are_refused(kind, change, message):
    made(kind)
    with pytest.raises(ConfigError, match=message):
        made(kind, **change)


@pytest.mark.parametrize("kind", ["dirichlet", "iid", "pachinko"])
def test_more_clients_than_examples_are_refused(kind):
    with pytest.raises(ConfigError, match=r"350 examples \(fraction 0.5 of 700\) .* 351 clients"):
        made(kind, num_clients=351, fraction=0.5).owners(examples(), 0)


def test_more_groups_than_labels_are_refused():
    with pytest.raises(ConfigError, match="at most the 10 labels of the data, got 11"):
        Dirichlet(2, 1.0, 11, **SPLIT).owners(examples(), 0)


def test_a_concentration_whose_shares_underflow_is_refused():
    with pytest.raises(ConfigError, match="1e-05 is too small"):
        dirichlet(np.random.RandomState(0), 1e-5, 3)
