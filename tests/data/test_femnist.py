"""FEMNIST: by writer, or by the writers and parts of its publishers, from each of its sources."""

import io
import itertools
import json
import zipfile

import h5py
import numpy as np
import pytest
from data_fixtures import REAL_RAW, federation, leaf, needs, numbered, owned, put, zipped
from PIL import Image

from fedlib.data import downloads
from fedlib.data.partitions.writer_parts import WriterParts
from fedlib.data.sources import _femnist_nist as nists
from fedlib.errors import ConfigError, DataError

FILES = downloads.table("femnist").files
PAPER, INK = 255, 0


def by_writer(raw, seed=12345, source="nist", scaling="standard", **fields):
    read = {"source": source, "scaling": scaling}
    fields = {"train_fraction": 0.8, "unseen": "last", **fields}
    return federation("femnist", "writer", raw, seed=seed, params=read, **fields)


def with_parts(raw, seed=1, source="tff", **fields):
    read = {"source": source, "scaling": "unit"}
    return federation("femnist", "writer_parts", raw, seed=seed, params=read, **fields)


def refuse(make, match, raw, **fields):
    """Assert that making the federation fails with these words."""
    with pytest.raises(DataError, match=match):
        make(raw, **fields)


def numbers_of(built, *splits) -> set[tuple[int, ...]]:
    """The numbers of each client's images in these splits, which are their first pixels."""
    rows = zip(*(owned(built, split) for split in splits), strict=True)
    return {tuple(sorted(built.x[np.concatenate(own), 0, 0, 0].tolist())) for own in rows}


# NIST's archives


