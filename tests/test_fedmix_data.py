"""The federations of FedMix. Sections: fedlib/papers/fedmix/README.md."""

import pickle

import numpy as np
import pytest
from data_fixtures import (
    NOWHERE,
    REAL_RAW,
    federation,
    idx,
    images,
    make_up,
    make_up_cifar10,
    needs,
)

from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.partitions.angled import ANGLES, Angled, turn
from fedlib.data.partitions.hierarchical import Hierarchical
from fedlib.data.partitions.hsu import Hsu, among, client_shares
from fedlib.data.partitions.permuted import Permuted
from fedlib.data.partitions.two_shard import TwoShard
from fedlib.data.sources import cifar100, digits
from fedlib.errors import ConfigError

SEED = 7
SIZES = {
    "digits": {"num_clients": 20, "train_examples": 60, "test_examples": 20},
    "cifar10": {"num_clients": 100, "train_examples": 500, "test_examples": 100},
    "mnist": {"num_clients": 100, "train_examples": 600, "test_examples": 100},
    "cifar100": {"num_clients": 500, "train_examples": 100, "test_examples": 20},
}
READ = {"cifar10": {"scaling": "measured"}, "mnist": {"scaling": "unit"}}
FIELDS = {
    "angled": {"alpha": 1.0},
    "hierarchical": {"alpha": 0.1, "beta": 10.0},
    "hsu": {"alpha": 1.0},
    "permuted": {"num_clusters": 4, "num_clients": 20},
    "two_shard": {},
}
DEALT = [
    *(("digits", kind) for kind in ("angled", "hsu", "permuted", "two_shard")),
    *(("cifar10", "hsu"), ("cifar10", "permuted"), ("cifar100", "hierarchical")),
    *(("mnist", "angled"), ("mnist", "two_shard")),
]


def dealt(dataset, kind, raw=NOWHERE, seed=SEED, **fields):
    """The federation of FedMix, with these fields of the partition changed."""
    given = SIZES[dataset] | FIELDS[kind]
    if kind in ("permuted", "two_shard"):
        given = {"num_clients": SIZES[dataset]["num_clients"], **FIELDS[kind]}
    read = READ.get(dataset)
    return federation(dataset, kind, raw, seed=seed, params=read, **{**given, **fields})


def parts_of(labels, num_train, num_classes=10, coarse=None) -> Examples:
    """A data set of these labels whose images are numbered."""
    x = np.arange(len(labels))[:, None, None, None]
    part = np.repeat(np.array([TRAIN, TEST], np.uint8), [num_train, len(labels) - num_train])
    y = np.asarray(labels)
    return Examples(x, y, num_classes, (0.0,), (1.0,), part=part, coarse=coarse)


# As many labels of each class as CIFAR-10, and as CIFAR-100, have.
CIFAR10 = parts_of(np.concatenate([np.arange(50_000) % 10, np.arange(10_000) % 10]), 50_000)
COARSE = np.arange(100) % 20  # as in CIFAR-100, the classes of a superclass are not adjacent
CIFAR100 = parts_of(
    np.concatenate([np.arange(50_000), np.arange(10_000)]) % 100, 50_000, 100, COARSE
)


def counts(parts, owned) -> np.ndarray:
    """Examples of each class of each client -> [C, L]"""
    return np.stack([np.bincount(parts.y[rows], minlength=parts.num_classes) for rows in owned])


def largest_share(table) -> float:
    """Mean share of the most frequent class of a client."""
    return (table.max(1) / table.sum(1)).mean()


def owned(built, client) -> np.ndarray:
    """Rows of all splits of a client."""
    return np.concatenate([built.split(name).of(client) for name in ("train", "val", "test")])


def same(one, other) -> bool:
    """Whether two deals are the same."""
    return all(
        np.array_equal(a, b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )


# All of them


@pytest.mark.parametrize(("dataset", "kind"), DEALT)
def test_a_wrong_value_is_refused_before_a_file_is_read(dataset, kind):
    for change, message in (
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"num_clients": 0}, "num_clients must be an integer of at least 1, got 0"),
        ({"val_fraction": 1.0}, r"val_fraction must be in \[0, 1\), got 1.0"),
        ({"unseen_fraction": 1.2}, r"unseen_fraction must be in \[0, 1\), got 1.2"),
    ):
        with pytest.raises(ConfigError, match=message):
            dealt(dataset, kind, **change)


