"""Data sets: from raw files to examples and clients. Section numbers: pFedMM specification."""

import hashlib
import inspect
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from data_fixtures import (
    NOWHERE,
    REAL_RAW,
    cifar100_batch,
    federation,
    idx,
    idx_int,
    images,
    make_up,
    make_up_cifar10,
    make_up_sent140,
    make_up_yelp,
    needs,
    owned,
    put,
)
from support import Payload
from test_partitions import KINDS

from fedlib.data import cifar_batch, downloads, sources
from fedlib.data.build import build
from fedlib.data.examples import FEATURES, TEST, TRAIN
from fedlib.data.sources import cifar100, digits, synthetic
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation

CUT = {"num_clients": 4, "train_fraction": 0.8, "unseen_fraction": 0.25}
SYNTHETIC = {"num_clients": 5, "dim": 4, "test_size": 30}
DIGITS = {"dataset": "digits", "params": {}, "partition": {"kind": "iid", **CUT}, "seed": 1}


@pytest.fixture
def raw(tmp_path, monkeypatch) -> Path:
    """Made-up raw files of every data set that is tested here, in place of the official ones."""
    folder = tmp_path / "raw"
    for name, num, first in (("train", 60, 0), ("test", 20, 60)):
        for dataset, classes in (("mnist", 10), ("emnist", 62)):
            x, y = images(num, first, classes)
            contents = {f"{name}_images": idx(x), f"{name}_labels": idx(y)}
            make_up(monkeypatch, folder, dataset, **contents)
    make_up_cifar10(monkeypatch, folder, 20)
    batches = {"train": cifar100_batch(500), "test": cifar100_batch(100, first=500)}
    make_up(monkeypatch, folder, "cifar100", **batches)
    tweets = [(label, f"i am {label}") for label in "04" for _ in range(60)]
    make_up_sent140(monkeypatch, folder, tweets, tweets[30:90])
    reviews = [(label, f"good {label}") for label in "12345" for _ in range(30)]
    make_up_yelp(monkeypatch, folder, reviews, reviews[::3])
    return folder


def iid(dataset: str, raw: Path, **params) -> Federation:
    """The data set, dealt evenly."""
    return federation(dataset, "iid", raw, params=params, **CUT)


def numbers(x: np.ndarray) -> list[int]:
    """The numbers that `images` and the batches of CIFAR have in their first two pixels."""
    first = x[:, 0, 0, :2].astype(int)
    return (first[:, 0] + 256 * first[:, 1]).tolist()


# The registry


