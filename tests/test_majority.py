"""Clients with two majority classes. Sections: fedlib/papers/adaptive_experts/README.md."""

import math

import numpy as np
import pytest
from data_fixtures import NOWHERE, REAL_RAW, federation, make_up_cifar10, needs

from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.official import hold_out, round_half_up
from fedlib.data.partitions.majority import Majority
from fedlib.data.sources import digits
from fedlib.data.sources.digits import set_aside
from fedlib.engine.participation import sample
from fedlib.errors import ConfigError

SEED = 7
# As many labels of each class as CIFAR-10 has, training ones first.
LABELS = np.concatenate([np.arange(50_000) % 10, np.arange(10_000) % 10])
NUM_TRAIN = 50_000


def deal(num_clients, p, train_examples=500, test_examples=100, seed=SEED):
    partition = Majority(num_clients, p, train_examples, test_examples)
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [NUM_TRAIN, len(LABELS) - NUM_TRAIN])
    return partition.owners(Examples(LABELS, LABELS, 10, part=part), seed)


def of_digits(p, seed=SEED, **given):
    sizes = {"num_clients": 10, "train_examples": 24, "test_examples": 8}
    return federation("digits", "majority", seed=seed, p=p, **sizes, **given)


def of_cifar10(raw, **given):
    sizes = {"num_clients": 50, "train_examples": 500, "test_examples": 100}
    read = {"scaling": "measured"}
    return federation("cifar10", "majority", raw, params=read, **{**sizes, **given})


def classes(rows):
    return np.bincount(LABELS[rows], minlength=10)


# Section 4.1, the invariants


@pytest.mark.parametrize(
    ("num_clients", "train", "test"),
    [
        # First classes 0 and 1, ten clients each; every class is second twice: 10 * 250 + 2 * 250.
        (20, [3000] * 2 + [500] * 8, [600] * 2 + [100] * 8),
        # Every class is first ten times and second ten times: all images.
        (100, [5000] * 10, [1000] * 10),
        # First classes 0 to 4 ten times each, every class second five times.
        (50, [3750] * 5 + [1250] * 5, [750] * 5 + [250] * 5),
    ],
)
def test_class_totals_with_majority_classes_alone_are_those_of_the_specification(
    num_clients, train, test
):
    owners = deal(num_clients, 1.0)
    assert classes(np.concatenate(owners.train)).tolist() == train
    assert classes(np.concatenate(owners.test)).tolist() == test


@pytest.mark.parametrize("p", [0.0, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 1.0])
def test_every_client_has_its_share_of_its_majority_classes(p):
    owners = deal(50, p)
    for part, size in ((owners.train, 500), (owners.test, 100)):
        half = {0.0: 0, 0.2: 10, 0.3: 15, 0.4: 20, 0.6: 30, 0.7: 35, 0.8: 40, 1.0: 50}[p]
        half = half * size // 100
        for client, rows in enumerate(part):
            a, b = client // 10, client % 10
            counts = classes(rows)
            assert counts.sum() == size
            if a == b:
                assert counts[a] == 2 * half
            else:
                assert (counts[a], counts[b]) == (half, half)


@pytest.mark.parametrize("p", [0.2, 0.6, 1.0])
def test_no_example_has_two_owners_and_parts_are_kept_apart(p):
    train, test = (np.concatenate(part) for part in deal(50, p))
    assert len(np.unique(train)) == len(train) == 50 * 500
    assert len(np.unique(test)) == len(test) == 50 * 100
    assert train.max() < NUM_TRAIN <= test.min()


def test_the_rest_is_uniform_over_what_is_left_and_not_over_classes():
    # 50 clients, p = 0.8: of 50,000 images 20,000 are taken by majorities, 200 * (10 + 5) = 3,000
    # of each class 0 to 4, 1,000 of each class 5 to 9: 2,000 and 4,000 of them are left.
    counts = classes(np.concatenate([rows[400:] for rows in deal(50, 0.8).train]))
    # Thousands of images of classes 0 to 4, and of 5 to 9, that are no majority classes of clients
    # with two majority classes below 5 (20 clients), with one and the same (5), with one (25).
    left = [(20, 3 * 2, 5 * 4), (5, 4 * 2, 5 * 4), (25, 4 * 2, 4 * 4)]
    expected = sum(100 * clients * high / (low + high) for clients, low, high in left)
    # 5,000 draws have a deviation of about 30; taking without replacement moves it by as much.
    assert counts.sum() == 5000
    assert counts[5:].sum() == pytest.approx(expected, abs=150)
    # Uniform over classes it would be 100 * (20 * 5 / 8 + 5 * 5 / 9 + 25 * 4 / 8) = 2,778.
    assert expected > 2778 + 500