@pytest.mark.parametrize("kind", ["angled", "hsu", "permuted", "two_shard"])
def test_the_demo_has_twenty_clients_who_train_and_test(kind):
    built = dealt("digits", kind)
    assert built.num_clients == len(built.ids("seen")) == 20
    assert (built.train.sizes > 0).all() and (built.test.sizes > 0).all()


@pytest.mark.parametrize("kind", ["hsu", "angled", "two_shard"])
def test_test_images_of_digits_are_never_training_images(kind, monkeypatch):
    examples = digits.read(NOWHERE)
    x, y = examples.x, examples.y
    # Numbered images, which stay what they are when they are turned.
    numbered = np.empty_like(x, dtype=np.uint16)
    numbered[:] = np.arange(len(x))[:, None, None, None]
    monkeypatch.setattr(digits, "read", lambda raw: examples._replace(x=numbered))
    monkeypatch.setattr("fedlib.data.partitions.angled.turn", lambda images, angle: images)
    built = dealt("digits", kind, val_fraction=0.2)
    is_test = np.zeros(len(x), bool)
    for label in range(10):
        is_test[np.flatnonzero(y == label)[3::4]] = True
    for split, expected in (("train", False), ("val", False), ("test", True)):
        numbers = built.x[built.split(split).rows, 0, 0, 0]
        assert len(numbers) and (is_test[numbers] == expected).all()
        assert np.array_equal(built.y[built.split(split).rows], y[numbers])


# Section 5.1, label skew


@pytest.fixture(scope="module")
def skewed():
    """The clients of section 5.1 on labels like those of CIFAR-10."""
    return Hsu(100, 1.0, 500, 100).owners(CIFAR10, SEED)


def test_clients_of_equal_size_share_all_images_and_no_image(skewed):
    assert [len(rows) for rows in skewed.train] == [500] * 100
    assert [len(rows) for rows in skewed.test] == [100] * 100
    assert sorted(np.concatenate(skewed.train)) == list(range(50_000))
    assert sorted(np.concatenate(skewed.test)) == list(range(50_000, 60_000))
    assert counts(CIFAR10, skewed.train).sum(0).tolist() == [5000] * 10


def test_label_skew_has_the_statistics_of_the_specification(skewed):
    table = counts(CIFAR10, skewed.train)
    assert 0.62 < largest_share(table) < 0.76  # published split: 0.685
    assert 3.9 < (table > 0).sum(1).mean() < 5.4  # published split: 4.8
    # Golden values of section 5.1: E[sum q^2] is 0.579 there, 0.18 with 1.0 per class.
    assert 0.5 < ((table / 500) ** 2).sum(1).mean() < 0.66


def test_alpha_per_class_is_the_other_convention():
    table = counts(CIFAR10, Hsu(100, 1.0, 500, 100, "per_class").owners(CIFAR10, SEED).train)
    # Section 5.1: Dir with 1.0 per class gives 0.29, 9.8 classes and 0.18.
    assert 0.25 < largest_share(table) < 0.34
    assert 9.0 < (table > 0).sum(1).mean() <= 10
    assert 0.15 < ((table / 500) ** 2).sum(1).mean() < 0.22
    one, other = (
        Hsu(100, alpha, 500, 100, convention).owners(CIFAR10, SEED)
        for alpha, convention in ((1.0, "prior"), (0.1, "per_class"))
    )
    assert same(one, other)


def test_a_client_is_tested_on_the_classes_that_it_trains_on(skewed):
    train, test = (counts(CIFAR10, part) / n for part, n in zip(skewed, (500, 100), strict=True))
    # Both are samples of one distribution; half the sum of differences is their distance.
    assert (np.abs(train - test).sum(1) / 2).mean() < 0.1
    # Of other clients' distributions they are far away.
    assert (np.abs(train - np.roll(test, 1, 0)).sum(1) / 2).mean() > 0.5


def test_validation_examples_are_of_the_same_distribution():
    built = Hsu(100, 1.0, 500, 100, val_fraction=0.1).deal(CIFAR10, SEED).federation()
    assert built.train.sizes.tolist() == [450] * 100 and built.val.sizes.tolist() == [50] * 100
    assert built.test.sizes.tolist() == [100] * 100
    shares = [
        np.stack([np.bincount(built.y[split.of(c)], minlength=10) for c in range(100)])
        for split in (built.train, built.val)
    ]
    train, val = (table / table.sum(1, keepdims=True) for table in shares)
    assert (np.abs(train - val).sum(1) / 2).mean() < 0.12


