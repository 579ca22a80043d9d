"""Clients, server and probe of Fed-MoE. Sections: fedlib/papers/fedmoe/README.md."""

import numpy as np
import pytest
from data_fixtures import NOWHERE, federation, leaf

from fedlib.data import partitions
from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.partitions.server_dirichlet import ServerDirichlet
from fedlib.data.partitions.server_equal import ServerEqual
from fedlib.data.partitions.server_majority import ServerMajority
from fedlib.data.partitions.server_two_class import ServerTwoClass
from fedlib.data.partitions.writer_groups import WriterGroups
from fedlib.data.sources import cifar10
from fedlib.errors import ConfigError, DataError
from fedlib.federation import SPLITS

# As many labels of each class as CIFAR-10 has: row r is the (r // 10)-th example of class r % 10.
NUM_TRAIN, NUM_TEST = 50_000, 10_000
LABELS = np.arange(NUM_TRAIN + NUM_TEST) % 10
CODE = {"pool_per_class": 3480, "server_per_class": 1000, "val_per_class": 500}
CODE |= {"probe_per_class": 20}
PAPER = {"pool_per_class": 3900, "server_per_class": 100, "val_per_class": 500}


def parts_of(labels, num_train) -> Examples:
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [num_train, len(labels) - num_train])
    return Examples(np.arange(len(labels)), labels, 10, part=part)


CIFAR10 = parts_of(LABELS, NUM_TRAIN)


def code(num_clients=50, **changed):
    return ServerDirichlet(num_clients=num_clients, **{**CODE, **changed})


def paper(num_clients=50, train_examples=750, **changed):
    given = {"num_clients": num_clients, "train_examples": train_examples}
    return ServerEqual(**{**given, **PAPER, **changed})


def two_class(num_clients=50, **changed):
    return ServerTwoClass(num_clients=num_clients, **{**CODE, **changed})


def majority(num_clients=50, train_examples=600, share=0.5, **changed):
    given = {"num_clients": num_clients, "train_examples": train_examples, "share": share}
    return ServerMajority(**{**given, **CODE, **changed})


def dealt(partition, seed=42, examples=CIFAR10):
    return partition.deal(examples, seed).federation()


def rows_of(built, group, split="train"):
    """The numbers of all examples of one split that these own."""
    split = built.split(split)
    return np.sort(np.concatenate([built.x[split.of(c)] for c in built.ids(group)]))


def sizes(built):
    return built.train.sizes[built.ids("seen")]


def assert_each_example_has_one_owner(built, num_train):
    owned = [built.x[built.split(name).rows] for name in SPLITS]
    together = np.concatenate(owned)
    assert len(np.unique(together)) == len(together)
    assert max(map(np.max, owned[:2])) < num_train <= owned[2].min()


# What the server owns


@pytest.mark.parametrize("partition", [code(), paper(), two_class(), majority()])
def test_clients_server_and_probe_share_no_example_and_only_the_server_tests(partition):
    built = dealt(partition)
    assert_each_example_has_one_owner(built, NUM_TRAIN)
    assert np.array_equal(rows_of(built, "server", "test"), np.arange(NUM_TRAIN, len(LABELS)))
    assert built.test.sizes.sum() == NUM_TEST
    assert built.val.sizes.sum() == len(rows_of(built, "server", "val")) == 5000
    assert (len(built.ids("seen")), len(built.ids("server"))) == (50, 1)


def test_the_server_may_test_on_the_first_examples_of_each_class():
    built = dealt(code(test_per_class=200))
    # Row r is of class r % 10, so the first 200 of each class are the first 2000 test rows.
    expected = np.arange(NUM_TRAIN, NUM_TRAIN + 2000)
    assert np.array_equal(rows_of(built, "server", "test"), expected)
    assert np.array_equal(rows_of(built, "seen"), rows_of(dealt(code()), "seen"))
    with pytest.raises(ConfigError, match="test_per_class is 1001, but a class has 1000 test"):
        dealt(code(test_per_class=1001))
    with pytest.raises(ConfigError, match="test_per_class must be an integer of at least 1, got 0"):
        code(test_per_class=0)


@pytest.mark.parametrize("per_class", [250, 500, 1000])
def test_the_parts_of_a_class_are_where_the_specification_has_them(per_class):
    built = dealt(code(server_per_class=per_class))
    for group, split, first, last in (
        ("seen", "train", 0, 3480),
        ("probe", "train", 3480, 3500),
        ("server", "val", 3500, 4000),
        ("server", "train", 5000 - per_class, 5000),
    ):
        assert np.array_equal(rows_of(built, group, split), np.arange(10 * first, 10 * last))


