"""What holds of every partition, whatever it deals by."""

import random

import numpy as np
import pytest

from fedlib.data import partitions
from fedlib.data.examples import TEST, TRAIN, Examples
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
    "rotated": {"num_clients": 10},
    "server_dirichlet": SERVER,
    "server_equal": SERVER | {"train_examples": 50},
    "server_majority": SERVER | {"train_examples": 50, "share": 0.5},
    "server_two_class": SERVER,
    "two_shard": {"num_clients": 10},
    "writer": {"train_fraction": 0.8},
    "writer_groups": {"num_clients": 4, "writers_per_client": 3, "server_writers": 6},
    "writer_parts": {},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def made_up() -> Examples:
    """Images of one shade each, their number, which no turn and no permutation changes."""
    x = np.broadcast_to(np.arange(NUM, dtype=np.float64)[:, None, None, None], (NUM, 1, 4, 4))
    y, owner = np.arange(NUM) % 10, np.arange(NUM) * 37 % 20
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [NUM_TRAIN, NUM - NUM_TRAIN])
    known = {"owner": owner, "num_owners": 20, "coarse": np.arange(10) // 5, "part": part}
    return Examples(np.array(x), y, 10, (0.0,), (1.0,), **known)


def dealt(kind, seed=1, **changes):
    partition = partitions.parse({"kind": kind, **KINDS[kind], **changes})
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


def can(kind, field):
    return field in partitions.load(kind).__dataclass_fields__


def test_every_kind_is_in_the_table():
    assert {*KINDS} == {*partitions.PARTITIONS}


@every_kind
def test_no_example_is_owned_twice_and_labels_are_those_of_the_images(kind):
    partition, built = dealt(kind)
    found = []
    for split in SPLITS:
        number, cluster = numbers(built, split)
        if kind != "permuted":  # which permutes labels
            assert np.array_equal(built.y[built.split(split).rows], number % 10)
        found += zip(number.tolist(), cluster.tolist(), strict=True)
        if "part" in partition.needs and kind != "writer_groups":  # whose probe has both parts
            assert all((number >= NUM_TRAIN) == (split == "test"))
    assert len(found) == len(set(found)) > 200
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if can(kind, "unseen_fraction")])
def test_clients_may_be_unseen_and_own_what_they_would_own(kind):
    (_, everybody), (_, some) = dealt(kind), dealt(kind, unseen_fraction=0.2)
    assert len(everybody.ids("unseen")) == 0
    assert len(some.ids("unseen")) == everybody.num_clients // 5
    for split in SPLITS:
        assert np.array_equal(everybody.split(split).rows, some.split(split).rows)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if can(kind, "unseen_fraction")])
def test_validation_examples_are_taken_from_those_for_training(kind):
    (_, whole), (_, held) = (dealt(kind, val_fraction=fraction) for fraction in (0.0, 0.25))
    assert whole.val.sizes.sum() == 0 < held.val.sizes.sum()
    for client in range(whole.num_clients):
        left = [held.split(name).of(client) for name in ("train", "val")]
        assert sorted(np.concatenate(left)) == sorted(whole.train.of(client))
        assert np.array_equal(held.test.of(client), whole.test.of(client))
