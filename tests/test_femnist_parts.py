"""FEMNIST by the writers and parts of its publishers. Sections: fedlib/papers/fedmix/README.md."""

import dataclasses
import json
import tarfile

import h5py
import numpy as np
import pytest
from data_fixtures import REAL_RAW, federation, needs, official

from fedlib.data import downloads
from fedlib.data.download import fetch
from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.partitions.writer_parts import WriterParts
from fedlib.errors import ConfigError, DataError

FILES = downloads.table("femnist").files


def with_parts(raw, seed=1, source="tff", **fields):
    read = {"source": source, "scaling": "unit"}
    return federation("femnist", "writer_parts", raw, seed=seed, params=read, **fields)


def tff_file(raw, file, writers: dict[str, list[int]]) -> None:
    """A file as TFF distributes it; an image is numbered by its first pixel."""
    path = raw / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as content:
        for writer, numbers in writers.items():
            pixels = np.ones((len(numbers), 28, 28), np.float32)  # 1 is paper
            pixels[:, 0, 0] = np.array(numbers, np.float32) / np.float32(255)
            content[f"examples/{writer}/pixels"] = pixels
            content[f"examples/{writer}/label"] = np.array(numbers, np.int32) % 62


@pytest.fixture
def tff(tmp_path):
    """Three writers; a fourth has no test images."""
    writers = {"f0000_14": [1, 2, 3, 4], "f0001_41": [5, 6], "f0002_01": [7, 8, 9], "z": [10]}
    tff_file(tmp_path, FILES["tff_train"], writers)
    tests = {"f0000_14": [101], "f0001_41": [102, 103], "f0002_01": [104]}
    tff_file(tmp_path, FILES["tff_test"], tests)
    return tmp_path


def numbers_of(built, split) -> set[tuple[int, ...]]:
    """The numbers of each client's images."""
    rows = (built.split(split).of(c) for c in range(built.num_clients))
    return {tuple(sorted(built.x[r, 0, 0, 0].tolist())) for r in rows}


def test_a_writer_keeps_the_training_and_test_images_of_tff(tff):
    built = with_parts(tff)
    assert numbers_of(built, "train") == {(1, 2, 3, 4), (5, 6), (7, 8, 9)}
    assert numbers_of(built, "test") == {(101,), (102, 103), (104,)}
    for client in range(3):  # both of one writer
        train, test = (built.x[built.split(s).of(client)][0, 0, 0, 0] for s in ("train", "test"))
        assert (train < 5, train in (5, 6)) == (test == 101, test in (102, 103))
    assert (built.y == built.x[:, 0, 0, 0] % 62).all()
    assert built.x.dtype == np.uint8 and built.x.shape == (13, 1, 28, 28)
    assert (built.x[:, 0, 1:] == 255).all()  # paper stays 1
    assert (built.mean, built.std, built.num_classes) == ((0.0,), (1.0,), 62)


def test_fewer_writers_are_the_first_of_the_same_order(tff):
    everybody, two = (with_parts(tff, num_clients=n) for n in (None, 2))
    assert (everybody.num_clients, two.num_clients) == (3, 2)
    for client in range(2):
        for split in ("train", "test"):
            ours, theirs = (b.x[b.split(split).of(client)] for b in (two, everybody))
            assert np.array_equal(ours, theirs)
    orders = {tuple(with_parts(tff, seed=s).train.sizes) for s in range(50)}
    assert len(orders) == 6  # 3!, all of them


def test_validation_images_are_taken_from_a_writers_training_images(tff):
    whole, held = (with_parts(tff, val_fraction=f) for f in (0.0, 0.5))
    assert sorted(held.val.sizes) == [1, 2, 2]  # halves of 2, 3 and 4, rounded up
    for client in range(3):
        both = np.concatenate([held.train.of(client), held.val.of(client)])
        ours, theirs = held.x[both, 0, 0, 0], whole.x[whole.train.of(client), 0, 0, 0]
        assert sorted(ours) == sorted(theirs)