def test_the_clients_own_the_same_whatever_the_server_owns():
    few, many = (dealt(code(server_per_class=per_class)) for per_class in (250, 1000))
    for client in few.ids("seen"):
        ours, theirs = (built.x[built.train.of(client)] for built in (few, many))
        assert np.array_equal(ours, theirs)


def test_without_a_probe_the_server_is_the_last_owner():
    built = dealt(paper())
    assert built.ids("probe").tolist() == []
    assert built.ids("server").tolist() == [50]
    assert len(rows_of(built, "server")) == 1000  # the size of the paper's reserved set


@pytest.mark.parametrize("majority_class", [0, 3, 9])
def test_a_majority_class_has_its_share_of_the_reserved_examples(majority_class):
    built = dealt(paper(majority=0.6, majority_class=majority_class, probe_per_class=0))
    counts = np.bincount(rows_of(built, "server") % 10, minlength=10)
    assert counts[majority_class] == 600
    # 400 are left for nine classes: 9 * 44 + 4.
    assert sorted(np.delete(counts, majority_class)) == [44] * 5 + [45] * 4
    even = dealt(paper(probe_per_class=0))
    assert np.array_equal(rows_of(built, "seen"), rows_of(even, "seen"))
    skewed = dealt(code(majority=0.6, server_per_class=100))
    counts = np.bincount(rows_of(skewed, "probe") % 10, minlength=10)
    assert counts[0] == 120 and counts[1:].sum() == 80


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (
            code(server_per_class=1001),
            "class 0 has 5000 training examples, but 5001 are asked for: 3480 for the clients, 20 "
            "for the probe, 500 to validate on and 1001 for the server to train on",
        ),
        (paper(majority=0.7), "class 0 has 5000 training examples, but 5100 are asked for"),
        (paper(majority=0.6, majority_class=10), "majority_class must be below 10, got 10"),
        (paper(53), "39000 train examples cannot be dealt to 53 clients with 750 each"),
        (two_class(12), "10 classes cannot be dealt in pairs to 12 clients; take an even number"),
        (two_class(20_000), "3480 examples of a class cannot be cut into 4000 shards"),
    ],
)
def test_what_the_data_set_cannot_give_is_refused(partition, message):
    with pytest.raises(ConfigError, match=message):
        dealt(partition)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"pool_per_class": 0}, "pool_per_class must be an integer of at least 1, got 0"),
        ({"server_per_class": 0}, "server_per_class must be an integer of at least 1, got 0"),
        ({"val_per_class": -1}, "val_per_class must be an integer of at least 0, got -1"),
        ({"probe_per_class": 0.5}, "probe_per_class must be an integer of at least 0, got 0.5"),
        ({"majority": 1.2}, r"majority must be in \(0, 1\], got 1.2"),
        ({"majority_class": -1}, "majority_class must be an integer of at least 0, got -1"),
        ({"train_examples": 0}, "train_examples must be an integer of at least 1, got 0"),
        ({"alpha": 0}, "alpha must be a positive number, got 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        paper(**change)


def test_a_concentration_must_be_positive():
    with pytest.raises(ConfigError, match="alpha must be a positive number, got -1"):
        code(alpha=-1)


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
    found = sizes(dealt(code(num_clients)))
    assert found[:5].tolist() == first
    assert (found.min(), found.max(), found.sum()) == (least, most, 34_800)


def test_the_first_of_ten_unequal_clients_has_the_classes_of_the_specification():
    built = dealt(code(10))
    counts = np.bincount(built.y[built.train.of(0)], minlength=10)
    assert counts.tolist() == [159, 9, 554, 285, 67, 852, 166, 639, 740, 61]


def test_an_unequal_client_to_whom_nothing_is_dealt_is_dropped():
    examples = parts_of(np.arange(60) % 10, 50)  # five training examples of a class
    fields = {"pool_per_class": 3, "server_per_class": 1, "val_per_class": 0, "probe_per_class": 0}
    built = dealt(code(200, **fields), examples=examples)
    assert len(built.ids("seen")) <= 30  # of 3 * 10 examples
    assert sizes(built).min() == 1 and built.client_id.max() == 200  # the server's number


@pytest.mark.parametrize(("num_clients", "size"), [(10, 3000), (50, 750), (100, 375)])
def test_equal_clients_have_the_size_of_the_paper_and_share_a_pool_that_is_just_enough(
    num_clients, size
):
    assert set(sizes(dealt(paper(num_clients, size)))) == {size}
    pool = num_clients * size // 10
    built = dealt(paper(num_clients, size, pool_per_class=pool))
    assert set(sizes(built)) == {size}
    assert np.array_equal(rows_of(built, "seen"), np.arange(10 * pool))  # all are used


def test_classes_of_equal_clients_vary_as_dirichlet_draws_of_each_client():
    size = 60
    built = dealt(paper(500, size))
    shares = np.stack([np.bincount(built.y[built.train.of(c)], minlength=10) for c in range(500)])
    shares = shares / size
    assert abs(shares.mean() - 0.1) < 1e-12
    # Ten classes at alpha 1: var(p) = 0.1 * 0.9 / 11, and size draws add E[p (1 - p)] / size.
    of_p = 0.1 * 0.9 / 11
    expected = of_p + (0.1 - 0.1**2 - of_p) / size
    assert shares.var() == pytest.approx(expected, rel=0.15)  # of 500 clients
    alike = dealt(paper(50, 500, alpha=1e6))
    counts = np.stack([np.bincount(alike.y[alike.train.of(c)], minlength=10) for c in range(50)])
    assert np.abs(counts - 50).max() < 6 * (500 * 0.1 * 0.9) ** 0.5  # binomial


@pytest.mark.parametrize("num_clients", [10, 50, 100])
def test_clients_of_two_classes_have_as_much_of_either(num_clients):
    built = dealt(two_class(num_clients))
    shard = 3480 // (num_clients // 5)
    pairs = set()
    for client in built.ids("seen"):
        counts = np.bincount(built.y[built.train.of(client)], minlength=10)
        assert sorted(counts) == [0] * 8 + [shard] * 2
        pairs.add(tuple(np.flatnonzero(counts)))
    assert len(pairs) > 5 or num_clients == 10  # not always the same two
    totals = np.bincount(rows_of(built, "seen") % 10, minlength=10)
    assert totals.tolist() == [num_clients // 5 * shard] * 10


def labelled(num_classes: int, train_per_class: int, test_per_class: int = 10) -> Examples:
    """Examples whose inputs are their numbers, the classes in turn."""
    num_train = num_classes * train_per_class
    labels = np.arange(num_train + num_classes * test_per_class) % num_classes
    return parts_of(labels, num_train)._replace(num_classes=num_classes)


def classes_of(built) -> np.ndarray:
    """Examples of each class that each client has -> [C, L]"""
    owned = [built.y[built.train.of(client)] for client in built.ids("seen")]
    return np.stack([np.bincount(y, minlength=built.num_classes) for y in owned])


def test_a_hundred_clients_have_190_sentences_of_either_class():
    cut = {"pool_per_class": 19_000, "server_per_class": 500, "val_per_class": 250}
    built = dealt(majority(100, 380, 0.5, **cut | {"probe_per_class": 0}), 1, labelled(2, 20_000))
    assert (classes_of(built) == 190).all()
    assert np.array_equal(np.sort(rows_of(built, "seen")), np.arange(38_000))  # all are used
    assert len(rows_of(built, "server")) == 1000


@pytest.mark.parametrize("num_clients", [10, 50, 100])
def test_clients_have_their_share_of_one_of_two_classes_in_turn(num_clients):
    # Fed-MoE's code: floor(pool / N) texts, floor(0.7 of these) of the client's class.
    size = 16_000 // num_clients
    cut = {"pool_per_class": 8000, "server_per_class": 500, "val_per_class": 0}
    built = dealt(majority(num_clients, size, 0.7, **cut), 1, labelled(2, 9000))
    most = size * 7 // 10
    assert (classes_of(built)[::2] == [most, size - most]).all()
    assert (classes_of(built)[1::2] == [size - most, most]).all()


def test_a_share_drawn_for_each_client_leaves_a_rest_of_all_classes():
    # As on Yelp, a hundredth of its size: 100 clients, 55 to 65 percent of one of five classes.
    cut = {
        "pool_per_class": 1200,
        "server_per_class": 50,
        "val_per_class": 20,
        "probe_per_class": 4,
    }
    partition = majority(100, 50, 0.55, share_to=0.65, rest="all", **cut)
    built = dealt(partition, 1, labelled(5, 1300))
    counts, own = classes_of(built), np.arange(100) % 5
    assert (counts.sum(1) == 50).all()
    most = counts[np.arange(100), own]
    assert most.min() >= int(0.55 * 50)
    # Of a share p of 50, p * 50 less half for rounding, and a fifth or so of the rest: 0.6 on
    # average, 29.5 + 4; of 100 clients with a deviation of 2.5 each that is known to 0.25.
    assert most.mean() == pytest.approx(29.5 + 20.5 / 5, abs=1)
    others = majority(100, 50, 0.55, share_to=0.65, **cut)
    most = classes_of(dealt(others, 1, labelled(5, 1300)))[np.arange(100), own]
    assert {*most} == {27, 28, 29, 30, 31, 32}  # no more than the share itself


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.1}, r"share must be in \[0, 1\], got 1.1"),
        ({"share_to": 0.4}, "share_to must be at least the share, 0.5, got 0.4"),
        ({"share_to": 1.4}, r"share_to must be in \(0, 1\], got 1.4"),
        ({"rest": "any"}, "no rest 'any'; choose one of others, all"),
        ({"train_examples": 0}, "train_examples must be an integer of at least 1, got 0"),
    ],
)
def test_shares_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        majority(**change)