def png(number: int) -> bytes:
    """A white image of 128 x 128 pixels with a black bar of its own."""
    image = Image.new("RGB", (128, 128), (PAPER,) * 3)
    image.paste((INK,) * 3, (10 + number % 20 * 5, 4 + number // 20 * 4, 120, 100))
    content = io.BytesIO()
    image.save(content, "png")
    return content.getvalue()


def add(nist, file: str, name: str, content: bytes) -> None:
    with zipfile.ZipFile(nist / FILES[file].path, "a") as archive:
        archive.writestr(name, content)


# Writer, and the characters that she wrote: 12 in all, the image of the n-th is png(n).
WRITTEN = {"f0001_01": "5Aa5B", "f0002_01": "zZ", "f0003_02": "0123k"}


@pytest.fixture
def nist(tmp_path):
    """Both archives in NIST's layout, with files that are no images of characters."""
    by_class = {"by_class/35/hsf_0.mit": b"text", "by_class/41/train_41/x.png": b"a copy"}
    by_writer = {"by_write/hsf_0/": b""}
    number = 0
    for writer, characters in WRITTEN.items():
        for character in characters:
            code, content = f"{ord(character):02x}", png(number)
            by_class[f"by_class/{code}/hsf_{number % 3}/hsf_{number:05}.png"] = content
            folder = f"by_write/hsf_{writer[-1]}/{writer}/c{writer[1:]}"
            by_writer[f"{folder}/{number:05}.png"] = content
            number += 1
    # As on NIST's disk: no order that anybody should rely on.
    for file, members in (("by_class", by_class), ("by_writer", by_writer)):
        put(tmp_path, FILES[file], zipped(dict(reversed(members.items())), zipfile.ZIP_STORED))
    return tmp_path


def written(raw):
    return nists.read(raw, downloads.files("femnist", "nist"))


def test_a_character_gets_its_class_from_one_archive_and_its_writer_from_the_other(nist):
    x, y, writer = written(nist)
    order = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert y.tolist() == [order.index(c) for written in WRITTEN.values() for c in written]
    assert writer.tolist() == [w for w, written in WRITTEN.items() for _ in written]
    assert x.shape == (12, 1, 28, 28) and x.dtype == np.uint8
    # Bar n spans the pixels from 10 + 5 n to 120 and from 4 to 100 of 128; 128 / 28 = 4.57.
    assert (x[:, 0, 27, :] == PAPER).all()  # below the bar
    assert (x[:, 0, 10, 20] == INK).all()  # columns 91 to 96, the filter reaches 14 further
    assert (np.diff((x[:, 0, 10, :] < 128).sum(1)) < 0).all()


def test_of_equal_images_in_two_classes_the_first_path_counts(nist):
    add(nist, "by_class", "by_class/30/hsf_0/copy.png", png(0))  # "5" is 35, so this comes first
    assert written(nist)[1][0] == 0


def test_an_image_without_a_class_or_that_is_none_is_named(nist):
    add(nist, "by_writer", "by_write/hsf_0/f0001_01/c0001_01/new.png", png(50))
    refuse(by_writer, r"c0001_01/new.png of by_write.zip is not in by_class.zip", nist)
    add(nist, "by_class", "by_class/35/hsf_0/text.png", b"text")
    add(nist, "by_writer", "by_write/a/b/c/text.png", b"text")
    refuse(by_writer, r"by_write/a/b/c/text.png is not an image", nist)
    content = io.BytesIO()
    Image.new("L", (128, 64)).save(content, "png")
    with pytest.raises(DataError, match=r"wide.png has \(28, 14\) pixels as a thumbnail"):
        nists.thumbnail(content.getvalue(), "wide.png")


def test_an_archive_that_is_cut_or_damaged_is_named(nist):
    path = nist / FILES["by_writer"].path
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    refuse(by_writer, f"{path} is not a whole zip archive.* delete it", nist)
    at = content.index(png(0)) + 60
    path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    refuse(by_writer, f"{path} is broken .*CRC.*; delete it", nist)


# TFF's files


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


def test_a_writer_keeps_the_training_and_test_images_of_tff(tff):
    built = with_parts(tff)
    assert numbers_of(built, "train") == {(1, 2, 3, 4), (5, 6), (7, 8, 9)}
    assert numbers_of(built, "test") == {(101,), (102, 103), (104,)}
    both = {(1, 2, 3, 4, 101), (5, 6, 102, 103), (7, 8, 9, 104)}
    assert numbers_of(built, "train", "test") == both
    assert (built.y == built.x[:, 0, 0, 0] % 62).all()
    assert built.x.dtype == np.uint8 and built.x.shape == (13, 1, 28, 28)
    assert (built.x[:, 0, 1:] == 255).all()  # paper stays 1
    assert (built.mean, built.std, built.num_classes) == ((0.0,), (1.0,), 62)


def test_each_source_has_its_files_and_none_stands_in_for_the_other(tff):
    names = [list(downloads.files("femnist", source)) for source in ("tff", "leaf")]
    assert names == [["tff_train", "tff_test"], ["leaf_train", "leaf_test"]]
    with pytest.raises(ConfigError, match="which femnist from source nist does not have"):
        with_parts(tff, source="nist")
    refuse(by_writer, r"by_class.zip does not exist; run the download stage", tff)
    told = r"femnist/data/train has no files \*.json; put there the output of LEAF"
    refuse(with_parts, told, tff, source="leaf")
    (tff / FILES["tff_test"].path).unlink()
    refuse(with_parts, "fed_emnist_test.h5 does not exist; run the download", tff)


def test_files_or_parts_without_a_common_writer_are_refused(tff, tmp_path):
    tff_file(tff, FILES["tff_test"], {"z2": [1]})
    leaf(tmp_path, "train", "1.json", {"a": [1]})
    leaf(tmp_path, "test", "1.json", {"b": [2]})
    for source in ("tff", "leaf"):
        refuse(with_parts, "have no writer in common", tmp_path, source=source)
    apart = numbered(np.zeros(3, int), 2, owner=np.array([0, 0, 1]), num_owners=2)
    with pytest.raises(DataError, match="no writer has both training and test examples"):
        WriterParts().deal(apart, 1)


def test_what_is_not_a_file_of_tff_is_named(tff):
    path = tff / FILES["tff_test"].path
    with h5py.File(path, "r+") as file:
        del file["examples/f0001_41/label"]
    refuse(with_parts, r"are not the files of TFF's Federated EMNIST", tff)
    path.write_bytes(b"text")
    refuse(with_parts, r"fed_emnist_test.h5 are not the files of TFF", tff)


# LEAF's files


@pytest.fixture
def leaf_files(tmp_path):
    """Writers a, b and c with training and test images; d has test images only."""
    leaf(tmp_path, "train", "1.json", {"b": [1, 2, 3, 4], "a": [5, 6, 7]})
    leaf(tmp_path, "train", "2.json", {"c": [8, 9, 10, 11]})
    leaf(tmp_path, "test", "1.json", {"a": [20, 21], "b": [22]})
    leaf(tmp_path, "test", "2.json", {"c": [23], "d": [24, 25, 26, 27, 28]})
    return tmp_path


def test_both_parts_of_a_writer_are_kept_or_joined_and_split_again(leaf_files):
    kept, joined = with_parts(leaf_files, source="leaf"), by_writer(leaf_files, source="leaf")
    assert numbers_of(kept, "train") == {(5, 6, 7), (1, 2, 3, 4), (8, 9, 10, 11)}
    whole = {(5, 6, 7, 20, 21), (1, 2, 3, 4, 22), (8, 9, 10, 11, 23)}
    for built in (kept, joined):  # without d, who has no training images
        assert numbers_of(built, "train", "test") == whole
    assert joined.train.sizes.tolist() == [4, 4, 4] and joined.test.sizes.tolist() == [1, 1, 1]
    assert (joined.y == joined.x[:, 0, 0, 0] % 62).all()
    assert (joined.x[:, 0, 1:] == 255).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "JSONDecodeError"),
        (b'{"users": ["e"]}', "KeyError"),
        (b"\xc0" * 10**6, "UnicodeDecodeError"),  # the message does not hold the file
        ({"x": [[0.5] * 784] * 2}, "pixels are not multiples of 1/255 from 0 to 1"),
        ({"x": [[256 / 255] * 784] * 2}, "pixels are not multiples of 1/255 from 0 to 1"),
        *(({"y": y}, "labels are not one of 0 to 61") for y in ([3.7, 1], [62, 1], [1])),
    ],
    ids=itertools.count(),
)
def test_what_leaf_does_not_write_is_refused_in_a_line(leaf_files, content, message):
    if isinstance(content, dict):
        data = {"x": [[1.0] * 784] * 2, "y": [0, 1]} | content
        content = json.dumps({"users": ["e"], "user_data": {"e": data}}).encode()
    (leaf_files / "femnist/data/train/2.json").write_bytes(content)
    with pytest.raises(DataError, match=f"train/2.json is not a file of LEAF.*{message}") as raised:
        by_writer(leaf_files, source="leaf")
    assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)


