"""The federations of FedMix. Sections: fedlib/papers/fedmix/README.md."""

import numpy as np
import pytest
from data_fixtures import CIFAR10, NOWHERE, class_counts, federation, numbered

from fedlib.data.partitions.angled import ANGLES, Angled, turn
from fedlib.data.partitions.hierarchical import Hierarchical
from fedlib.data.partitions.hsu import Hsu, among
from fedlib.data.partitions.permuted import Permuted
from fedlib.data.partitions.two_shard import TwoShard
from fedlib.data.sources import digits
from fedlib.errors import ConfigError
from fedlib.federation import SPLITS

SEED = 7
SIZES = {"num_clients": 20, "train_examples": 60, "test_examples": 20}


def dealt(kind, **fields):
    """The digits of FedMix, with these fields of the partition changed."""
    return federation("digits", kind, seed=SEED, **SIZES | {"alpha": 1.0} | fields)


@pytest.mark.parametrize("kind", ["hsu", "angled"])
def test_more_clients_than_there_are_examples_for_are_refused_at_once(kind):
    fields = {"label_alpha": 1.0} if kind == "angled" else {}
    with pytest.raises(ConfigError, match="cannot be dealt to 1000000000000 clients with 60 each"):
        dealt(kind, num_clients=10**12, **fields)


def largest_share(table) -> float:
    """Mean share of the most frequent class of a client."""
    return (table.max(1) / table.sum(1)).mean()


def distance(one, other) -> float:
    """Mean distance of the clients' distributions, half the sum of the differences of shares."""
    one, other = (table / table.sum(1, keepdims=True) for table in (one, other))
    return (np.abs(one - other).sum(1) / 2).mean()


def assert_all_are_dealt(owners, num_train, num):
    """Every training and every test example has one owner."""
    assert sorted(np.concatenate(owners.train)) == list(range(num_train))
    assert sorted(np.concatenate(owners.test)) == list(range(num_train, num))


# Section 5.1, label skew


@pytest.fixture(scope="module")
def skewed():
    """The clients of section 5.1 on labels like those of CIFAR-10."""
    return Hsu(100, 500, 100, alpha=1.0).owners(CIFAR10, SEED)


def test_label_skew_has_the_statistics_of_the_specification(skewed):
    table = class_counts(CIFAR10.y, skewed.train)
    assert 0.62 < largest_share(table) < 0.76  # published split: 0.685
    assert 3.9 < (table > 0).sum(1).mean() < 5.4  # published split: 4.8
    # Golden values of section 5.1: E[sum q^2] is 0.579 there, 0.18 with 1.0 per class.
    assert 0.5 < ((table / 500) ** 2).sum(1).mean() < 0.66


@pytest.mark.parametrize(
    ("shares", "left", "expected"),
    [
        ([0.5, 0.3, 0.2], [True, True, True], [0.5, 0.3, 0.2]),
        ([0.5, 0.3, 0.2], [True, False, True], [5 / 7, 0, 2 / 7]),
        ([0.5, 0.3, 0.2], [False, False, True], [0, 0, 1]),
        ([1.0, 0.0, 0.0], [False, True, True], [0, 0.5, 0.5]),
    ],
)
def test_what_is_left_keeps_its_proportions_if_it_has_any(shares, left, expected):
    assert among(np.array(shares), np.array(left)) == pytest.approx(expected)


# Section 5.2, the hierarchy

COARSE = np.arange(100) % 20  # as in CIFAR-100, the classes of a superclass are not adjacent
CIFAR100 = numbered(np.arange(60_000) % 100, 50_000, coarse=COARSE)


@pytest.fixture(scope="module")
def hierarchical():
    return Hierarchical(500, 100, 20, alpha=0.1, beta=10.0).owners(CIFAR100, SEED)


def test_the_hierarchy_has_the_statistics_of_the_specification(hierarchical):
    fine = class_counts(CIFAR100.y, hierarchical.train, 100)
    coarse, of_test = (class_counts(COARSE[CIFAR100.y], part, 20) for part in hierarchical)
    assert 5.8 < (coarse > 0).sum(1).mean() < 7.4
    assert 19 < (fine > 0).sum(1).mean() < 25
    assert 0.47 < largest_share(coarse) < 0.60
    assert distance(coarse, of_test) < 0.25  # 20 draws are few
    assert distance(coarse, np.roll(of_test, 1, 0)) > 0.7  # of other clients


# Section 5.4, angles


