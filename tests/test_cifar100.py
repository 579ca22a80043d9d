"""CIFAR-100: from the official files, or made-up ones, to clients of the two-stage Pachinko."""

import hashlib
import json
import pickle

import numpy as np
import pytest
from data_fixtures import REAL_RAW, federation, make_up, needs

from fedlib.data import downloads
from fedlib.data.sources import cifar100
from fedlib.errors import DataError

CUT = {
    "num_clients": 6,
    "alpha": 0.4,
    "beta": 10.0,
    "train_fraction": 0.8,
    "unseen_fraction": 0.2,
    "seed": 12345,
}


def batch(num: int, first: int = 0) -> bytes:
    """A batch whose images are numbered by their first two bytes; class f has superclass f // 5."""
    data = np.zeros((num, 3072), np.uint8)
    numbers = np.arange(first, first + num)
    data[:, 0], data[:, 1] = numbers % 256, numbers // 256
    fine = (numbers * 7) % 100
    labels = {"fine_labels": fine.tolist(), "coarse_labels": (fine // 5).tolist()}
    return pickle.dumps({"data": data, **labels}, protocol=3)


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Made-up files in place of the official ones: 500 training and 100 test images."""
    make_up(monkeypatch, tmp_path, "cifar100", train=batch(500), test=batch(100, first=500))
    return tmp_path


def test_the_pool_is_the_training_set_and_then_the_test_set(raw):
    built = federation("cifar100", "pachinko", raw, **CUT)
    assert built.x.shape == (600, 3, 32, 32) and built.x.dtype == np.uint8
    first, second = built.x[:, 0, 0, :2].astype(int).T
    numbers = first + 256 * second
    assert numbers.tolist() == list(range(600))
    assert built.y.tolist() == [(7 * number) % 100 for number in range(600)]


def test_every_client_has_as_many_images_and_is_split_80_to_20(raw):
    built = federation("cifar100", "pachinko", raw, **CUT)
    assert built.train.sizes.tolist() == [80] * 6
    assert built.test.sizes.tolist() == [20] * 6
    assert len(built.ids("unseen")) == 2  # ceil(0.2 * 6)


def test_the_hierarchy_is_read_off_the_labels():
    fine = np.arange(300) % 100
    assert cifar100.hierarchy(fine, fine % 20).tolist() == [f % 20 for f in range(100)]


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [(np.arange(200) % 100, np.arange(200) // 5), (np.arange(99), np.arange(99) // 5)],
    ids=["two superclasses of a class", "a class without images"],
)
def test_labels_that_are_no_hierarchy_are_refused(fine, coarse):
    with pytest.raises(DataError, match="every class from 0 to 99 must have images, all of one"):
        cifar100.hierarchy(fine, coarse)


def test_a_file_that_is_not_the_official_one_is_refused(raw):
    path = raw / downloads.files("cifar100")["test"].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{path} has .* the official file has"):
        federation("cifar100", "pachinko", raw, **CUT)


@needs("cifar100")
def test_the_official_files_give_the_clients_of_the_paper():
    built = federation("cifar100", "pachinko", REAL_RAW, **{**CUT, "num_clients": 100})
    assert np.bincount(built.y).tolist() == [600] * 100
    assert built.train.sizes.tolist() == [480] * 100  # section 3.2: 600 per client
    assert (len(built.ids("seen")), len(built.ids("unseen"))) == (80, 20)


@needs("cifar100")
def test_the_official_files_have_the_hierarchy_of_the_specification():
    coarse = cifar100.read(REAL_RAW).coarse
    found = json.dumps(coarse.tolist(), separators=(",", ":"))
    assert hashlib.sha256(found.encode()).hexdigest().startswith("dfdc0e872df7a783")
