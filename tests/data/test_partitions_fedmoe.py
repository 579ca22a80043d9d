"""Clients, server and probe of Fed-MoE. Sections: fedlib/papers/fedmoe/README.md."""

import numpy as np
import pytest
from data_fixtures import CIFAR10, class_counts, numbered, owned

from fedlib.data.partitions.server_dirichlet import ServerDirichlet
from fedlib.data.partitions.server_equal import ServerEqual
from fedlib.data.partitions.server_majority import ServerMajority
from fedlib.data.partitions.writer_groups import WriterGroups

CODE = {"pool_per_class": 3480, "server_per_class": 1000, "val_per_class": 500}
CODE |= {"probe_per_class": 20}
PAPER = {"pool_per_class": 3900, "server_per_class": 100, "val_per_class": 500}


def code(num_clients=50, **changed):
    return ServerDirichlet(num_clients=num_clients, **{**CODE, **changed})


def paper(num_clients=50, train_examples=750, **changed):
    given = {"num_clients": num_clients, "train_examples": train_examples}
    return ServerEqual(**{**given, **PAPER, **changed})


def majority(num_clients=50, train_examples=600, share=0.5, **changed):
    given = {"num_clients": num_clients, "train_examples": train_examples, "share": share}
    return ServerMajority(**{**given, **CODE, **changed})


def dealt(partition, seed=42, examples=CIFAR10):
    return partition.deal(examples, seed).federation()


def rows_of(built, group, split="train"):
    """The numbers of all examples of one split that these own."""
    return np.sort(np.concatenate([built.x[rows].ravel() for rows in owned(built, split, group)]))


def sizes(built):
    return built.train.sizes[built.ids("seen")]


def classes_of(built) -> np.ndarray:
    """Examples of each class that each client has -> [C, L]"""
    return class_counts(built.y, owned(built), built.num_classes)


# What the server owns


def test_the_server_tests_on_the_test_part_or_on_the_first_examples_of_each_class():
    whole, some = dealt(code()), dealt(code(test_per_class=200))
    assert np.array_equal(rows_of(whole, "server", "test"), np.arange(50_000, 60_000))
    # Row r is of class r % 10, so the first 200 of each class are the first 2000 test rows.
    assert np.array_equal(rows_of(some, "server", "test"), np.arange(50_000, 52_000))
    assert np.array_equal(rows_of(some, "seen"), rows_of(whole, "seen"))


@pytest.mark.parametrize("per_class", [250, 1000])
def test_the_parts_of_a_class_are_where_the_specification_has_them(per_class):
    built = dealt(code(server_per_class=per_class))
    for group, split, first, last in (
        ("seen", "train", 0, 3480),
        ("probe", "train", 3480, 3500),
        ("server", "val", 3500, 4000),
        ("server", "train", 5000 - per_class, 5000),
    ):
        assert np.array_equal(rows_of(built, group, split), np.arange(10 * first, 10 * last))
    for ours, theirs in zip(owned(built), owned(dealt(code())), strict=True):
        assert np.array_equal(ours, theirs)  # clients own the same, whatever the server owns


def test_a_majority_class_has_its_share_of_the_reserved_examples():
    built = dealt(paper(majority=0.6))
    counts = np.bincount(rows_of(built, "server") % 10, minlength=10)
    # 400 are left for nine classes: 9 * 44 + 4.
    assert counts.tolist() == [600] + [45] * 4 + [44] * 5
    assert np.array_equal(rows_of(built, "seen"), rows_of(dealt(paper()), "seen"))
    skewed = dealt(code(majority=0.6, server_per_class=100))
    counts = np.bincount(rows_of(skewed, "probe") % 10, minlength=10)
    assert counts[0] == 120 and counts[1:].sum() == 80


# What the clients own


@pytest.mark.parametrize(
    ("num_clients", "first", "least", "most"),
    [
        (10, [3532, 4582, 3588, 4681, 3400], 2170, 4681),
        (50, [682, 871, 704, 853, 767], 326, 1121),
        (100, [182, 298, 195, 359, 268], 153, 642),
    ],
)
def test_unequal_clients_have_the_sizes_of_the_specification(num_clients, first, least, most):
    built = dealt(code(num_clients))
    found = sizes(built)
    assert found[:5].tolist() == first
    assert (found.min(), found.max(), found.sum()) == (least, most, 34_800)
    if num_clients == 10:
        assert classes_of(built)[0].tolist() == [159, 9, 554, 285, 67, 852, 166, 639, 740, 61]