def test_45_degrees_are_bilinear_anticlockwise_with_0_from_outside():
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8), np.uint8)
    expected = np.zeros((8, 8))
    half, centre = np.sqrt(0.5), 3.5
    for i in range(8):
        for j in range(8):
            up, right = centre - i, j - centre
            # Anticlockwise by 45 degrees: the pixel comes from where it was 45 degrees before.
            was_right, was_up = half * (right + up), half * (up - right)
            row, column = centre - was_up, centre + was_right
            if not (0 <= row <= 7 and 0 <= column <= 7):
                continue
            top, first = min(int(row), 6), min(int(column), 6)
            a, b = row - top, column - first
            pixels = x[0, 0, top : top + 2, first : first + 2].astype(float)
            expected[i, j] = np.array([1 - a, a]) @ pixels @ np.array([1 - b, b])
    # Pixels are rounded to whole shades.
    assert np.abs(turn(x, 45)[0, 0] - expected).max() <= 0.5 + 1e-6
    assert turn(x, 45).dtype == np.uint8 and turn(x, 45)[0, 0, 0, 0] == 0


MNIST = numbered(np.random.default_rng(1).integers(0, 10, 70_000), 60_000)


def test_angles_have_the_statistics_of_the_specification():
    partition = Angled(100, 600, 100, alpha=1.0)
    owners = partition.owners(MNIST, SEED)
    side = partition.side(owners, len(MNIST.y), SEED)
    train, test = (class_counts(side, part, len(ANGLES)) for part in owners)  # images of each
    # The deviation of a client's largest share is below 0.25, of a mean of 100 below 0.025.
    assert largest_share(train) == pytest.approx(0.67, abs=0.06)
    assert (train.sum(0) > 0).all()
    assert distance(train, test) < 0.1
    assert distance(train, np.roll(test, 1, 0)) > 0.5  # of other clients
    assert_all_are_dealt(owners, 60_000, 70_000)
    # 600 of ten equal classes: 60 each, with a deviation of 7.3; the largest of them about 72.
    assert largest_share(class_counts(MNIST.y, owners.train)) < 0.15


def test_an_image_is_turned_by_the_angle_of_its_side_information():
    x, y = digits.read(NOWHERE)[:2]
    built = dealt("angled", num_clients=10, val_fraction=0.1)
    assert built.side.shape == built.y.shape and set(built.side) <= set(range(8))
    at = {
        image.tobytes(): (i, number)
        for number, angle in enumerate(ANGLES)
        for i, image in enumerate(turn(x, angle))
    }
    assert len(at) == 8 * len(x)  # no two are alike
    for row in range(len(built.y)):
        i, number = at[built.x[row].tobytes()]
        assert (built.y[row], built.side[row]) == (y[i], number)


# Section 5.5, permutations


@pytest.fixture(scope="module")
def permuted():
    return Permuted(20, 4, val_fraction=0.1).deal(CIFAR10, SEED).federation()


def test_a_cluster_has_one_permutation_for_all_its_examples_and_no_two_the_same(permuted):
    ways = []
    for client in range(20):
        rows = np.concatenate([permuted.split(name).of(client) for name in SPLITS])
        pairs = {*zip(permuted.x[rows, 0, 0, 0] % 10, permuted.y[rows], strict=True)}
        assert len(pairs) == 10 and sorted(new for _, new in pairs) == list(range(10))
        ways.append(tuple(new for _, new in sorted(pairs)))
    for client in range(20):
        for other in range(client):
            together = permuted.cluster[client] == permuted.cluster[other]
            assert (ways[client] == ways[other]) == together


def test_there_are_as_many_permutations_as_clusters_even_if_one_is_drawn_twice():
    ways = Permuted(6, 6).permutations(3, SEED)  # all there are
    assert len({tuple(way) for way in ways}) == 6
    assert (np.sort(ways, axis=1) == np.arange(3)).all()
    with pytest.raises(ConfigError, match="at most 6, .* of 3 classes, got 7"):
        Permuted(7, 7).permutations(3, SEED)


# Section 5.6, two shards


def test_leftovers_are_appended_to_the_first_shards_of_a_class():
    # Class 0 has 7 training examples and 2 shards: 0 2 4 and the left-over 12, then 6 8 10.
    labels = [*np.arange(12) % 2, 0, *[1] * 2, *np.repeat(np.arange(2, 10), 2)]
    parts = numbered([*labels, *np.repeat(np.arange(10), 2)], len(labels))
    owners = TwoShard(10).owners(parts, SEED)
    shards = {tuple(rows[parts.y[rows] == 0].tolist()) for rows in owners.train} - {()}
    first, second = (0, 2, 4, 12), (6, 8, 10)
    assert shards in ({first, second}, {first + second}, {second + first})
    assert_all_are_dealt(owners, len(labels), len(labels) + 20)
