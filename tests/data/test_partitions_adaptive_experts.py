"""Clients with two majority classes, and clients whose images are turned.

Sections: fedlib/papers/adaptive_experts/README.md.
"""

import numpy as np
import pytest
from data_fixtures import CIFAR10, class_counts, federation

from fedlib.data.examples import Examples
from fedlib.data.official import round_half_up
from fedlib.data.partitions.majority import Majority
from fedlib.data.partitions.rotated import Rotated

SEED = 7


def counts(num_clients, p, part="train") -> np.ndarray:
    """Examples of each class of each client of CIFAR-10 -> [C, L]"""
    owners = Majority(num_clients, 500, 100, p=p).owners(CIFAR10, SEED)
    return class_counts(CIFAR10.y, getattr(owners, part))


# Section 4.1, majority classes


@pytest.mark.parametrize(("p", "percent"), [(0.0, 0), (0.3, 15), (1.0, 50)])
def test_every_client_has_its_share_of_its_majority_classes(p, percent):
    for part, size in (("train", 500), ("test", 100)):
        half = percent * size // 100
        for client, own in enumerate(counts(50, p, part)):
            a, b = client // 10, client % 10
            assert own.sum() == size
            assert (own[a], own[b]) == ((2 * half,) * 2 if a == b else (half, half))


def test_the_rest_is_uniform_over_what_is_left_and_not_over_classes():
    # 50 clients, p = 0.8: of 50,000 images 20,000 are taken by majorities, 200 * (10 + 5) = 3,000
    # of each class 0 to 4, 1,000 of each class 5 to 9: 2,000 and 4,000 of them are left.
    rest = Majority(50, 500, 100, p=0.8).owners(CIFAR10, SEED).train
    found = class_counts(CIFAR10.y, [np.concatenate([rows[400:] for rows in rest])])[0]
    # Thousands of images of classes 0 to 4, and of 5 to 9, that are no majority classes of clients
    # with two majority classes below 5 (20 clients), with one and the same (5), with one (25).
    left = [(20, 3 * 2, 5 * 4), (5, 4 * 2, 5 * 4), (25, 4 * 2, 4 * 4)]
    expected = sum(100 * clients * high / (low + high) for clients, low, high in left)
    # 5,000 draws have a deviation of about 30; taking without replacement moves it by as much.
    assert found.sum() == 5000
    assert found[5:].sum() == pytest.approx(expected, abs=150)
    # Uniform over classes it would be 100 * (20 * 5 / 8 + 5 * 5 / 9 + 25 * 4 / 8) = 2,778.
    assert expected > 2778 + 500


@pytest.mark.parametrize(
    ("value", "expected"), [(2.5, 3), (2.4, 2), (0.5, 1), (0.29 * 50, 15), (0.0, 0)]
)
def test_halves_are_rounded_up(value, expected):
    assert round_half_up(value) == expected  # 0.29 * 50 is 14.499999999999998


# Section 4.2, turned images


def test_the_angle_is_the_true_cluster_of_a_client_and_only_what_is_dealt_is_stored():
    sizes = {"train_examples": 10, "test_examples": 3, "val_fraction": 0.2}
    built = federation("digits", "rotated", num_clients=8, rotations=[0, 90, 180, 270], **sizes)
    assert built.cluster.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert built.train.sizes.tolist() == [8] * 8 and built.val.sizes.tolist() == [2] * 8
    assert built.test.sizes.tolist() == [3] * 8
    assert len(built.x) == 8 * 13


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
