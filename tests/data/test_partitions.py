"""What holds of every partition, whatever it deals by, and what each refuses."""

import hashlib
import random
from dataclasses import fields

import numpy as np
import pytest
from data_fixtures import numbered

from fedlib.data import partitions
from fedlib.data.draws import dirichlet
from fedlib.data.examples import FEATURES
from fedlib.errors import ConfigError, DataError
from fedlib.federation import SPLITS

NUM, NUM_TRAIN = 1400, 1000
SIZES = {"num_clients": 10, "train_examples": 60, "test_examples": 20}
SERVER = {"num_clients": 10, "pool_per_class": 70, "server_per_class": 10, "val_per_class": 10}
SERVER |= {"probe_per_class": 5}
JOINED = {"num_clients": 10, "train_fraction": 0.8}
KINDS = {
    "angled": SIZES | {"alpha": 1.0},
    "dirichlet": JOINED | {"alpha": 5.0, "num_groups": 3},
    "hierarchical": SIZES | {"alpha": 0.5, "beta": 10.0},
    "hsu": SIZES | {"alpha": 1.0},
    "iid": JOINED,
    "majority": {"num_clients": 10, "train_examples": 24, "test_examples": 8, "p": 0.4},
    "natural": {"order": "random"},
    "pachinko": JOINED | {"alpha": 0.4, "beta": 10.0},
    "path_dir": JOINED | {"classes_per_client": 2, "alpha": 1.0},
    "path_line": JOINED | {"classes_per_client": 2},
    "pathological": JOINED | {"shards_per_client": 2},
    "permuted": {"num_clients": 10, "num_clusters": 2},
    "quantity": SIZES | {"sigma": 0.3, "min_examples": 20, "max_examples": 90},
    "rotated": {"num_clients": 10},
    "server_dirichlet": SERVER,
    "server_equal": SERVER | {"train_examples": 50},
    "server_majority": SERVER | {"train_examples": 50, "share": 0.5},
    "two_shard": {"num_clients": 10},
    "writer": {"train_fraction": 0.8},
    "writer_groups": {"num_clients": 4, "writers_per_client": 3, "server_writers": 6},
    "writer_parts": {},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def parsed(kind, **changes):
    return partitions.parse({"kind": kind, **KINDS[kind], **changes})


def made_up():
    """Images of one shade each, their number, which no turn and no permutation changes."""
    known = {"owner": np.arange(NUM) * 37 % 20, "num_owners": 20, "coarse": np.arange(10) // 5}
    examples = numbered(np.arange(NUM) % 10, NUM_TRAIN, mean=(0.0,), std=(1.0,), **known)
    x = np.tile(examples.x.astype(float), (1, 1, 4, 4))
    return examples._replace(x=x, class_name=np.array([*"abcdefghij"]))


def dealt(kind, seed=1, **changes):
    partition = parsed(kind, **changes)
    return partition, partition.deal(made_up(), seed).federation()


def numbers(built, split):
    """Number of each example that somebody owns, in their order, and its owner's cluster."""
    owned = built.split(split)
    cluster = np.zeros(len(built.group), int) if built.cluster is None else built.cluster
    return built.x[owned.rows, 0, 1, 1].round().astype(int), cluster.repeat(owned.sizes)


def owned(built, client, splits):
    """Numbers of all examples that a client has in these splits."""
    rows = np.concatenate([built.split(split).of(client) for split in splits])
    return sorted(built.x[rows, 0, 1, 1].round().tolist())


def names(kind):
    return [field.name for field in fields(partitions.load(kind))]


def test_every_kind_is_in_the_table():
    assert {*KINDS} == {*partitions.PARTITIONS}


@every_kind
def test_no_example_is_owned_twice_and_labels_are_those_of_the_images(kind):
    partition, built = dealt(kind)
    assert {*partition.needs} <= {*FEATURES}
    found = []
    for split in SPLITS:
        number, cluster = numbers(built, split)
        if built.class_name is not None:
            assert np.array_equal(built.y[built.split(split).rows], number % 10)
        found += zip(number.tolist(), cluster.tolist(), strict=True)
        if "part" in partition.needs and kind != "writer_groups":  # whose probe has both parts
            assert all((number >= NUM_TRAIN) == (split == "test"))
    assert len(found) == len(set(found)) > 200
    assert (built.class_name is None) == (kind == "permuted")  # which permutes labels
    assert (built.train.sizes[built.ids("seen")] > 0).all()


@every_kind
def test_the_seed_alone_decides_and_global_generators_are_neither_read_nor_moved(kind):
    random.seed(0), np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    _, one = dealt(kind)
    after = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    assert before == after
    random.seed(1), np.random.seed(1)
    (_, again), (_, other) = dealt(kind), dealt(kind, seed=2)
    assert one.digests == again.digests != other.digests
    # In "writer_groups" it is only drawn who validates.
    for splits in [("train",), ("test",), SPLITS][: 1 if kind == "writer_groups" else 3]:
        theirs = [[owned(built, c, splits) for c in one.ids("seen")] for built in (one, other)]
        alike = [a == b for a, b in zip(*theirs, strict=True) if a]
        assert sum(alike) <= len(alike) / 5  # two random orders may have somebody in one place


# Of the rows of all splits, and of the groups and clusters of clients: nobody else computed them.
DRAWN = {
    "angled": "f21475d534",
    "dirichlet": "f0c0eed1a4",
    "hierarchical": "1ceee25813",
    "hsu": "e0d23eb3fc",
    "iid": "42cbb2d705",
    "majority": "d264266b6f",
    "natural": "dac8a7407c",
    "pachinko": "22507dc284",
    "path_dir": "cda027594e",
    "path_line": "e2620141e7",
    "pathological": "b3fcf03531",
    "permuted": "10c9a47e08",
    "quantity": "11ecef461d",
    "rotated": "ab2e4016af",
    "server_dirichlet": "900ebfdc0f",
    "server_equal": "9188ea761c",
    "server_majority": "8c5a495a6a",
    "two_shard": "302ad16bb4",
    "writer": "b94152e2f2",
    "writer_groups": "15de764fbb",
    "writer_parts": "7970b9cbd1",
    "path_line classes_per_client": "3deb30b1f1",
}


def test_the_draws_of_every_partition_stay_the_same():
    found = {}
    # The number of classes is no multiple of a client's, who may draw again.
    more = ("path_line", {"classes_per_client": 3})
    for name, changes in [*((kind, {}) for kind in KINDS), more]:
        _, built = dealt(name, **changes)
        numbers = [x for split in SPLITS for x in vars(built.split(split)).values()]
        numbers += [built.group, *([] if built.cluster is None else [built.cluster])]
        said = " ".join(str(x.astype(int).tolist()) for x in numbers)
        found[" ".join([name, *changes])] = hashlib.sha256(said.encode()).hexdigest()[:10]
    assert found == DRAWN


def test_writers_are_unseen_who_come_last_or_who_have_an_example_of_the_test_part():
    owners = np.split(np.arange(30), 5)
    for fraction, groups in ((0.4, [0, 0, 0, 1, 1]), (0.8, [0, 1, 1, 1, 1])):  # 5 * (1 - 0.8) < 1
        last = parsed("writer", unseen="last", unseen_fraction=fraction)
        assert last.groups(numbered(np.zeros(30)), owners, 1).tolist() == groups
    by_part = parsed("writer", unseen="test_part")
    examples = numbered(np.zeros(30), num_train=15)  # the third writer has examples of both
    assert by_part.groups(examples, owners, 1).tolist() == [0, 0, 1, 1, 1]


def test_sizes_of_clients_are_log_normal_within_their_limits():
    changes = {"num_clients": 4000, "sigma": 1.0, "min_examples": 8, "max_examples": 600}
    sizes = parsed("quantity", **changes, train_examples=75).sizes(1)
    logs = np.log(sizes / 75)
    assert sizes.min() == 8 and sizes.max() == 600
    # Four standard errors of a median, and of the share within one deviation, of 4,000.
    assert abs(np.median(logs)) < 4 * 1.25 / np.sqrt(4000)
    assert abs((np.abs(logs) < 1).mean() - 0.683) < 4 * np.sqrt(0.683 * 0.317 / 4000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "server_per_class" in names(kind)])
def test_the_seed_decides_nothing_of_the_server_and_clients_only_train(kind):
    (_, one), (_, other) = dealt(kind), dealt(kind, seed=2)
    assert one.num_clients == 12 and [*one.ids("server"), *one.ids("probe")] == [10, 11]
    for client in (10, 11):
        assert owned(one, client, SPLITS) == owned(other, client, SPLITS)
    for split in ("val", "test"):
        assert one.split(split).sizes.sum() == one.split(split).sizes[10] > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "fraction" in names(kind)])