def test_more_clients_of_one_class_than_it_has_examples_for_are_refused():
    with pytest.raises(ConfigError, match="client 30 needs 900 train examples of the classes .0.,"):
        dealt(majority(50, 900, 1.0))


@pytest.mark.parametrize("partition", [code(), paper(), two_class(), majority()])
def test_a_seed_decides_what_the_clients_own_and_nothing_of_the_server(partition):
    one, same, other = (dealt(partition, seed) for seed in (1, 1, 2))
    assert one.digests == same.digests
    assert not np.array_equal(one.train.rows, other.train.rows)
    for group, split in (("server", "train"), ("server", "val"), ("server", "test")):
        assert np.array_equal(rows_of(one, group, split), rows_of(other, group, split))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("server_equal", {"train_examples": 60}),
        ("server_majority", {"train_examples": 60, "share": 0.2}),
        ("server_dirichlet", {}),
        ("server_two_class", {}),
    ],
)
def test_the_demo_has_a_server_on_digits(kind, fields):
    cut = {"num_clients": 10, "pool_per_class": 80, "server_per_class": 25, "val_per_class": 15}
    built = federation("digits", kind, NOWHERE, seed=3, **cut, **fields)
    assert len(built.ids("seen")) == 10
    server = built.ids("server")[0]
    assert [built.split(name).sizes[server] for name in SPLITS[:2]] == [250, 150]
    assert built.test.sizes[server] > 400