def test_a_missing_file_of_leaf_is_noticed(leaf_files):
    (leaf_files / "femnist/data/test/2.json").unlink()
    told = "pairs of files, .*data/train': 2, .*data/test': 1"
    refuse(by_writer, told, leaf_files, source="leaf")


def test_a_writer_in_two_files_of_leaf_is_refused(leaf_files):
    for part in ("train", "test"):
        folder = leaf_files / "femnist/data" / part
        (folder / "3.json").write_bytes((folder / "2.json").read_bytes())
    refuse(by_writer, "3.json has the writer .* another file", leaf_files, source="leaf")


def test_pixels_may_stay_between_0_and_1_or_be_symmetric_about_0(leaf_files):
    standard, unit, symmetric = (
        by_writer(leaf_files, source="leaf", scaling=scaling)
        for scaling in ("standard", "unit", "symmetric")
    )
    assert np.array_equal(standard.x, unit.x) and np.array_equal(standard.x, symmetric.x)
    assert (standard.mean, standard.std) == ((0.1307,), (0.3081,))
    assert (unit.mean, unit.std) == ((0.0,), (1.0,))  # of x / 255
    mean, std = symmetric.mean[0], symmetric.std[0]
    assert ((0 - mean) / std, (1 - mean) / std) == (-1, 1)


# The official files, where they are


@pytest.mark.slow
@needs("femnist", "tff")
def test_the_official_femnist_has_the_counts_of_the_specification():
    built = with_parts(REAL_RAW, seed=7)
    assert built.num_clients == 3400
    assert (len(built.train.rows), len(built.test.rows)) == (671_585, 77_483)