def test_a_fraction_uses_so_many_of_the_examples_or_of_the_owners(kind):
    for fraction, num in ((1.0, NUM), (0.5, NUM // 2)):
        _, built = dealt(kind, fraction=fraction)
        rounded = 10 * 2 * 10 if kind in ("path_dir", "path_line") else 0  # of each class's owners
        assert num - rounded <= len(built.x) <= num


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "unseen_fraction" in names(kind)])
def test_clients_may_be_unseen_and_own_what_they_would_own(kind):
    (_, everybody), (_, some) = dealt(kind), dealt(kind, unseen_fraction=0.2)
    assert [len(x.ids("unseen")) for x in (everybody, some)] == [0, everybody.num_clients // 5]
    for split in SPLITS:
        assert np.array_equal(everybody.split(split).rows, some.split(split).rows)


VALIDATING = [x for x in KINDS if "val_fraction" in names(x) and x != "writer_groups"]


# In "writer_groups" it is the server that validates on clients' examples.
@pytest.mark.parametrize("kind", VALIDATING)
def test_validation_examples_are_taken_from_those_for_training(kind):
    (_, whole), (_, held) = (dealt(kind, val_fraction=fraction) for fraction in (0.0, 0.25))
    clients = whole.ids("seen")
    assert whole.val.sizes[clients].sum() == 0 < held.val.sizes[clients].sum()
    for client in range(whole.num_clients):
        both = [sorted([*x.train.of(client), *x.val.of(client)]) for x in (whole, held)]
        assert both[0] == both[1]
        assert np.array_equal(held.test.of(client), whole.test.of(client))


@every_kind
def test_a_value_that_makes_no_sense_is_refused(kind):
    for name in names(kind):
        with pytest.raises(ConfigError, match=f"^{name} must be .*, got -1"):
            parsed(kind, **{name: -1})


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("iid", {"kind": "iiid"}, "no partition kind 'iiid'; choose one of angled, dirichlet, "),
        ("writer_parts", {"kind": "iid"}, "partition iid needs the parameter 'num_clients'"),
        ("iid", {"alpha": 1}, "partition iid has no parameter 'alpha'; it takes num_clients"),
        ("majority", {"num_clients": 101}, "num_clients must be at most 100, one for each pair"),
        ("majority", {"train_examples": 25}, "train_examples must be a multiple of 2, got 25"),
        ("permuted", {"num_clusters": 3}, "num_clients must be a multiple of 3, .* got 10"),
        ("quantity", {"max_examples": 19}, "max_examples must be .*, 20, got 19"),
        ("rotated", {"rotations": [0, 45]}, "rotations must be .* out of 0, 90, 180, 270, got"),
        ("server_majority", {"share_to": 0.4}, "share_to must be at least the share, 0.5, got 0.4"),
        ("two_shard", {"num_clients": 12}, "num_clients must be a multiple of 5, .* got 12"),
        ("writer", {"unseen": "test_part", "unseen_fraction": 0.2}, "unseen_fraction 0, got 0.2"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(kind, change, message):
    with pytest.raises(ConfigError, match=message):
        partitions.parse({"kind": kind, **KINDS[kind], **change})


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("iid", {"num_clients": 351, "fraction": 0.25}, "350 examples .* 351 clients"),
        ("dirichlet", {"num_groups": 11}, "at most the 10 labels of the data, got 11"),
        ("path_line", {"classes_per_client": 11}, "classes_per_client at most that, got 10 . 11"),
        ("hsu", {"test_examples": 41}, "400 test .* with 41 each; take .* fewer test_examples"),
        ("quantity", {"num_clients": 20}, r"1000 train .* 20 clients who have 1\d{3} "),
        ("permuted", {"train_examples": 101}, "1000 train examples cannot .* to 10 .* with 101"),
        ("two_shard", {"train_examples": 102}, "class has 100 train .* too few for 2 shards; take"),
        # Everything is needed, and what is left for the last clients is of their own classes.
        (
            "majority",
            {"num_clients": 100, "p": 0.2, "train_examples": 10},
            r"client 9\d needs 8 train examples of .* are left; take fewer clients",
        ),
        ("server_dirichlet", {"majority": 0.3}, "class 0 has 100 training examples, but 125 are"),
        ("server_dirichlet", {"test_per_class": 41}, "test_per_class is 41, .* has 40 test"),
        ("writer", {"num_clients": 21}, "num_clients is 21, but only 20 writers are there"),
        ("writer_parts", {"num_clients": 21}, "num_clients is 21, but only 20 writers are there"),
        ("writer", {"fraction": 0.04}, "fraction is 0.04, which is none of the 20 writers"),
        ("writer", {"min_examples": 99}, "none of the 0 writers .* min_examples is 99"),
        ("writer_groups", {"num_clients": 7}, "7 clients of 3 writers .* asked for, but only 20"),
        ("writer_groups", {"server_examples": 401}, "server_examples is 401, but the 6 writers"),
    ],
)
def test_what_the_data_set_cannot_give_is_refused(kind, change, message):
    with pytest.raises((ConfigError, DataError), match=message):
        dealt(kind, **change)


@pytest.mark.parametrize(("kind", "changes"), [("angled", {}), ("rotated", {"rotations": (0, 90)})])
def test_images_that_are_not_square_cannot_be_turned(kind, changes):
    examples = made_up()
    wide = examples._replace(x=np.tile(examples.x, (1, 1, 1, 2)))
    with pytest.raises(ConfigError, match="images must be square .* got 8 x 4 pixels"):
        parsed(kind, **changes).deal(wide, 1)


def test_a_concentration_that_floats_cannot_bear_is_refused():
    with pytest.raises(ConfigError, match="too small, got 1e-05"):
        dirichlet(np.random.RandomState(0), 1e-5, 3)
    with pytest.raises(ConfigError, match=r"too large, got 1e\+308"):
        dirichlet(np.random.RandomState(0), 1e308, 3)