def test_every_kind_is_registered():
    for cls in (ServerDirichlet, ServerEqual, ServerMajority, ServerTwoClass, WriterGroups):
        assert partitions.load(cls.NAME) is cls


def test_images_are_scaled_as_the_specification_says():
    # Section 4.2: the means and deviations of ImageNet's channels.
    assert cifar10.SCALINGS["imagenet"] == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# Groups of writers

WRITERS = {"train": [20, 11, 9, 30, 12, 25, 10, 14, 8], "test": [3, 2, 1, 4, 2, 3, 1, 2, 1]}


def writers() -> Examples:
    """Nine writers; training examples first."""
    owner = np.concatenate([np.repeat(np.arange(9), counts) for counts in WRITERS.values()])
    num_train = sum(WRITERS["train"])
    parts = parts_of(np.arange(len(owner)) % 10, num_train)
    return parts._replace(owner=owner, num_owners=9)


def groups(num_clients=2, writers_per_client=3, server_writers=2, **fields):
    return WriterGroups(num_clients, writers_per_client, server_writers, **fields)


def owners_of(built, group, split):
    """How many examples of which writer."""
    owner = writers().owner[rows_of(built, group, split)]
    return {int(w): int(n) for w, n in zip(*np.unique(owner, return_counts=True), strict=True)}


def test_clients_are_groups_of_the_first_writers_and_server_and_probe_have_the_last():
    built = dealt(groups(), examples=writers())
    everything = built.x[np.concatenate([built.split(name).rows for name in SPLITS])]
    assert len(np.unique(everything)) == len(everything)
    train, test = WRITERS["train"], WRITERS["test"]
    # int(0.1 * n) of n are the server's to validate on.
    val = {0: 2, 1: 1, 2: 0, 3: 3, 4: 1, 5: 2}
    assert owners_of(built, "seen", "train") == {w: train[w] - val[w] for w in range(6)}
    assert sizes(built).tolist() == [40 - 3, 67 - 6]
    assert owners_of(built, "server", "val") == {w: n for w, n in val.items() if n}
    assert owners_of(built, "server", "test") == {w: test[w] for w in range(6)}
    # Two writers and not one; of the server's test examples nobody makes use.
    assert owners_of(built, "server", "train") == {6: train[6], 7: train[7]}
    assert owners_of(built, "probe", "train") == {8: train[8] + test[8]}
    assert built.val.sizes[built.ids("seen")].sum() == 0
    assert built.test.sizes[built.ids("seen")].sum() == 0


