"""Clients whose images are turned. Sections: fedlib/papers/adaptive_experts/README.md."""

from pathlib import Path

import numpy as np
import pytest
from data_fixtures import NOWHERE, REAL_RAW, federation, make_up_cifar10, needs

from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.partitions.rotated import Rotated
from fedlib.data.sources import digits
from fedlib.errors import ConfigError

SEED = 7


@pytest.fixture
def raw(tmp_path, monkeypatch) -> Path:
    """CIFAR-10 with 40 images in each batch."""
    make_up_cifar10(monkeypatch, tmp_path, 40)
    return tmp_path


def parts_of(num: int, num_train: int) -> Examples:
    """Numbered images, the training part first."""
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [num_train, num - num_train])
    return Examples(np.arange(num)[:, None, None, None], np.zeros(num, int), 10, part=part)


# Section 4.2, the invariants


@pytest.mark.parametrize(
    ("rotations", "train", "test"), [((0, 180), 500, 100), ((0, 90, 180, 270), 1000, 200)]
)
def test_every_angle_deals_the_whole_data_set_to_its_clients(rotations, train, test):
    # 50,000 training images to 200 / 2 or 200 / 4 clients, and 10,000 test images.
    owners = Rotated(200, rotations).owners(parts_of(60_000, 50_000), SEED)
    assert [len(rows) for rows in owners.train] == [train] * 200
    assert [len(rows) for rows in owners.test] == [test] * 200
    block = 200 // len(rotations)
    for number in range(len(rotations)):
        clients = slice(number * block, (number + 1) * block)
        start = 60_000 * number
        dealt = [np.sort(np.concatenate(part[clients])) for part in owners]
        assert np.array_equal(dealt[0], np.arange(start, start + 50_000))
        assert np.array_equal(dealt[1], np.arange(start + 50_000, start + 60_000))


def test_the_angles_are_dealt_in_orders_of_their_own():
    train = Rotated(4, (0, 180)).owners(parts_of(120, 100), SEED).train
    assert not np.array_equal(train[0], train[2] - 120)
    # Every client has examples from all over the data set, not a block of it.
    assert all(rows.max() - rows.min() > 50 for rows in train)


def test_the_angle_is_the_true_cluster_of_a_client(raw):
    angles = [0, 90, 180, 270]
    built = federation("cifar10", "rotated", raw, num_clients=8, rotations=angles)
    assert built.cluster.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_images_are_turned_anticlockwise():
    x = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    pool = Rotated(4, (0, 90, 180, 270)).pool(Examples(x, np.array([5, 6]), 10))
    assert pool.y.tolist() == [5, 6] * 4
    none, quarter, half, three = pool.x.reshape(4, *x.shape)
    assert np.array_equal(none, x)
    assert np.array_equal(half, x[:, :, ::-1, ::-1])  # both flips
    for i in range(4):
        for j in range(4):  # the right column becomes the top row
            assert (quarter[:, :, i, j] == x[:, :, j, 3 - i]).all()
            assert (three[:, :, i, j] == x[:, :, 3 - j, i]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotations": [0, 45]}, "rotations must be different angles out of 0, 90, 180, 270, got"),
        ({"rotations": [180, 180]}, r"rotations must be different .* got \[180, 180\]"),
        ({"rotations": []}, "rotations must be"),
        ({"num_clients": 5}, "num_clients must be a multiple of the 2 rotations, got 5"),
        ({"num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"train_examples": 0}, "train_examples must be an integer of at least 1, got 0"),
        ({"val_fraction": -0.1}, "val_fraction must be in"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        federation("cifar10", "rotated", NOWHERE, **{"num_clients": 200, **change})


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (Rotated(4, (0, 180), 51), "100 train examples cannot be dealt to 2 clients with 51 each"),
        (Rotated(4, (0, 180), 50, 11), "20 test examples cannot be dealt to 2 clients with 11"),
        (Rotated(50, (0, 180)), "20 test examples cannot be dealt to 25 clients with 1 each"),
    ],
)
def test_too_few_examples_are_an_error(partition, message):
    with pytest.raises(ConfigError, match=message):
        partition.owners(parts_of(120, 100), SEED)


# Data sets


def test_the_second_half_of_the_clients_sees_images_upside_down(raw):
    built = federation("cifar10", "rotated", raw, num_clients=4, params={"scaling": "measured"})
    assert built.train.sizes.tolist() == [100] * 4 and built.test.sizes.tolist() == [20] * 4
    assert built.x.shape == (480, 3, 32, 32)
    for client in range(4):
        # `cifar10_batch` numbers images by the first pixel; turned it is the last one.
        row, column = (0, 0) if client < 2 else (31, 31)
        for split, (first, last) in (("train", (0, 200)), ("test", (200, 240))):
            rows = built.split(split).of(client)
            number = built.x[rows, 0, row, column].astype(int)
            assert (number % 10 == built.y[rows]).all()
            assert ((first <= number) & (number < last)).all()
    assert built.mean == (0.4915, 0.4822, 0.4466) and built.std == (0.2470, 0.2435, 0.2616)
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (4, 0)


def test_fewer_images_may_be_dealt_and_only_these_are_stored(raw):
    sizes = {"train_examples": 10, "test_examples": 3}
    built = federation("cifar10", "rotated", raw, num_clients=4, val_fraction=0.2, **sizes)
    assert built.train.sizes.tolist() == [8] * 4 and built.val.sizes.tolist() == [2] * 4
    assert built.test.sizes.tolist() == [3] * 4
    assert len(built.x) == 4 * 13


def test_digits_are_turned_too():
    built = federation("digits", "rotated", seed=SEED, num_clients=10)
    # 1,797 images, of which every fourth of a class is a test image.
    x, y = digits.read(NOWHERE)[:2]
    num_test = sum(count // 4 for count in np.bincount(y))
    assert built.train.sizes.tolist() == [(1797 - num_test) // 5] * 10
    assert built.test.sizes.tolist() == [num_test // 5] * 10
    known = {image.tobytes() for image in x}
    upright = [image.tobytes() in known for image in built.x[built.train.of(0)]]
    turned = [image.tobytes() in known for image in built.x[built.train.of(9)]]
    back = [image[:, ::-1, ::-1].tobytes() in known for image in built.x[built.train.of(9)]]
    assert all(upright) and all(back) and not any(turned)
    assert (built.mean, built.std, built.num_classes) == (digits.MEAN, digits.STD, 10)


@pytest.mark.slow
@needs("cifar10")
def test_the_official_cifar10_is_in_each_half_once():
    built = federation("cifar10", "rotated", REAL_RAW, seed=SEED, num_clients=200)
    assert built.train.sizes.tolist() == [500] * 200 and built.test.sizes.tolist() == [100] * 200
    upright = np.sort([_digest(x) for x in built.x[built.train.rows[:50_000]]])
    turned = np.sort([_digest(x[:, ::-1, ::-1]) for x in built.x[built.train.rows[50_000:]]])
    assert np.array_equal(upright, turned)


def _digest(image: np.ndarray) -> int:
    return hash(np.ascontiguousarray(image).tobytes())