def test_classes_of_equal_clients_vary_as_dirichlet_draws_of_each_client():
    size = 60
    shares = classes_of(dealt(paper(500, size))) / size
    assert abs(shares.mean() - 0.1) < 1e-12
    # Ten classes at alpha 1: var(p) = 0.1 * 0.9 / 11, and size draws add E[p (1 - p)] / size.
    of_p = 0.1 * 0.9 / 11
    expected = of_p + (0.1 - 0.1**2 - of_p) / size
    assert shares.var() == pytest.approx(expected, rel=0.15)  # of 500 clients
    alike = classes_of(dealt(paper(50, 500, alpha=1e6)))
    assert np.abs(alike - 50).max() < 6 * (500 * 0.1 * 0.9) ** 0.5  # binomial


def labelled(num_classes: int, train_per_class: int):
    """Examples of classes in turn, ten of each to test on."""
    num_train = num_classes * train_per_class
    return numbered(np.arange(num_train + num_classes * 10) % num_classes, num_train)


def test_a_share_drawn_for_each_client_leaves_a_rest_of_all_classes():
    # As on Yelp, a hundredth of its size: 100 clients, 55 to 65 percent of one of five classes.
    cut = {"pool_per_class": 1200, "server_per_class": 50, "val_per_class": 20}
    cut |= {"probe_per_class": 4, "share_to": 0.65}
    everything, others = (
        classes_of(dealt(majority(100, 50, 0.55, rest=rest, **cut), 1, labelled(5, 1300)))
        for rest in ("all", "others")
    )
    clients = np.arange(100)
    assert (everything.sum(1) == 50).all()
    most = everything[clients, clients % 5]
    assert most.min() >= int(0.55 * 50)
    # Of a share p of 50, p * 50 less half for rounding, and a fifth or so of the rest: 0.6 on
    # average, 29.5 + 4; of 100 clients with a deviation of 2.5 each that is known to 0.25.
    assert most.mean() == pytest.approx(29.5 + 20.5 / 5, abs=1)
    # No more than the share itself.
    assert {*others[clients, clients % 5]} == {27, 28, 29, 30, 31, 32}


# Groups of writers

TRAIN, TEST = [20, 11, 9, 30, 12, 25, 10, 14, 8], [3, 2, 1, 4, 2, 3, 1, 2, 1]
OWNER = np.concatenate([np.repeat(np.arange(9), counts) for counts in (TRAIN, TEST)])


def groups(num_clients=2, seed=42, **fields):
    """A federation of nine writers; training examples first."""
    fields = {"writers_per_client": 3, "server_writers": 2} | fields
    data = numbered(np.arange(len(OWNER)) % 10, sum(TRAIN), owner=OWNER, num_owners=9)
    return dealt(WriterGroups(num_clients, **fields), seed, data)


def owners_of(built, group, split):
    """How many examples of which writer."""
    writer, number = np.unique(OWNER[rows_of(built, group, split)], return_counts=True)
    return dict(zip(writer.tolist(), number.tolist(), strict=True))


def test_clients_are_groups_of_the_first_writers_and_server_and_probe_have_the_last():
    built = groups()
    # int(0.1 * n) of n are the server's to validate on.
    val = {0: 2, 1: 1, 2: 0, 3: 3, 4: 1, 5: 2}
    assert owners_of(built, "seen", "train") == {w: TRAIN[w] - val[w] for w in range(6)}
    assert sizes(built).tolist() == [40 - 3, 67 - 6]
    assert owners_of(built, "server", "val") == {w: n for w, n in val.items() if n}
    assert owners_of(built, "server", "test") == {w: TEST[w] for w in range(6)}
    # Two writers and not one; of the server's test examples nobody makes use.
    assert owners_of(built, "server", "train") == {6: TRAIN[6], 7: TRAIN[7]}
    assert owners_of(built, "probe", "train") == {8: TRAIN[8] + TEST[8]}
    assert built.val.sizes[built.ids("seen")].sum() == 0
    assert built.test.sizes[built.ids("seen")].sum() == 0


def test_one_reserved_set_has_exactly_so_many_examples_and_no_probe():
    fields = {"probe_writers": 0, "server_writers": 3, "server_examples": 15}
    one, other = groups(seed=1, **fields), groups(seed=2, **fields)
    assert one.ids("probe").tolist() == [] and one.ids("server").tolist() == [2]
    assert sum(owners_of(one, "server", "train").values()) == 15
    assert owners_of(one, "server", "train").keys() <= {6, 7, 8}
    assert not np.array_equal(rows_of(one, "server"), rows_of(other, "server"))
