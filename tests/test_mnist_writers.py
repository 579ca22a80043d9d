"""MNIST by writer: who wrote which digit, according to QMNIST's labels."""

from pathlib import Path

import numpy as np
import pytest
from data_fixtures import REAL_RAW, idx, idx_int, images, needs, official, put

from fedlib.data import mnist
from fedlib.errors import ConfigError, DataError

CUT = {
    "partition": {"kind": "writer"},
    "source": "qmnist",
    "unseen": "test_writers",
    "train_fraction": 0.8,
    "seed": 1,
}
NUM = {"TRAIN": 60, "TEST": 20}


def described(labels, first_writer, writers, beyond=0):
    """Rows of QMNIST's eight columns; `beyond` more than there are labels."""
    rows = np.zeros((len(labels) + beyond, 8), int)
    rows[: len(labels), 0] = labels
    rows[:, 2] = first_writer + np.arange(len(rows)) % writers
    return rows


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """60 training images by writers 100 to 105, 20 test images by writers 2000 to 2003."""

    def replace(name, content):
        file = official(getattr(mnist, name).path, content)
        put(tmp_path, file, content)
        monkeypatch.setattr(mnist, name, file)

    for name, first in (("TRAIN", 0), ("TEST", 60)):
        x, y = images(NUM[name], first)
        replace(f"{name}_IMAGES", idx(x))
        replace(f"{name}_LABELS", idx(y))
        rows = described(y, 100, 6) if name == "TRAIN" else described(y, 2000, 4, beyond=30)
        replace(f"{name}_WRITERS", idx_int(rows))
    return tmp_path


def test_writers_of_the_training_set_are_seen_and_those_of_the_test_set_unseen(raw):
    built = mnist.build(raw, **CUT)
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
    built = mnist.build(raw, **{**CUT, "unseen": "fraction", "unseen_fraction": 0.3})
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (7, 3)


def test_the_files_that_name_the_writers_are_asked_for_only_where_they_are_needed():
    assert len(mnist.sources()) == 4
    assert mnist.sources(source="qmnist")[4:] == (mnist.TRAIN_WRITERS, mnist.TEST_WRITERS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "kmnist"}, "no MNIST source 'kmnist'; choose one of mnist, qmnist"),
        ({"source": "mnist"}, "partition writer needs source 'qmnist', got 'mnist'"),
        ({"unseen": "some"}, "no unseen clients 'some'; choose one of fraction, test_writers"),
        ({"unseen_fraction": 0.2}, "needs partition writer and unseen_fraction 0, got .* 0.2"),
        ({"partition": {"kind": "iid", "num_clients": 2}}, "needs partition writer .* got iid"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        mnist.build(Path("/no/such/folder"), **{**CUT, **change})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (described(np.arange(60) // 6, 100, 6), "names other classes than the labels of MNIST"),
        (described(np.arange(59) % 10, 100, 6), r"has shape \(59, 8\), too small for 60 rows"),
        (described(np.arange(60) % 10, 100, 6)[:, :2], r"shape \(60, 2\), too small"),
    ],
)
def test_writers_of_other_images_are_refused(raw, monkeypatch, rows, message):
    file = official(mnist.TRAIN_WRITERS.path, idx_int(rows))
    put(raw, file, idx_int(rows))
    monkeypatch.setattr(mnist, "TRAIN_WRITERS", file)
    with pytest.raises(DataError, match=message):
        mnist.build(raw, **CUT)


@needs(*mnist.sources(source="qmnist"))
def test_the_official_files_name_539_seen_and_297_unseen_writers():
    built = mnist.build(REAL_RAW, **CUT)
    sizes = built.train.sizes + built.test.sizes
    seen, unseen = (sizes[built.ids(group)] for group in ("seen", "unseen"))
    assert (len(seen), seen.sum(), seen.min(), seen.max()) == (539, 60_000, 19, 131)
    assert (len(unseen), unseen.sum(), unseen.min(), unseen.max()) == (297, 10_000, 8, 130)