def test_leafs_writers_keep_their_parts_too(tmp_path):
    for part, writers in (
        ("train", {"a": [1, 2, 3], "b": [4, 5]}),
        ("test", {"b": [6], "a": [7, 8], "c": [9]}),
    ):
        found = {}
        for writer, numbers in writers.items():
            x = np.ones((len(numbers), 784))
            x[:, 0] = np.array(numbers) / 255
            found[writer] = {"x": x.tolist(), "y": numbers}
        path = tmp_path / "femnist/data" / part / "0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"users": list(writers), "user_data": found}))
    built = with_parts(tmp_path, source="leaf")
    assert numbers_of(built, "train") == {(1, 2, 3), (4, 5)}
    assert numbers_of(built, "test") == {(7, 8), (6,)}


def test_each_source_has_its_files_and_none_stands_in_for_the_other(tff):
    names = [list(downloads.files("femnist", source)) for source in ("tff", "leaf")]
    assert names == [["tff_train", "tff_test"], ["leaf_train", "leaf_test"]]
    with pytest.raises(ConfigError, match="which femnist from source nist does not have"):
        with_parts(tff, source="nist")
    with pytest.raises(DataError, match="femnist/data/train has no"):
        with_parts(tff, source="leaf")
    (tff / FILES["tff_test"].path).unlink()
    with pytest.raises(DataError, match="fed_emnist_test.h5 does not exist; run the download"):
        with_parts(tff)


def test_more_writers_than_there_are_is_an_error(tff):
    with pytest.raises(DataError, match="num_clients is 4, but only 3 writers are there"):
        with_parts(tff, num_clients=4)


def test_writers_of_one_part_alone_are_no_clients():
    part = np.array([TRAIN, TRAIN, TEST], np.uint8)
    owner = np.array([0, 0, 1])
    examples = Examples(np.zeros((3, 1)), np.zeros(3, int), 1, part=part, owner=owner, num_owners=2)
    with pytest.raises(DataError, match="no writer has both training and test examples"):
        WriterParts().deal(examples, 1)


def test_files_without_a_common_writer_are_refused(tff):
    tff_file(tff, FILES["tff_test"], {"z2": [1]})
    with pytest.raises(DataError, match="have no writer in common"):
        with_parts(tff)


def test_what_is_not_a_file_of_tff_is_named(tff):
    path = tff / FILES["tff_test"].path
    with h5py.File(path, "r+") as file:
        file["examples/f0001_41/pixels"][0, 0, 0] = 0.5
    with pytest.raises(DataError, match=r"are not the files of TFF.*multiples of 1/255"):
        with_parts(tff)
    with h5py.File(path, "r+") as file:
        del file["examples/f0001_41/label"]
    with pytest.raises(DataError, match=r"are not the files of TFF's Federated EMNIST"):
        with_parts(tff)
    path.write_bytes(b"text")
    with pytest.raises(DataError, match=r"fed_emnist_test.h5 are not the files of TFF"):
        with_parts(tff)


def test_the_files_are_unpacked_from_the_archive(tff, tmp_path):
    archive = tmp_path / "mirror/femnist" / FILES["tff_train"].archive.name
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:bz2") as packed:
        for file in downloads.files("femnist", "tff").values():
            packed.add(tff / file.path, file.member)
    made_up = official(FILES["tff_train"].archive.path, archive.read_bytes())
    files = [
        dataclasses.replace(f, archive=made_up) for f in downloads.files("femnist", "tff").values()
    ]
    other = tmp_path / "other"
    fetch(files, other, mirror=str(archive.parents[1]), report=lambda line: None)
    one, again = (with_parts(raw) for raw in (tff, other))
    assert one.digests == again.digests


# The official files, where they are


@pytest.mark.slow
@needs("femnist", "tff")
def test_the_official_femnist_has_the_counts_of_the_specification():
    built = with_parts(REAL_RAW, seed=7)
    assert built.num_clients == 3400
    assert (len(built.train.rows), len(built.test.rows)) == (671_585, 77_483)


@pytest.mark.slow
@pytest.mark.skipif(
    not list((REAL_RAW / FILES["leaf_train"].path).glob("*.json")),
    reason=f"no LEAF files below {REAL_RAW}",
)
def test_leafs_own_files_give_clients_with_both_parts():
    built = with_parts(REAL_RAW, seed=7, source="leaf", num_clients=50)
    assert built.num_clients == 50
    assert (built.train.sizes > 0).all() and (built.test.sizes > 0).all()
    assert np.median(built.x) == 255  # most of an image is paper