def test_majority_classes_are_those_of_the_clients_number():
    partition = Majority(100, 0.5, 10, 2)
    assert [partition.pair(i) for i in (0, 7, 10, 11, 38, 99)] == [
        *((0, 0), (0, 7), (1, 0), (1, 1), (3, 8), (9, 9))
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [(2.5, 3), (2.4, 2), (0.5, 1), (0.29 * 50, 15), (0.0, 0)]
)
def test_halves_are_rounded_up(value, expected):
    assert round_half_up(value) == expected  # 0.29 * 50 is 14.499999999999998


def test_a_pool_without_enough_examples_is_an_error_and_nothing_is_shared():
    # Everything is needed, and what is left for the last clients is of their own classes.
    with pytest.raises(ConfigError, match=r"client 9\d needs 400 train examples of .* are left"):
        deal(100, 0.2)
    with pytest.raises(ConfigError, match=r"client 0 needs 5001 .* \[0\], but 5000 are left"):
        deal(1, 1.0, train_examples=10_002)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clients": 101}, "num_clients must be at most 100, one for each pair of classes"),
        ({"num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"p": 1.1}, r"p must be in \[0, 1\], got 1.1"),
        ({"train_examples": 25}, "train_examples must be even, got 25"),
        ({"test_examples": 0}, "test_examples must be an integer of at least 1"),
        ({"val_fraction": 1.0}, r"val_fraction must be in \[0, 1\), got 1.0"),
        ({"unseen_fraction": 1.0}, r"unseen_fraction must be in \[0, 1\), got 1.0"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        of_cifar10(NOWHERE, **{"p": 0.5, **change})


@pytest.mark.parametrize(
    ("share", "num_clients", "expected"),
    [(0.1, 50, 5), (0.25, 50, 13), (0.03, 182, 6), (0.1, 200, 20)],
)
def test_a_rate_is_declared_so_that_cohorts_have_the_sizes_of_the_paper(
    share, num_clients, expected
):
    # The paper rounds C * K up, `sample` rounds down: the rate to declare is size / K.
    size = math.ceil(share * num_clients - 1e-9)
    assert size == expected
    assert len(sample(np.arange(num_clients), size / num_clients, seed=0, round=0)) == expected


# Validation


@pytest.mark.parametrize(("fraction", "num_val"), [(0.0, 0), (0.2, 5), (0.5, 12)])
def test_validation_examples_are_held_out_of_the_training_part(fraction, num_val):
    rows = np.arange(100, 124)  # 0.2 * 24 = 4.8
    train, val = hold_out(rows, fraction, SEED, client=3)
    assert len(val) == num_val
    assert sorted([*train, *val]) == rows.tolist()


def test_clients_hold_out_other_examples_but_always_the_same():
    rows = np.arange(100)
    one, again, other = (hold_out(rows, 0.2, SEED, client)[1].tolist() for client in (0, 0, 1))
    assert one == again != other


def test_a_federation_with_a_validation_part_has_the_same_other_examples():
    whole, held = (of_digits(0.6, val_fraction=f) for f in (0.0, 0.25))
    assert np.array_equal(whole.x, held.x)
    assert whole.train.sizes.tolist() == [24] * 10 and whole.val.sizes.tolist() == [0] * 10
    assert held.train.sizes.tolist() == [18] * 10 and held.val.sizes.tolist() == [6] * 10
    for client in range(10):
        assert np.array_equal(whole.test.of(client), held.test.of(client))
        parts = np.concatenate([held.train.of(client), held.val.of(client)])
        assert sorted(parts) == sorted(whole.train.of(client))


# Clients that opt out of training


def test_clients_that_opt_out_are_drawn_and_everything_else_stays_as_it_is():
    def build(seed=SEED, **given):
        return of_digits(0.6, seed, **given)

    everybody, some = build(), build(unseen_fraction=0.35)  # of ten clients, rounded down
    unseen = some.ids("unseen").tolist()
    assert (len(everybody.ids("unseen")), len(unseen)) == (0, 3)
    assert np.array_equal(some.x, everybody.x)
    for split in ("train", "test"):
        assert np.array_equal(some.split(split).rows, everybody.split(split).rows)
    assert unseen == build(unseen_fraction=0.35, val_fraction=0.25).ids("unseen").tolist()
    assert {*unseen} < {*build(unseen_fraction=0.8).ids("unseen").tolist()}
    assert unseen != build(SEED + 1, unseen_fraction=0.35).ids("unseen").tolist()


@pytest.mark.parametrize(("fraction", "number"), [(0.0, 0), (0.3, 3), (0.29, 2), (0.5, 5)])
def test_how_many_opt_out(fraction, number):
    some = of_digits(0.6, unseen_fraction=fraction)
    assert len(some.ids("unseen")) == number  # of 10; 0.29 of them are 2.9


# Data sets


def test_every_fourth_image_of_a_class_is_set_aside():
    labels = np.array([0, 1, 0, 0, 1, 0, 1, 0, 1, 1])  # five of each
    part = set_aside(labels, 4)
    # The fourth 0 is row 5, the fourth 1 row 8.
    assert np.flatnonzero(part == TEST).tolist() == [5, 8]
    examples = Examples(np.arange(10), labels, 2, part=part).by_part()
    assert examples.x.tolist() == [0, 1, 2, 3, 4, 6, 7, 9, 5, 8] and examples.num_train == 8


@pytest.mark.parametrize("p", [0.2, 0.6, 1.0])
def test_digits_have_the_clients_of_the_declared_sizes(p):
    built = of_digits(p)
    assert built.train.sizes.tolist() == [24] * 10 and built.test.sizes.tolist() == [8] * 10
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (10, 0)
    assert (built.mean, built.std, built.num_classes) == (digits.MEAN, digits.STD, 10)
    half = {0.2: 2, 0.6: 7, 1.0: 12}[p]  # 2.4, 7.2 and 12
    for client in range(1, 10):
        counts = np.bincount(built.y[built.train.of(client)], minlength=10)
        assert (counts[0], counts[client]) == (half, half)
    assert np.bincount(built.y[built.train.of(0)])[0] == 2 * half


def test_test_images_of_digits_are_never_training_images():
    x, y = digits.read(NOWHERE)[:2]
    number = {
        image.tobytes() + bytes([label]): i
        for i, (image, label) in enumerate(zip(x, y, strict=True))
    }
    assert len(number) == len(x)  # no two are alike
    is_test = np.zeros(len(x), bool)
    for label in range(10):
        is_test[np.flatnonzero(y == label)[3::4]] = True
    built = of_digits(0.5)
    for split, expected in (("train", False), ("test", True)):
        rows = built.split(split).rows
        numbers = [number[built.x[r].tobytes() + bytes([built.y[r]])] for r in rows]
        assert (is_test[numbers] == expected).all()


def test_cifar10_keeps_its_test_batch_for_testing(tmp_path, monkeypatch):
    make_up_cifar10(monkeypatch, tmp_path, 40)
    sizes = {"num_clients": 3, "train_examples": 20, "test_examples": 4}
    built = of_cifar10(tmp_path, p=0.5, val_fraction=0.2, **sizes)
    number = built.x[:, 0, 0, 0].astype(int)  # the first pixel of `cifar10_batch` numbers them
    assert (number[built.train.rows] < 200).all() and (number[built.val.rows] < 200).all()
    assert (number[built.test.rows] >= 200).all()
    assert (number % 10 == built.y).all()
    assert (built.train.sizes + built.val.sizes).tolist() == [20] * 3
    assert built.test.sizes.tolist() == [4] * 3
    assert built.mean == (0.4915, 0.4822, 0.4466) and built.std == (0.2470, 0.2435, 0.2616)


@pytest.mark.slow
@needs("cifar10")
def test_the_official_cifar10_gives_the_clients_of_the_specification():
    built = of_cifar10(REAL_RAW, p=1.0, seed=SEED, num_clients=20)
    assert np.bincount(built.y[built.train.rows]).tolist() == [3000] * 2 + [500] * 8
    assert np.bincount(built.y[built.test.rows]).tolist() == [600] * 2 + [100] * 8
    built = of_cifar10(REAL_RAW, p=0.6, seed=SEED, val_fraction=0.2)
    assert built.train.sizes.tolist() == [400] * 50
    assert built.val.sizes.tolist() == [100] * 50
    assert built.test.sizes.tolist() == [100] * 50
    counts = built.class_histogram[23]  # of training, validation and test images together
    assert (counts[2], counts[3], counts.sum()) == (180, 180, 600)