def test_writers_in_between_are_left_out():
    built = dealt(groups(1), examples=writers())
    assert owners_of(built, "seen", "train").keys() == {0, 1, 2}
    assert owners_of(built, "server", "train").keys() == {6, 7}


def test_one_reserved_set_has_exactly_so_many_examples_and_no_probe():
    one, same, other = (
        dealt(groups(probe_writers=0, server_writers=3, server_examples=15), seed, writers())
        for seed in (1, 1, 2)
    )
    assert one.ids("probe").tolist() == [] and one.ids("server").tolist() == [2]
    assert sum(owners_of(one, "server", "train").values()) == 15
    assert owners_of(one, "server", "train").keys() <= {6, 7, 8}
    assert one.digests == same.digests != other.digests


def test_most_of_the_reserved_set_can_be_of_one_class():
    # Writers 6 and 7 have 24 training examples, and so two or three of each class.
    skewed = {"server_examples": 5, "majority": 0.5, "majority_class": 7}
    one, same, other = (dealt(groups(**skewed), seed, writers()) for seed in (1, 1, 2))
    labels = rows_of(one, "server", "train") % 10  # the class of an example, see `writers`
    assert np.count_nonzero(labels == 7) == 3 == round(0.5 * 5 + 0.01)
    assert len(labels) == 5
    assert owners_of(one, "server", "train").keys() <= {6, 7}
    assert one.digests == same.digests != other.digests
    even = dealt(groups(server_examples=5), 1, writers())
    for split, group in (("train", "seen"), ("val", "server"), ("test", "server")):
        assert rows_of(one, group, split).tolist() == rows_of(even, group, split).tolist()


def test_without_a_validation_part_the_clients_have_all_of_their_writers():
    built = dealt(groups(val_fraction=0), examples=writers())
    assert sizes(built).tolist() == [20 + 11 + 9, 30 + 12 + 25]
    assert built.val.sizes.sum() == 0


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"num_clients": 3},
            DataError,
            "3 clients of 3 writers and 3 writers of server and probe are asked for, but only 9",
        ),
        (
            {"server_examples": 25},
            ConfigError,
            "server_examples is 25, but the 2 writers of the server have 24 training examples",
        ),
        (
            {"server_examples": 20, "majority": 0.6},
            ConfigError,
            "majority 0.6 of 20 server_examples needs 12 of class 0, but the 2 writers of the "
            r"server have \d; take more server_writers, or fewer server_examples",
        ),
        (
            {"server_examples": 2, "majority": 0.6, "majority_class": 10},
            ConfigError,
            "majority_class must be below 10, got 10",
        ),
    ],
)
def test_more_writers_or_examples_than_there_are_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        dealt(groups(**fields), examples=writers())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"writers_per_client": 0}, "writers_per_client must be an integer of at least 1"),
        ({"server_writers": 0}, "server_writers must be an integer of at least 1, got 0"),
        ({"probe_writers": -1}, "probe_writers must be an integer of at least 0, got -1"),
        ({"val_fraction": 1}, r"val_fraction must be in \[0, 1\), got 1"),
        ({"server_examples": 0}, "server_examples must be an integer of at least 1, got 0"),
        ({"majority": 0.6}, "majority is a share of server_examples, which has to be given"),
        ({"majority": 0, "server_examples": 9}, r"majority must be in \(0, 1\], got 0"),
        ({"majority_class": -1}, "majority_class must be an integer of at least 0, got -1"),
    ],
)
def test_groups_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        groups(**fields)


def test_groups_of_writers_come_from_leafs_files(tmp_path):
    leaf(tmp_path, "train", "1.json", {"b": [*range(10, 20)], "a": [1, 2], "d": [40]})
    leaf(tmp_path, "train", "2.json", {"c": [30, 31, 32]})
    leaf(tmp_path, "test", "1.json", {"a": [3], "b": [20], "d": [41]})
    leaf(tmp_path, "test", "2.json", {"c": [33]})
    params = {"source": "leaf", "scaling": "symmetric"}
    cut = {"num_clients": 1, "writers_per_client": 2, "server_writers": 1}
    built = federation("femnist", "writer_groups", tmp_path, params=params, **cut)

    def numbers(owner, split):
        return sorted(built.x[built.split(split).of(owner), 0, 0, 0].tolist())

    (val,) = numbers(1, "val")  # one of ten, none of two
    assert val in range(10, 20)
    assert numbers(0, "train") == sorted({1, 2, *range(10, 20)} - {val})
    assert numbers(1, "test") == [3, 20]
    assert numbers(1, "train") == [30, 31, 32]
    assert numbers(2, "train") == [40, 41]