@pytest.mark.parametrize("alpha", [1e-6, 1e3])
def test_exhausted_classes_leave_their_share_to_the_others(alpha):
    # Three classes of 10, 20 and 30 examples for six clients of ten: nothing is left over.
    parts = parts_of(np.repeat([0, 1, 2, 0], [10, 20, 30, 6]), 60, num_classes=3)
    owners = Hsu(6, alpha, 10, 1, "per_class").owners(parts, SEED)
    assert counts(parts, owners.train).sum(0).tolist() == [10, 20, 30]
    assert sorted(np.concatenate(owners.train)) == list(range(60))
    if alpha < 1:  # a client has one class as long as there is enough of it
        assert (counts(parts, owners.train) > 0).sum(1).min() == 1


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ([True, True, True], [0.5, 0.3, 0.2]),
        ([True, False, True], [5 / 7, 0, 2 / 7]),
        ([False, False, True], [0, 0, 1]),
    ],
)
def test_what_is_left_keeps_its_proportions(left, expected):
    assert among(np.array([0.5, 0.3, 0.2]), np.array(left)) == pytest.approx(expected)


def test_without_any_share_of_what_is_left_all_of_it_is_equally_probable():
    left = np.array([False, True, True])
    assert among(np.array([1.0, 0.0, 0.0]), left).tolist() == [0, 0.5, 0.5]


def test_concentrations_follow_the_convention():
    # Var(q_1) = (1/n)(1 - 1/n) / (sum of concentrations + 1), of 20,000 draws within 5 %.
    for convention, total in (("prior", 1.0), ("per_class", 4.0)):
        draw = np.random.default_rng(0)
        shares = client_shares(draw, 1.0, convention, 20_000, 4)
        assert shares.sum(1) == pytest.approx(1)
        assert shares[:, 0].var() == pytest.approx(0.25 * 0.75 / (total + 1), rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0}, "alpha must be a positive number, got 0"),
        ({"convention": "total"}, "no convention 'total'; choose one of prior, per_class"),
        ({"train_examples": 0}, "train_examples must be an integer of at least 1, got 0"),
        ({"test_examples": 1.5}, "test_examples must be an integer of at least 1, got 1.5"),
    ],
)
@pytest.mark.parametrize(("dataset", "kind"), [("cifar10", "hsu"), ("mnist", "angled")])
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(
    dataset, kind, change, message
):
    with pytest.raises(ConfigError, match=message):
        dealt(dataset, kind, **change)


def test_too_few_examples_are_an_error():
    with pytest.raises(ConfigError, match="50000 train examples cannot be dealt to 101 clients"):
        Hsu(101, 1.0, 500, 100).owners(CIFAR10, SEED)
    with pytest.raises(ConfigError, match="10000 test .* with 101 each; take .* test_examples"):
        Hsu(100, 1.0, 500, 101).owners(CIFAR10, SEED)


# Section 5.2, the hierarchy


@pytest.fixture(scope="module")
def hierarchical():
    return Hierarchical(500, 0.1, 10.0, 100, 20).owners(CIFAR100, SEED)


def test_the_hierarchy_has_the_statistics_of_the_specification(hierarchical):
    fine = counts(CIFAR100, hierarchical.train)
    coarse = np.stack([fine[:, label == COARSE].sum(1) for label in range(20)], axis=1)
    assert 5.8 < (coarse > 0).sum(1).mean() < 7.4
    assert 19 < (fine > 0).sum(1).mean() < 25
    assert 0.47 < largest_share(coarse) < 0.60


def test_the_hierarchy_deals_all_images_and_none_twice(hierarchical):
    assert [len(rows) for rows in hierarchical.train] == [100] * 500
    assert [len(rows) for rows in hierarchical.test] == [20] * 500
    assert sorted(np.concatenate(hierarchical.train)) == list(range(50_000))
    assert sorted(np.concatenate(hierarchical.test)) == list(range(50_000, 60_000))


