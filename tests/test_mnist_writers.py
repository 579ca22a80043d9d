"""MNIST by writer: who wrote which digit, according to QMNIST's labels."""

import numpy as np
import pytest
from data_fixtures import NOWHERE, REAL_RAW, federation, idx, idx_int, images, make_up, needs

from fedlib.data import downloads
from fedlib.errors import ConfigError, DataError

CUT = {"unseen": "test_part", "train_fraction": 0.8}
NUM = {"train": 60, "test": 20}


def by_writer(raw, source="qmnist", **fields):
    return federation("mnist", "writer", raw, params={"source": source}, **{**CUT, **fields})


def described(labels, first_writer, writers, beyond=0):
    """Rows of QMNIST's eight columns; `beyond` more than there are labels."""
    rows = np.zeros((len(labels) + beyond, 8), int)
    rows[: len(labels), 0] = labels
    rows[:, 2] = first_writer + np.arange(len(rows)) % writers
    return rows


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """60 training images by writers 100 to 105, 20 test images by writers 2000 to 2003."""

    for name, first in (("train", 0), ("test", 60)):
        x, y = images(NUM[name], first)
        rows = described(y, 100, 6) if name == "train" else described(y, 2000, 4, beyond=30)
        contents = {"images": idx(x), "labels": idx(y), "writers": idx_int(rows)}
        named = {f"{name}_{kind}": content for kind, content in contents.items()}
        make_up(monkeypatch, tmp_path, "mnist", **named)
    return tmp_path


def test_writers_of_the_training_set_are_seen_and_those_of_the_test_set_unseen(raw):
    built = by_writer(raw)
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (6, 4)
    numbers = built.x[:, 0, 0, 0]
    for client in range(10):
        rows = np.concatenate([built.train.of(client), built.test.of(client)])
        own = numbers[rows]
        # The images of a writer are 6, or 4, apart.
        modulus, num = (6, 10) if own.min() < 60 else (4, 5)
        assert len(rows) == num and len(set((own % modulus).tolist())) == 1
        assert (own.min() >= 60) == (client in built.ids("unseen"))


def test_unseen_writers_can_be_drawn_from_all(raw):
    built = by_writer(raw, unseen="drawn", unseen_fraction=0.3)
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (7, 3)


def test_the_files_that_name_the_writers_are_asked_for_only_where_they_are_needed():
    assert len(downloads.files("mnist")) == 4
    assert list(downloads.files("mnist", "qmnist"))[4:] == ["train_writers", "test_writers"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "kmnist"}, "mnist has no source 'kmnist'; choose one of mnist, qmnist"),
        ({"source": "mnist"}, "writer needs natural clients, .* which mnist from source mnist"),
        ({"unseen": "some"}, "no unseen 'some'; choose one of drawn, last, test_part"),
        ({"unseen_fraction": 0.2}, "'test_part' needs unseen_fraction 0, got 0.2"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        by_writer(NOWHERE, **change)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (described(np.arange(60) // 6, 100, 6), "names other classes than the labels of MNIST"),
        (described(np.arange(59) % 10, 100, 6), r"has shape \(59, 8\), too small for 60 rows"),
        (described(np.arange(60) % 10, 100, 6)[:, :2], r"shape \(60, 2\), too small"),
    ],
)
def test_writers_of_other_images_are_refused(raw, monkeypatch, rows, message):
    make_up(monkeypatch, raw, "mnist", train_writers=idx_int(rows))
    with pytest.raises(DataError, match=message):
        by_writer(raw)


@needs("mnist", "qmnist")
def test_the_official_files_name_539_seen_and_297_unseen_writers():
    built = by_writer(REAL_RAW)
    sizes = built.train.sizes + built.test.sizes
    seen, unseen = (sizes[built.ids(group)] for group in ("seen", "unseen"))
    assert (len(seen), seen.sum(), seen.min(), seen.max()) == (539, 60_000, 19, 131)
    assert (len(unseen), unseen.sum(), unseen.min(), unseen.max()) == (297, 10_000, 8, 130)