def test_every_data_set_has_what_the_workflow_asks_of_it():
    for name in sources.NAMES:
        classes, local = sources.load(name).NUM_CLASSES, downloads.table(name).local
        assert classes is None if local else classes > 1
        for source in downloads.table(name).sources or [None]:
            assert set(sources.has(name, source)) <= set(FEATURES)
            assert all(file.dataset == name for file in downloads.files(name, source).values())
    for name in downloads.weights():
        assert all(file.dataset == name for file in downloads.files(name).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "mnits"}, "no data set 'mnits'; choose one of cifar10, "),
        ({"partition": "iid"}, "a partition is declared as {'kind': 'iid', ...}, got 'iid'"),
        ({"seed": -1}, "seed must be in .*, got -1"),
        ({"more": 1}, "a data spec has the keys dataset, params, partition, seed, and may have re"),
        ({"dataset": "shakespeare"}, "shakespeare needs the parameter 'train_fraction'"),
        (
            {"dataset": "femnist", "params": {"scaling": "none"}},
            "no scaling 'none'; choose one of standard, unit, symmetric",
        ),
        *(
            (
                {"dataset": name, "params": {"alphabet": 1}},
                f"data set {name} has no parameter 'alphabet'; it takes",
            )
            for name in sources.NAMES
        ),
        ({"dataset": "emnist", "params": {"source": "train"}}, "emnist has no source .*all, te"),
        ({"dataset": "emnist", "params": {"source": ["all"]}}, "source must be a word, got"),
        ({"dataset": "yelp", "params": {"length": 2}}, "length must be at least 3, got 2"),
        ({"dataset": "yelp", "params": {"test_per_class": -1}}, "at least 0, got -1"),
        ({"dataset": "synthetic", "params": {"alpha": 0}}, "alpha must be above 0, got 0"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        build(DIGITS | change, NOWHERE)


@pytest.mark.parametrize(
    ("dataset", "source", "kind", "message"),
    [
        ("cifar10", None, "pachinko", "coarse labels, which cifar10 does not have"),
        ("femnist", "nist", "writer_parts", "an official .*, which femnist from source nist does"),
        ("mnist", None, "writer", "natural clients, such as writers, which mnist does not have"),
        ("cifar100", None, "two_shard", "ten classes, which cifar100"),
        ("synthetic", None, "rotated", "images, which synthetic does not have"),
    ],
)
def test_what_a_data_set_lacks_for_a_partition_is_said_before_a_file_is_read(
    dataset, source, kind, message
):
    params, partition = {"source": source} if source else {}, {"kind": kind, **KINDS[kind]}
    declared = {"dataset": dataset, "params": params, "partition": partition, "seed": 1}
    with pytest.raises(ConfigError, match=f"{kind} needs {message}"):
        build(declared, NOWHERE)


READABLE = ["cifar10", "cifar100", "digits", "emnist", "mnist", "sent140", "synthetic", "yelp"]


@pytest.mark.parametrize("dataset", READABLE)
def test_what_a_source_says_it_has_is_what_its_examples_come_with(raw, dataset):
    read, params = sources.load(dataset).read, SYNTHETIC if dataset == "synthetic" else {}
    drawn = {"seed": 1} if "seed" in inspect.signature(read).parameters else {}
    examples = read(raw, **drawn, **params)
    assert examples.features == {*sources.has(dataset)}
    assert examples.y.ndim == 1 and examples.y.max() < examples.num_classes
    parts = examples.by_part()
    assert (np.diff(parts.part.astype(int)) >= 0).all() and 0 < parts.num_train < len(parts.y)
    # A partition that asks for no more deals it.
    built = build({**DIGITS, "dataset": dataset, "params": params}, raw)
    assert built.num_clients == 4 and len(built.x) == len(examples.x)


# Made-up raw files


@pytest.mark.parametrize(
    ("dataset", "num_train", "shape", "classes", "step"),
    [
        ("cifar10", 100, (120, 3, 32, 32), 10, 1),
        ("cifar100", 500, (600, 3, 32, 32), 100, 7),
        ("emnist", 60, (80, 1, 28, 28), 62, 1),
        ("mnist", 60, (80, 1, 28, 28), 10, 1),
    ],
)
def test_the_training_files_come_first_and_the_test_files_are_the_test_part(
    raw, dataset, num_train, shape, classes, step
):
    examples = sources.load(dataset).read(raw)
    assert examples.x.shape == shape and examples.x.dtype == np.uint8
    assert numbers(examples.x) == list(range(len(examples.x)))
    assert examples.y.tolist() == [step * i % classes for i in range(len(examples.x))]
    assert (examples.num_classes, examples.num_train) == (classes, num_train)
    assert (examples.part[:num_train] == TRAIN).all() and (examples.part[num_train:] == TEST).all()
    if dataset == "cifar100":
        assert examples.coarse.tolist() == [label // 5 for label in range(100)]


def test_cifar10_keeps_channels_rows_and_columns_apart():
    pixels = np.zeros((1, 3, 32, 32), np.uint8)
    pixels[0, 2, 5, 7] = 9  # blue, row 5, column 7
    content = pickle.dumps({"data": pixels.reshape(1, 3072), "labels": [3]}, protocol=3)
    x, y = cifar_batch.parse(content, "labels")
    assert np.argwhere(x).tolist() == [[0, 2, 5, 7]] and y.tolist() == [3]


def test_emnist_can_be_its_test_split_alone_and_asks_for_no_other_file(raw):
    assert list(downloads.files("emnist", "test")) == ["test_images", "test_labels"]
    assert len(downloads.files("emnist")) == 4
    for key in ("train_images", "train_labels"):
        (raw / downloads.files("emnist")[key].path).unlink()
    assert numbers(iid("emnist", raw, source="test").x) == list(range(60, 80))
    part = sources.load("emnist").read(raw, source="test").part
    assert np.flatnonzero(part == TEST).tolist() == [5, 11, 17]  # every sixth


@pytest.mark.parametrize("dataset", [name for name in READABLE if downloads.files(name)])
def test_a_raw_file_that_is_missing_truncated_or_changed_is_named(dataset, raw):
    for file in downloads.files(dataset).values():
        path, content = raw / file.path, (raw / file.path).read_bytes()
        path.unlink()
        with pytest.raises(DataError, match=f"{path} does not exist; run the download stage"):
            iid(dataset, raw)
        for wrong, message in (
            (content[:-1], r"[\d,]+ bytes, the official file has"),
            (content[:-1] + b"?", "sha256 .* delete it and run the download"),
        ):
            path.write_bytes(wrong)
            with pytest.raises(DataError, match=f"{path} has {message}"):
                iid(dataset, raw)
        path.write_bytes(content)


def test_a_batch_is_not_unpickled_before_its_checksum_matches(raw, tmp_path, monkeypatch):
    put(raw, downloads.files("cifar10")["data_batch_1"], pickle.dumps(Payload(tmp_path / "evil")))
    monkeypatch.setattr(cifar_batch, "parse", lambda *args: pytest.fail("opened"))
    with pytest.raises(DataError, match="data_batch_1 has .* the official file has"):
        iid("cifar10", raw)


def test_a_batch_that_calls_anything_is_refused(tmp_path):
    content = pickle.dumps({"data": Payload(tmp_path / "evil"), "labels": []})
    with pytest.raises(DataError, match="a batch of CIFAR asks for .*(touch|getattr)"):
        cifar_batch.parse(content, "labels")
    assert not (tmp_path / "evil").exists()


# MNIST by writer: who wrote which digit, according to QMNIST's labels


def by_writer(raw, **fields):
    fields = {"unseen": "test_part", "train_fraction": 0.8} | fields
    return federation("mnist", "writer", raw, params={"source": "qmnist"}, **fields)


def described(labels, first_writer, writers, beyond=0):
    """Rows of QMNIST's eight columns; `beyond` more than there are labels."""
    rows = np.zeros((len(labels) + beyond, 8), int)
    rows[: len(labels), 0] = labels
    rows[:, 2] = first_writer + np.arange(len(rows)) % writers
    return rows


@pytest.fixture
def qmnist(raw, monkeypatch):
    """60 training images by writers 100 to 105, 20 test images by writers 2000 to 2003."""
    train = described(np.arange(60) % 10, 100, 6)
    test = described(np.arange(60, 80) % 10, 2000, 4, beyond=30)
    contents = {"train_writers": idx_int(train), "test_writers": idx_int(test)}
    make_up(monkeypatch, raw, "mnist", **contents)
    return raw


def test_writers_of_the_training_set_are_seen_and_those_of_the_test_set_unseen(qmnist):
    built = by_writer(qmnist)
    # The images of a writer are 6, or 4, apart.
    for group, first, writers, num in (("seen", 0, 6, 10), ("unseen", 60, 4, 5)):
        both = zip(owned(built, "train", group), owned(built, "test", group), strict=True)
        found = [sorted(numbers(built.x[np.concatenate(rows)])) for rows in both]
        expected = [list(range(first + w, first + writers * num, writers)) for w in range(writers)]
        assert sorted(found) == expected


# Data sets without raw files


def test_digits_are_the_images_of_scikit_learn_and_every_fourth_of_a_class_is_for_testing():
    from sklearn.datasets import load_digits

    examples = digits.read(NOWHERE)
    assert examples.x.shape == (1797, 1, 8, 8) and examples.x.dtype == np.uint8
    assert np.abs(examples.x[:, 0] - load_digits().images * 255 / 16).max() <= 0.5
    assert examples.y.tolist() == load_digits().target.tolist()
    tested = [np.flatnonzero(examples.y == label)[3::4] for label in range(10)]
    assert np.flatnonzero(examples.part == TEST).tolist() == sorted(np.concatenate(tested))


def test_synthetic_sizes_are_the_official_ones():
    sizes = synthetic.train_sizes(np.random.RandomState(12345), 300)  # section 8.1
    assert sizes[:12].tolist() == [86, 192, 69, 67, 1000, 936, 115, 145, 304, 710, 459, 54]
    assert (sizes.sum(), (sizes == 1000).sum()) == (67_758, 17)


def made_up(params: dict, seed: int = 12345, **fields) -> Federation:
    """The synthetic data, and who it belongs to."""
    return federation("synthetic", "natural", seed=seed, params=params, **fields)


def test_a_natural_client_keeps_its_order_unless_a_validation_part_is_drawn():
    as_given, drawn = (made_up(SYNTHETIC, val_fraction=fraction) for fraction in (None, 0.0))
    for client in range(5):
        rows = as_given.train.of(client)
        assert np.array_equal(rows, np.sort(rows))
        assert np.array_equal(np.sort(drawn.train.of(client)), rows)
    assert not np.array_equal(drawn.train.rows, as_given.train.rows)


def test_synthetic_labels_are_those_of_their_component_without_noise(monkeypatch):
    monkeypatch.setattr(synthetic, "NOISE", 0.0)
    built = made_up({**SYNTHETIC, "num_components": 1}, seed=7)
    draw = np.random.RandomState(7)  # the order of draws of section 3.10
    draw.lognormal(4, 2, 5)
    for _ in range(5):
        draw.dirichlet([0.4])
    theta = draw.uniform(-1, 1, (1, 4))[0]
    sure = np.abs(built.x @ theta) > 1e-5  # float32 inputs, float64 labels
    assert sure.mean() > 0.99
    assert np.array_equal(built.y[sure], (built.x @ theta > 0)[sure])


# The official files, where they are


@needs("mnist", "qmnist")
def test_the_official_files_name_539_seen_and_297_unseen_writers():
    built = by_writer(REAL_RAW)
    sizes = built.train.sizes + built.test.sizes
    seen, unseen = (sizes[built.ids(group)] for group in ("seen", "unseen"))
    assert (len(seen), seen.sum(), seen.min(), seen.max()) == (539, 60_000, 19, 131)
    assert (len(unseen), unseen.sum(), unseen.min(), unseen.max()) == (297, 10_000, 8, 130)


@needs("cifar100")
def test_the_official_cifar100_gives_the_clients_and_the_hierarchy_of_the_paper():
    fields = {"num_clients": 100, "alpha": 0.4, "beta": 10.0, "unseen_fraction": 0.2}
    built = federation("cifar100", "pachinko", REAL_RAW, train_fraction=0.8, **fields)
    assert np.bincount(built.y).tolist() == [600] * 100
    assert built.train.sizes.tolist() == [480] * 100  # section 3.2: 600 per client
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (80, 20)
    coarse = json.dumps(cifar100.read(REAL_RAW).coarse.tolist(), separators=(",", ":"))
    assert hashlib.sha256(coarse.encode()).hexdigest().startswith("dfdc0e872df7a783")