def test_superclasses_of_test_images_are_those_of_training_images(hierarchical):
    train, test = (
        np.stack([counts(CIFAR100, part)[:, label == COARSE].sum(1) for label in range(20)], 1)
        for part in hierarchical
    )
    train, test = train / 100, test / 20
    assert (np.abs(train - test).sum(1) / 2).mean() < 0.25  # 20 draws are few
    assert (np.abs(train - np.roll(test, 1, 0)).sum(1) / 2).mean() > 0.7


def test_classes_of_a_used_up_class_come_from_its_superclass_as_long_as_it_lasts():
    # Superclass 0 has the classes 0 and 1 with five images each, superclass 1 the class 2.
    labels = np.repeat([0, 1, 2, 0], [5, 5, 10, 2])
    parts = parts_of(labels, 20, num_classes=3, coarse=np.array([0, 0, 1]))
    one_client = Hierarchical(2, 1e-6, 1e6, 10, 1)  # one superclass each, its classes evenly
    table = counts(parts, one_client.owners(parts, SEED).train)
    assert sorted(table.tolist()) == [[0, 0, 10], [5, 5, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": -1}, "alpha must be a positive number, got -1"),
        ({"beta": 0}, "beta must be a positive number, got 0"),
        ({"train_examples": 0}, "train_examples must be"),
    ],
)
def test_a_hierarchy_that_makes_no_sense_is_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        dealt("cifar100", "hierarchical", **change)


