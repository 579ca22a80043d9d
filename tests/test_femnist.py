"""FEMNIST: by writer, from NIST's archives or from LEAF's files."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from data_fixtures import NOWHERE, REAL_RAW, federation, leaf
from PIL import Image

from fedlib.data import downloads
from fedlib.data.download import receipt
from fedlib.data.sources import _femnist_nist as nists
from fedlib.errors import ConfigError, DataError

FILES = downloads.table("femnist").files
PAPER, INK = 255, 0


def by_writer(raw, seed=12345, source="nist", duplicates="fixed", scaling="standard", **fields):
    read = {"source": source, "duplicates": duplicates, "scaling": scaling}
    fields = {"train_fraction": 0.8, "unseen": "last", **fields}
    return federation("femnist", "writer", raw, seed=seed, params=read, **fields)


def written(raw, duplicates="fixed"):
    return nists.read(raw, downloads.files("femnist", "nist"), duplicates)


def png(number: int) -> bytes:
    """A white image of 128 x 128 pixels with a black bar of its own."""
    image = Image.new("RGB", (128, 128), (PAPER,) * 3)
    image.paste((INK,) * 3, (10 + number % 20 * 5, 4 + number // 20 * 4, 120, 100))
    content = io.BytesIO()
    image.save(content, "png")
    return content.getvalue()


def zipped(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
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
    zipped(tmp_path / FILES["by_class"].path, dict(reversed(by_class.items())))
    zipped(tmp_path / FILES["by_writer"].path, dict(reversed(by_writer.items())))
    return tmp_path


@pytest.fixture
def leaf_files(tmp_path):
    """Writers a, b and c with training and test images; d has test images only."""
    leaf(tmp_path, "train", "1.json", {"b": [1, 2, 3, 4], "a": [5, 6, 7]})
    leaf(tmp_path, "train", "2.json", {"c": [8, 9, 10, 11]})
    leaf(tmp_path, "test", "1.json", {"a": [20, 21], "b": [22]})
    leaf(tmp_path, "test", "2.json", {"c": [23], "d": [24, 25, 26, 27, 28]})
    return tmp_path


def owned(built, client):
    """Rows of all splits of a client."""
    return np.concatenate([getattr(built, split).of(client) for split in ("train", "val", "test")])


# NIST's archives


def test_a_character_gets_its_class_from_one_archive_and_its_writer_from_the_other(nist):
    x, y, writer = written(nist)
    order = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert y.tolist() == [order.index(c) for written in WRITTEN.values() for c in written]
    assert writer.tolist() == [w for w, written in WRITTEN.items() for _ in written]
    assert x.shape == (12, 1, 28, 28) and x.dtype == np.uint8


def test_images_keep_dark_ink_on_white_paper(nist):
    x, _, _ = written(nist)
    # Bar n spans the pixels from 10 + 5 n to 120 and from 4 to 100 of 128; 128 / 28 = 4.57.
    assert (x[:, 0, 27, :] == PAPER).all()  # below the bar
    assert (x[:, 0, 10, 20] == INK).all()  # columns 91 to 96, the filter reaches 14 further
    dark = (x[:, 0, 10, :] < 128).sum(1)
    assert (np.diff(dark) < 0).all()


def test_a_thumbnail_is_pillows_lanczos_filter():
    image = Image.open(io.BytesIO(png(3))).convert("L")
    expected = image.resize((28, 28), Image.Resampling.LANCZOS)
    assert np.array_equal(nists.thumbnail(png(3), "3.png"), np.asarray(expected))


def test_writers_with_two_images_are_dropped(nist):
    built = by_writer(nist)
    assert sorted((built.train.sizes + built.test.sizes).tolist()) == [5, 5]


def test_the_official_duplicates_are_the_first_images_of_all_writers_but_the_first(nist):
    x, y, writer = written(nist, "official")
    assert writer.tolist() == ["f0001_01"] * 5 + ["f0002_01"] * 3 + ["f0003_02"] * 6
    assert np.array_equal(x[5], x[6]) and y[5] == y[6]
    assert np.array_equal(x[8], x[9]) and y[8] == y[9]
    # The writer of two images now counts three, and stays.
    assert by_writer(nist, duplicates="official").num_clients == 3


def test_of_equal_images_in_two_classes_the_first_path_counts(nist):
    with zipfile.ZipFile(nist / FILES["by_class"].path, "a") as archive:
        archive.writestr("by_class/30/hsf_0/copy.png", png(0))  # "5" is 35, so this comes first
    assert written(nist)[1][0] == 0


def test_an_image_without_a_class_is_named(nist):
    with zipfile.ZipFile(nist / FILES["by_writer"].path, "a") as archive:
        archive.writestr("by_write/hsf_0/f0001_01/c0001_01/new.png", png(50))
    with pytest.raises(DataError, match=r"c0001_01/new.png of by_write.zip is not in by_class.zip"):
        by_writer(nist)


def test_what_is_not_an_image_is_named(nist):
    for file, folder in (
        (FILES["by_class"], "by_class/35/hsf_0"),
        (FILES["by_writer"], "by_write/a/b/c"),
    ):
        with zipfile.ZipFile(nist / file.path, "a") as archive:
            archive.writestr(f"{folder}/text.png", b"text")
    with pytest.raises(DataError, match=r"by_write/a/b/c/text.png is not an image"):
        by_writer(nist)


def test_an_image_that_is_not_square_is_named():
    content = io.BytesIO()
    Image.new("L", (128, 64)).save(content, "png")
    with pytest.raises(DataError, match=r"wide.png has \(28, 14\) pixels as a thumbnail"):
        nists.thumbnail(content.getvalue(), "wide.png")


@pytest.mark.parametrize("code", ["2e", "zz", "5b"])
def test_a_class_that_is_no_character_is_named(code):
    with pytest.raises(DataError, match=f"by_class.zip has a class '{code}'"):
        nists.label(code)


@pytest.mark.parametrize(("code", "number"), [("30", 0), ("39", 9), ("41", 10), ("7a", 61)])
def test_labels_are_digits_then_capitals_then_small_letters(code, number):
    assert nists.label(code) == number


def test_an_archive_that_is_cut_or_damaged_is_named(nist):
    path = nist / FILES["by_writer"].path
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    with pytest.raises(DataError, match=f"{path} is not a whole zip archive .* delete it"):
        by_writer(nist)
    at = content.index(png(0)) + 60
    path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    with pytest.raises(DataError, match=f"{path} is broken .*CRC.*; delete it"):
        by_writer(nist)


def test_a_missing_archive_is_named_and_leafs_files_do_not_stand_in(leaf_files):
    with pytest.raises(DataError, match=r"by_class.zip does not exist; run the download stage"):
        by_writer(leaf_files)


# LEAF's files


def test_both_parts_of_a_writer_are_joined_and_split_again(leaf_files):
    built = by_writer(leaf_files, source="leaf")
    numbers = {frozenset(built.x[owned(built, c), 0, 0, 0].tolist()) for c in range(3)}
    assert numbers == {
        frozenset({5, 6, 7, 20, 21}),
        frozenset({1, 2, 3, 4, 22}),
        frozenset({8, 9, 10, 11, 23}),
    }  # not d, who has no training images
    assert built.train.sizes.tolist() == [4, 4, 4] and built.test.sizes.tolist() == [1, 1, 1]
    assert (built.y == built.x[:, 0, 0, 0] % 62).all()
    assert (built.x[:, 0, 1:] == 255).all()


def test_the_last_writers_of_a_random_order_are_unseen(leaf_files):
    built = by_writer(leaf_files, source="leaf", unseen_fraction=0.4)
    assert built.ids("unseen").tolist() == [1, 2]  # int(0.6 * 3) = 1 is seen


def test_num_clients_takes_the_first_writers_of_the_random_order(leaf_files):
    everybody = by_writer(leaf_files, source="leaf")
    two = by_writer(leaf_files, source="leaf", num_clients=2)
    assert two.num_clients == 2 and everybody.num_clients == 3
    for client in range(2):
        ours = np.sort(two.x[owned(two, client)][:, 0, 0, 0])
        assert np.array_equal(ours, np.sort(everybody.x[owned(everybody, client)][:, 0, 0, 0]))


def test_more_writers_than_there_are_is_an_error(leaf_files):
    with pytest.raises(DataError, match="num_clients is 4, but only 3 writers are there"):
        by_writer(leaf_files, source="leaf", num_clients=4)
    with pytest.raises(ConfigError, match="num_clients must be an integer of at least 1, got 0"):
        by_writer(leaf_files, source="leaf", num_clients=0)


def test_the_receipt_names_leafs_files_and_changes_with_them(leaf_files):
    files = downloads.files("femnist", "leaf").values()
    before = receipt("femnist", files, leaf_files)
    names = [f"femnist/data/{part}/{n}.json" for part in ("test", "train") for n in (1, 2)]
    assert [entry["path"] for entry in before["files"]] == names
    leaf(leaf_files, "train", "3.json", {"e": [1]})
    assert receipt("femnist", files, leaf_files) != before


def test_without_leafs_files_the_message_says_who_makes_them(tmp_path):
    with pytest.raises(DataError, match=r"femnist/data/train has no \*.json; put there what LEAF"):
        by_writer(tmp_path, source="leaf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "train/3.json is not a file of LEAF's FEMNIST"),
        ("[]", "train/3.json is not a file of LEAF's FEMNIST"),
        ('{"users": ["e"], "user_data": {}}', "not a file of LEAF's FEMNIST: KeyError"),
    ],
)
def test_what_is_not_a_file_of_leaf_is_named(leaf_files, content, message):
    (leaf_files / "femnist/data/train/3.json").write_text(content)
    with pytest.raises(DataError, match=message):
        by_writer(leaf_files, source="leaf")


@pytest.mark.parametrize("pixel", [0.5, -1 / 255, 256 / 255])
def test_pixels_that_are_no_shades_are_refused(leaf_files, pixel):
    data = {"e": {"x": [[pixel] + [1.0] * 783], "y": [0]}}
    path = leaf_files / "femnist/data/train/3.json"
    path.write_text(json.dumps({"users": ["e"], "user_data": data}))
    with pytest.raises(DataError, match="pixels are not multiples of 1/255 from 0 to 1"):
        by_writer(leaf_files, source="leaf")


def other_file(raw: Path, **changes) -> None:
    """A third training file, of one writer with two images, with these changes."""
    data = {"x": [[1.0] * 784] * 2, "y": [0, 1]} | changes.pop("e", {})
    content = {"users": ["e"], "num_samples": [2], "user_data": {"e": data}} | changes
    (raw / "femnist/data/train/3.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"e": {"y": [3.7, 1]}}, "labels are not integers"),
        ({"e": {"y": ["7", "1"]}}, "labels are not integers"),
        ({"e": {"y": [True, 1]}}, "labels are not integers"),
        ({"e": {"y": [1e300, 1]}}, "labels are not integers"),
        ({"e": {"y": [10**30, 1]}}, "labels are not integers"),
        ({"e": {"y": [62, 1]}}, r"labels are not in \[0, 62\)"),
        ({"e": {"y": [-1, 1]}}, r"labels are not in \[0, 62\)"),
        ({"e": {"y": [1]}}, "2 images but labels of shape"),
        ({"e": {"x": [["1.0"] * 784] * 2}}, "pixels are not numbers"),
        ({"e": {"x": "A" * 10**6}}, "pixels are not numbers"),
        ({"users": []}, "it has no users"),
        ({"users": ["e", "e"], "num_samples": [2, 2]}, "have different names"),
        ({"user_data": {"e": {"x": [[1.0] * 784], "y": [1]}, "f": {}}}, "have different names"),
        ({"num_samples": [3]}, "num_samples are not the numbers of labels"),
    ],
)
def test_what_leaf_does_not_write_is_refused_in_a_line(leaf_files, change, message):
    other_file(leaf_files, **change)
    with pytest.raises(DataError, match=f"3.json is not a file of LEAF's .*{message}") as raised:
        by_writer(leaf_files, source="leaf")
    assert len(str(raised.value)) < 400 and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xc0" * 10**6, "it is not text"), (b"[" * 10**5, "RecursionError")],
    ids=["binary", "nested"],
)
def test_the_message_about_a_strange_file_does_not_hold_it(leaf_files, content, message):
    (leaf_files / "femnist/data/train/3.json").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        by_writer(leaf_files, source="leaf")
    assert len(str(raised.value)) < 400


def test_a_missing_file_of_leaf_is_missed(leaf_files):
    (leaf_files / "femnist/data/test/2.json").unlink()
    message = "pairs of files, .*: femnist/data/train 2 and femnist/data/test 1 files"
    with pytest.raises(DataError, match=message):
        by_writer(leaf_files, source="leaf")


def test_files_of_leaf_are_numbered_without_a_gap(tmp_path):
    for part in ("train", "test"):
        for number in (0, 2):
            leaf(tmp_path, part, f"all_data_{number}_{part}.json", {f"w{number}": [1, 2, 3]})
    with pytest.raises(DataError, match=r"femnist/data/train has no file all_data_1_\*.json"):
        by_writer(tmp_path, source="leaf")


def test_a_folder_in_place_of_a_file_of_leaf_is_refused(leaf_files):
    (leaf_files / "femnist/data/test/2.json").unlink()
    (leaf_files / "femnist/data/test/2.json").mkdir()
    with pytest.raises(DataError, match="test/2.json is not a plain file"):
        by_writer(leaf_files, source="leaf")


def test_an_image_of_nist_that_unpacks_to_gigabytes_is_not_unpacked(nist, monkeypatch):
    monkeypatch.setattr(nists, "LARGEST", 10)
    with pytest.raises(DataError, match="bytes, too many; delete it"):
        written(nist)


def test_a_writer_in_two_files_of_a_part_is_refused(leaf_files):
    leaf(leaf_files, "train", "3.json", {"a": [1]})
    with pytest.raises(DataError, match="train/3.json has the writer a, whom another file has too"):
        by_writer(leaf_files, source="leaf")


def test_parts_without_a_common_writer_are_refused(tmp_path):
    leaf(tmp_path, "train", "1.json", {"a": [1]})
    leaf(tmp_path, "test", "1.json", {"b": [2]})
    with pytest.raises(DataError, match="have no writer in common"):
        by_writer(tmp_path, source="leaf")


# Both


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "mnist"}, "femnist has no source 'mnist'; choose one of nist, leaf, tff"),
        ({"duplicates": "none"}, "no duplicates 'none'; choose one of fixed, official"),
        ({"source": "leaf", "duplicates": "official"}, "duplicates must be 'fixed' with source"),
        ({"fraction": 0}, "fraction must be in"),
        ({"scaling": "none"}, "no scaling 'none'; choose one of standard, unit, symmetric"),
        ({"train_fraction": 1.0}, "train_fraction must be in"),
        ({"min_examples": 0}, "min_examples must be"),
        ({"unseen_fraction": 1}, "unseen_fraction must be in"),
    ],
)
def test_values_that_make_no_sense_are_refused_before_a_file_is_read(change, message):
    with pytest.raises(ConfigError, match=message):
        by_writer(NOWHERE, **change)


@pytest.mark.skipif(
    not list((REAL_RAW / FILES["leaf_train"].path).glob("*.json")),
    reason=f"no LEAF files below {REAL_RAW}",
)
def test_leafs_own_files_have_all_62_classes_in_dark_ink():
    built = by_writer(REAL_RAW, source="leaf", unseen_fraction=0.2, min_examples=1)
    assert len(np.unique(built.y)) == 62
    assert np.median(built.x) == PAPER  # most of an image is paper
    sizes = built.train.sizes + built.test.sizes
    assert built.train.sizes.tolist() == [int(0.8 * n) for n in sizes]  # section 3.6