def test_hierarchical_clients_are_made_of_the_files_of_cifar100(tmp_path, monkeypatch):
    for name, num, first in (("train", 500, 0), ("test", 100, 500)):
        pixels = np.zeros((num, 3072), np.uint8)
        numbers = np.arange(first, first + num)
        pixels[:, 0], pixels[:, 1] = numbers % 256, numbers // 256
        fine = numbers * 7 % 100
        labels = {"fine_labels": fine.tolist(), "coarse_labels": (fine // 5).tolist()}
        content = pickle.dumps({"data": pixels, **labels}, protocol=3)
        make_up(monkeypatch, tmp_path, "cifar100", **{name: content})
    few = {"num_clients": 5, "val_fraction": 0.1}
    built = dealt("cifar100", "hierarchical", tmp_path, 1, **few)
    first, second = built.x[:, 0, 0, :2].astype(int).T
    numbers = first + 256 * second
    assert (built.y == numbers * 7 % 100).all()
    assert (numbers[built.train.rows] < 500).all() and (numbers[built.test.rows] >= 500).all()
    assert built.train.sizes.tolist() == [90] * 5 and built.val.sizes.tolist() == [10] * 5
    assert built.test.sizes.tolist() == [20] * 5
    assert (built.mean, built.std) == (cifar100.MEAN, cifar100.STD)


# Section 5.4, angles


def test_multiples_of_90_degrees_are_exact_and_0_is_the_identity():
    x = np.random.default_rng(0).integers(0, 256, (3, 1, 9, 9), np.uint8)
    assert np.array_equal(turn(x, 0), x)
    for angle in (90, 180, 270):
        assert np.array_equal(turn(x, angle), np.rot90(x, angle // 90, axes=(2, 3)))
    for angle in (135, 225, 315):  # 45 degrees more than these
        expected = np.rot90(turn(x, 45), angle // 90, axes=(2, 3))
        assert np.array_equal(turn(x, angle), expected)


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


MNIST = parts_of(np.random.default_rng(1).integers(0, 10, 70_000), 60_000)


def angles_of(partition, parts=MNIST):
    owners = partition.owners(parts, SEED)
    side = partition.side(owners, len(parts.y), SEED)
    return owners, np.stack([np.bincount(side[rows], minlength=8) for rows in owners.train]), side


@pytest.mark.parametrize(("convention", "share"), [("prior", 0.67), ("per_class", 0.34)])
def test_angles_have_the_statistics_of_the_specification(convention, share):
    _, table, _ = angles_of(Angled(100, 1.0, 600, 100, convention, None))
    # The deviation of a client's largest share is below 0.25, of a mean of 100 below 0.025.
    assert largest_share(table) == pytest.approx(share, abs=0.06)
    assert (table.sum(0) > 0).all()


def test_training_and_test_images_are_turned_by_the_same_distribution():
    owners, train, side = angles_of(Angled(100, 1.0, 600, 100, "prior", None))
    test = np.stack([np.bincount(side[rows], minlength=8) for rows in owners.test])
    assert (np.abs(train / 600 - test / 100).sum(1) / 2).mean() < 0.1
    assert (np.abs(train / 600 - np.roll(test, 1, 0) / 100).sum(1) / 2).mean() > 0.5


def test_without_label_skew_labels_are_iid_and_all_images_are_used():
    owners, _, _ = angles_of(Angled(100, 1.0, 600, 100, "prior", None))
    assert sorted(np.concatenate(owners.train)) == list(range(60_000))
    assert sorted(np.concatenate(owners.test)) == list(range(60_000, 70_000))
    # 600 of ten equal classes: 60 each, with a deviation of 7.3; the largest of them about 72.
    assert largest_share(counts(MNIST, owners.train)) < 0.15


def test_with_label_skew_labels_are_those_of_hsu_and_angles_the_same_as_without():
    plain, skewed = (Angled(100, 1.0, 600, 100, "prior", alpha) for alpha in (None, 1.0))
    owners, table, _ = angles_of(skewed)
    assert same(owners, Hsu(100, 1.0, 600, 100).owners(MNIST, SEED))
    assert 0.62 < largest_share(counts(MNIST, owners.train)) < 0.76
    assert np.array_equal(table, angles_of(plain)[1])


def test_an_image_is_turned_by_the_angle_of_its_side_information():
    x, y = digits.read(NOWHERE)[:2]
    known = {image.tobytes(): i for i, image in enumerate(x)}
    built = dealt("digits", "angled", num_clients=10, val_fraction=0.1)
    assert built.side.shape == built.y.shape and set(built.side) <= set(range(8))
    at = {
        turn(x[i : i + 1], angle).tobytes(): (i, number)
        for number, angle in enumerate(ANGLES)
        for i in range(len(x))
    }
    assert len(at) == 8 * len(x) and len(known) == len(x)  # no two are alike
    for row in range(len(built.y)):
        i, number = at[built.x[row].tobytes()]
        assert (built.y[row], built.side[row]) == (y[i], number)


def test_label_alpha_must_be_positive_or_absent():
    with pytest.raises(ConfigError, match="label_alpha must be a positive number, got 0"):
        dealt("digits", "angled", label_alpha=0)


# Section 5.5, permutations


@pytest.fixture(scope="module")
def permuted():
    return Permuted(20, 4, val_fraction=0.1).deal(CIFAR10, SEED).federation()


def test_training_images_are_dealt_once_and_test_images_once_per_cluster(permuted):
    assert (
        permuted.train.sizes.tolist() == [2250] * 20 and permuted.val.sizes.tolist() == [250] * 20
    )
    assert permuted.test.sizes.tolist() == [2000] * 20
    numbers = permuted.x[:, 0, 0, 0]
    fit = np.concatenate([permuted.train.rows, permuted.val.rows])
    assert sorted(numbers[fit]) == list(range(50_000))
    for cluster in range(4):
        clients = np.flatnonzero(permuted.cluster == cluster)
        tests = np.concatenate([permuted.test.of(c) for c in clients])
        assert sorted(numbers[tests]) == list(range(50_000, 60_000))


def test_a_cluster_has_one_permutation_for_all_its_examples_and_no_two_the_same(permuted):
    ways = []
    for client in range(20):
        rows = owned(permuted, client)
        pairs = {*zip(CIFAR10.y[permuted.x[rows, 0, 0, 0]], permuted.y[rows], strict=True)}
        assert len(pairs) == 10 and sorted(new for _, new in pairs) == list(range(10))
        ways.append(tuple(new for _, new in sorted(pairs)))
    for client in range(20):
        for other in range(client):
            together = permuted.cluster[client] == permuted.cluster[other]
            assert (ways[client] == ways[other]) == together


def test_assignments_are_balanced_or_drawn_for_every_client(permuted):
    assert np.bincount(permuted.cluster).tolist() == [5] * 4
    assert sorted(permuted.cluster.tolist()) != permuted.cluster.tolist()
    drawn = Permuted(4000, 4, "iid", 1, 1).clusters(SEED)
    # 1,000 each, with a deviation of 27.
    assert np.bincount(drawn) == pytest.approx([1000] * 4, abs=110)
    assert len(set(np.bincount(drawn))) > 1


def test_with_drawn_clusters_every_cluster_is_still_tested_on_the_whole_test_set():
    built = Permuted(6, 4, "iid", 50).deal(CIFAR10, SEED).federation()
    sizes = np.bincount(built.cluster, minlength=4)
    assert built.test.sizes.tolist() == [10_000 // sizes[c] for c in built.cluster]
    assert built.train.sizes.tolist() == [50] * 6


def test_there_are_as_many_permutations_as_clusters_even_if_one_is_drawn_twice():
    ways = Permuted(6, 6, "balanced", None, None).permutations(3, SEED)  # all there are
    assert len({tuple(way) for way in ways}) == 6
    assert (np.sort(ways, axis=1) == np.arange(3)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_clusters": 0}, "num_clusters must be an integer of at least 1, got 0"),
        ({"num_clusters": 3}, "num_clients must be a multiple of the 3 clusters .* got 20"),
        (
            {"num_clusters": 21, "assignment": "iid"},
            "num_clusters must be at most the 20 clients, got 21",
        ),
        ({"assignment": "random"}, "no assignment 'random'; choose one of balanced, iid"),
        ({"train_examples": 0}, "train_examples must be"),
    ],
)
def test_permutations_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        dealt("cifar10", "permuted", **change)


def test_permuted_clients_need_enough_examples():
    with pytest.raises(ConfigError, match="1352 train examples cannot be dealt to 20 .* with 68"):
        dealt("digits", "permuted", train_examples=68)


# Section 5.6, two shards


def test_leftovers_are_appended_to_the_first_shards_of_a_class():
    # Class 0 has 7 training examples and 2 shards: 0 2 4 and the left-over 12, then 6 8 10.
    labels = [*np.arange(12) % 2, 0, *[1] * 2, *np.repeat(np.arange(2, 10), 2)]
    test = np.repeat(np.arange(10), 2)
    parts = parts_of([*labels, *test], len(labels))
    owners = TwoShard(10).owners(parts, SEED)
    shards = {tuple(rows[parts.y[rows] == 0].tolist()) for rows in owners.train} - {()}
    assert shards in (
        {(0, 2, 4, 12), (6, 8, 10)},
        {(0, 2, 4, 12, 6, 8, 10)},
        {(6, 8, 10, 0, 2, 4, 12)},
    )
    assert sorted(np.concatenate(owners.train)) == list(range(len(labels)))


def test_a_client_has_two_shards_of_the_same_classes_in_both_parts():
    owners = TwoShard(100).owners(CIFAR10, SEED)
    train, test = counts(CIFAR10, owners.train), counts(CIFAR10, owners.test)
    assert set(train.ravel()) == {0, 250, 500} and set(test.ravel()) == {0, 50, 100}
    assert np.array_equal(train, 5 * test)
    assert (train.sum(1) == 500).all()
    # Two of 200 labels, 20 alike: both the same with a chance of 19/199, so for 9.5 clients.
    assert 1 <= (train == 500).sum() <= 25
    assert sorted(np.concatenate(owners.train)) == list(range(50_000))
    assert sorted(np.concatenate(owners.test)) == list(range(50_000, 60_000))


def test_shards_are_cut_in_the_order_of_the_data_set_and_dealt_at_random():
    owners = TwoShard(100).owners(CIFAR10, SEED)
    firsts = set()
    for rows in owners.train:
        for shard in np.split(rows, 2):
            # Every tenth image is of the class, and 250 of them are a shard.
            assert np.array_equal(np.diff(shard), np.full(249, 10))
            firsts.add(shard[0] // 2500)
    assert firsts == set(range(20))


def test_a_tenth_of_the_training_part_is_held_out():
    built = dealt("digits", "two_shard", val_fraction=0.1)
    whole = dealt("digits", "two_shard")
    assert (built.train.sizes + built.val.sizes).tolist() == whole.train.sizes.tolist()
    assert built.val.sizes.tolist() == [int(0.1 * n + 0.5) for n in whole.train.sizes]
    assert len(built.x) == 1797


@pytest.mark.parametrize("dataset", ["mnist", "digits"])
def test_classes_must_have_as_many_shards(dataset):
    with pytest.raises(ConfigError, match="num_clients must be a multiple of 5, .* got 12"):
        dealt(dataset, "two_shard", num_clients=12)


def test_more_shards_than_examples_are_an_error():
    with pytest.raises(ConfigError, match=r"\d+ test examples of a class cannot be cut into 60"):
        dealt("digits", "two_shard", num_clients=300)


# Raw files, made up and official


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """MNIST and CIFAR-10 with a few numbered images."""
    for name, num, first in (("train", 200, 0), ("test", 40, 200)):
        x, y = images(num, first)
        contents = {f"{name}_images": idx(x), f"{name}_labels": idx(y)}
        make_up(monkeypatch, tmp_path, "mnist", **contents)
    make_up_cifar10(monkeypatch, tmp_path, 40)
    return tmp_path


FEW = {"num_clients": 4, "train_examples": 20, "test_examples": 5, "val_fraction": 0.1}


@pytest.mark.parametrize(
    ("dataset", "kind", "fields"),
    [
        ("cifar10", "hsu", FEW),
        ("cifar10", "permuted", {**FEW, "num_clusters": 1}),
        ("mnist", "two_shard", {"num_clients": 5}),
    ],
)
def test_official_training_images_are_for_training_and_test_images_for_testing(
    raw, dataset, kind, fields
):
    built = dealt(dataset, kind, raw, 1, **fields)
    number = built.x[:, 0, 0, 0].astype(int)
    assert (number[built.train.rows] < 200).all() and (number[built.val.rows] < 200).all()
    assert (number[built.test.rows] >= 200).all() and len(built.test.rows)
    # One permutation at most, so a label is a function of the class, which the number ends in.
    pairs = {*zip(number % 10, built.y, strict=True)}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs}) > 5


def test_mnist_is_scaled_to_the_interval_from_0_to_1_and_cifar10_standardised(raw):
    for kind, fields in (("angled", FEW), ("two_shard", {"num_clients": 5})):
        built = dealt("mnist", kind, raw, 1, **fields)
        assert (built.mean, built.std) == ((0.0,), (1.0,))
        assert built.x.dtype == np.uint8 and built.x.shape[1:] == (1, 28, 28)
    built = dealt("cifar10", "hsu", raw, 1, **FEW)
    assert built.mean == (0.4915, 0.4822, 0.4466) and built.std == (0.2470, 0.2435, 0.2616)


@pytest.mark.slow
@needs("cifar10")
def test_the_official_cifar10_gives_the_clients_of_the_specification():
    built = dealt("cifar10", "hsu", REAL_RAW, val_fraction=0.1)
    assert built.train.sizes.tolist() == [450] * 100 and built.val.sizes.tolist() == [50] * 100
    assert built.test.sizes.tolist() == [100] * 100
    assert np.bincount(built.y).tolist() == [6000] * 10
    rows = [np.concatenate([built.train.of(c), built.val.of(c)]) for c in range(100)]
    table = counts(built, rows)
    assert 0.62 < largest_share(table) < 0.76
    assert 3.9 < (table > 0).sum(1).mean() < 5.4
    built = dealt("cifar10", "permuted", REAL_RAW)
    assert built.train.sizes.tolist() == [2500] * 20 and built.test.sizes.tolist() == [2000] * 20


@pytest.mark.slow
@needs("mnist")
def test_the_official_mnist_gives_the_clients_of_the_specification():
    built = dealt("mnist", "two_shard", REAL_RAW, val_fraction=0.1)
    sizes = built.train.sizes + built.val.sizes
    # Two of the 20 shards of classes of 5,421 to 6,742 training images, 892 to 1,135 test images.
    assert 2 * 271 <= sizes.min() and sizes.max() <= 2 * 338 and sizes.sum() == 60_000
    assert 2 * 44 <= built.test.sizes.min() and built.test.sizes.max() <= 2 * 57
    for label_alpha in (None, 1.0):
        built = dealt("mnist", "angled", REAL_RAW, label_alpha=label_alpha)
        assert built.train.sizes.tolist() == [600] * 100
        assert built.test.sizes.tolist() == [100] * 100
        # Turning keeps the ink that stays inside: all of it, but for the corners.
        assert built.x.mean() / 255 == pytest.approx(0.1309, abs=1e-3)


@needs("cifar100")
def test_the_official_cifar100_gives_the_clients_of_the_specification():
    built = dealt("cifar100", "hierarchical", REAL_RAW)
    assert built.train.sizes.tolist() == [100] * 500 and built.test.sizes.tolist() == [20] * 500
    fine = counts(built, [built.train.of(c) for c in range(500)])
    assert 19 < (fine > 0).sum(1).mean() < 25
