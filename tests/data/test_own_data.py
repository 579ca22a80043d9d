"""A user's own data set: each format, each mistake, a federation of it, and what depends on it."""

import base64
import csv
import os
import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest
from data_fixtures import federation
from PIL import Image
from stages import run_here

from fedlib import seals
from fedlib.data import build, downloads, sizes
from fedlib.data.download import fetch, receipt
from fedlib.data.examples import TEST, TRAIN
from fedlib.data.raw import files_below
from fedlib.data.sources import digits, own
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation
from fedlib.files import canonical_json
from fedlib.workflow import provenance


@pytest.fixture
def folder(tmp_path):
    """data/raw/own/mine, below `tmp_path`."""
    made = tmp_path / "own/mine"
    made.mkdir(parents=True)
    return made


@pytest.fixture(autouse=True)
def every_second(monkeypatch):
    """Every second example of a class or client is for testing, so that four suffice."""
    monkeypatch.setattr(digits, "TEST_EVERY", 2)


def read(folder, **params):
    return own.read(folder.parents[1], source=folder.name, **params)


def refuse(folder, match, **params):
    """Assert that reading the folder fails with these words."""
    with pytest.raises(DataError, match=match):
        read(folder, **params)


def image(path, value, *, size=(4, 3), mode="L"):
    """A picture of one colour, four pixels wide and three high."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def table(path, names, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def test_images_by_class_come_in_order_of_their_paths(folder):
    for name, value in {"cat/2": 2, "ant/9": 9, "cat/1": 1, "bee/5": 5}.items():
        image(folder / f"{name}.png", value)
    (folder / "cat/.hidden").write_text("not an image")
    made = read(folder)
    assert made.x.shape == (4, 1, 3, 4) and made.x.dtype == np.uint8
    assert made.x[:, 0, 0, 0].tolist() == [9, 5, 1, 2]  # ant, bee, cat
    assert made.y.tolist() == [0, 1, 2, 2] and made.num_classes == 3
    assert made.part.tolist() == [TRAIN, TRAIN, TRAIN, TEST]  # every second one of a class
    assert (made.mean, made.std) == ((0.0,), (1.0,))  # pixels in [0, 1]


def test_the_folder_of_a_class_may_be_a_link(folder, tmp_path):
    for name in ("own/mine/ant/1", "own/mine/ant/2", "elsewhere/1", "elsewhere/2"):
        image(tmp_path / f"{name}.png", 5)
    (folder / "bee").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/again").symlink_to(tmp_path / "elsewhere")  # not followed for ever
    assert read(folder).y.tolist() == [0, 0, 1, 1]
    for here, there in (("ant", "bee"), ("bee", "ant")):  # nor each by way of the other
        (folder / here / "other").symlink_to(folder / there)
    found = ["ant/1", "ant/2", "ant/other/1", "ant/other/2", "bee/1", "bee/2"]
    assert files_below(folder) == [f"{x}.png" for x in (*found, "bee/other/1", "bee/other/2")]


def test_a_name_that_is_not_utf8_is_refused(folder):
    image(folder / os.fsdecode(b"caf\xe9") / "1.png", 5)
    refuse(folder, r"'caf\\udce9/1.png' is not UTF-8; give it another")


def test_a_folder_that_cannot_be_read_is_refused(folder, monkeypatch):
    for name in ("ant/1.png", "ant/2.png", "bee/1.png", "bee/2.png", "cat/1.png"):
        image(folder / name, 5)
    allowed = os.scandir  # root may read what has no permission
    monkeypatch.setattr(os, "scandir", lambda x: (open if x.endswith("cat") else allowed)(x))
    refuse(folder, r"mine/cat is no readable folder \(Is a directory\); make")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK or path[-3:] != "cat")
    monkeypatch.setattr(os, "scandir", allowed)
    refuse(folder, r"mine/cat has files that cannot be opened; chmod \+x")


def test_a_link_to_nothing_is_refused_unless_it_is_hidden(folder):
    for name in ("ant/1.png", "ant/2.png", "bee/1.png", "bee/2.png"):
        image(folder / name, 5)
    (folder / ".old").mkdir()
    for name in (".old/1.png", "ant/.#1.png"):
        (folder / name).symlink_to("nowhere")
    assert len(read(folder).y) == 4
    (folder / "bee/3.png").symlink_to("nowhere")
    refuse(folder, "bee/3.png is a link to a file that does not exist")


def test_a_folder_in_that_of_a_class_may_be_a_client(folder):
    for number, (label, client) in enumerate([("cat", "bob"), ("ant", "ann"), ("ant", "bob")] * 2):
        image(folder / label / client / f"{number}.png", number)
    made = read(folder, clients=True)
    assert made.x[:, 0, 0, 0].tolist() == [1, 4, 2, 5, 0, 3]
    assert made.owner_name[made.owner].tolist() == ["ann", "ann", "bob", "bob", "bob", "bob"]
    image(folder / "cat/9.png", 9)
    told = "ann/1.png must be .*, or with clients = True", "cat/9.png must be .*, as cats/ann/7.png"
    for clients in (False, True):
        refuse(folder, told[clients], clients=clients)


def test_a_table_beside_images_has_their_clients(folder):
    rows = [("ant/1.png", "01"), ("cat/1.png", "ann"), ("cat/2.png", "01")]
    for number, (name, _) in enumerate(rows):
        image(folder / name, number)
    table(folder / "clients.csv", ["image", "client"], *rows)
    made = read(folder, clients=True)
    assert made.owner_name[made.owner].tolist() == ["01", "ann", "01"]
    refuse(folder, "called train and test; clients.csv is read if clients is")
    image(folder / "ant/3.png", 9)
    refuse(folder, "ant/3.png has no line in clients.csv", clients=True)
    for wrong in (("ant/4.png", "bob"), rows[0], ("ant/3.png", ""), ("ant/3.png", " ")):
        table(folder / "clients.csv", ["image", "client"], *rows, wrong)
        refuse(folder, f"clients.csv must have each image .* {wrong[0]!r}", clients=True)
    table(folder / "clients.csv", ["file", "client"], *rows)
    refuse(folder, "must have the columns image and client", clients=True)


@pytest.mark.parametrize("name", ["Client", " client", "cLient "])
@pytest.mark.parametrize("clients, kept", [("1 01", ["01", "1"]), ("10 9", [9, 10])])
def test_clients_written_differently_are_different_clients(folder, clients, kept, name):
    rows = [(row, row % 2, clients.split()[row % 2]) for row in range(8)]
    table(folder / "a.csv", ["a", "label", name], *rows)
    assert read(folder).owner_name.tolist() == kept


def test_words_of_bytes_are_read_as_utf_8(folder):
    words = np.char.encode(np.array(["näh", "fern"] * 4), "utf-8")
    np.savez(folder / "a.npz", x=np.zeros((8, 2)), y=words)
    assert [*read(folder).class_name] == ["fern", "näh"]


def test_classes_called_by_numbers_are_those_numbers(folder):
    for number in range(11):
        image(folder / f"{number}/a.png", number)
        image(folder / f"{number}/b.png", number)
    made = read(folder)
    assert made.x[:, 0, 0, 0].tolist() == made.y.tolist()


def test_images_may_have_a_test_part_and_colours(folder):
    image(folder / "train/a/1.png", (255, 0, 51), mode="RGB")
    image(folder / "train/b/1.png", (0, 0, 51), mode="RGB")
    image(folder / "test/b/1.png", (7, 8, 9), mode="RGB")
    made = read(folder, scaling="standard")
    assert made.x[2, :, 0, 0].tolist() == [7, 8, 9]
    assert made.y.tolist() == [0, 1, 1] and made.part.tolist() == [TRAIN, TRAIN, TEST]
    # Of the training part alone; a channel without variation is not divided.
    np.testing.assert_allclose(made.mean, [0.5, 0, 0.2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(made.std, [0.5, 1, 1], rtol=0, atol=1e-12)


def test_parts_under_other_names_are_no_classes(folder):
    for name in ("Train/ant", "Train/bee", "TEST/ant", "TEST/bee"):
        image(folder / name / "1.png", 5)
    assert read(folder).part.tolist() == [TRAIN, TRAIN, TEST, TEST]
    (folder / "TEST").rename(folder / "testing")
    refuse(folder, "or two of these called train and test")


def test_a_photograph_is_turned_as_its_camera_says(folder):
    tag = Image.Exif()
    tag[0x0112] = 6  # to be seen, turn it clockwise
    photograph = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    photograph.save(folder / "a.png", exif=tag)
    assert np.array_equal(own._own_files._image(folder / "a.png")[0], np.rot90(photograph, -1))


def test_blanks_around_a_class_are_no_part_of_its_name(folder):
    (folder / "train.csv").write_text("a,label\n1,cat\n2, dog\n")
    (folder / "test.csv").write_text("a,label\n1,cat \n2,dog\n")
    assert read(folder).y.tolist() == [0, 1, 0, 1]


def test_a_column_called_label_is_the_class_and_client_is_who_owns_it(folder):
    names, rows = ["Label", "height", "client", "age"], []
    for n, who in enumerate(["zoe", "amy", "zoe", "amy"]):
        rows.append([["yes", "no"][n % 2], n, who, 10 * n])
    table(folder / "people.csv", names, *rows)
    made = read(folder, scaling="none")
    assert made.x.tolist() == [[0, 0], [1, 10], [2, 20], [3, 30]] and made.x.dtype == np.float32
    assert made.y.tolist() == [1, 0, 1, 0]  # no, yes
    assert made.owner.tolist() == [1, 0, 1, 0] and made.num_owners == 2  # amy, zoe
    assert made.part.tolist() == [TRAIN, TRAIN, TEST, TEST]  # every second one of a client


def test_without_such_a_column_the_last_one_is_the_class(folder):
    table(folder / "train.csv", ["a", "b", "kind"], [0, 5, 0], [4, 5, 1], [2, 5, 1])
    table(folder / "test.csv", ["a", "b", "kind"], [8, 6, 0])
    made = read(folder)
    # Training values are from 0 to 4 and all 5: the range is 4, and a range of 0 counts as 1.
    assert made.x.tolist() == [[0, 0], [1, 0], [0.5, 0], [2, 1]]
    assert (made.mean, made.std) == ((0, 5), (4, 1))
    assert made.y.tolist() == [0, 1, 1, 0] and made.part.tolist() == [TRAIN] * 3 + [TEST]


@pytest.mark.parametrize(
    "near, role", [("Lable", "label"), ("labels", "label"), ("cleint", "client")]
)
def test_a_column_that_is_almost_called_so_is_refused(folder, near, role):
    table(folder / "a.csv", [near, "a", "kind"], [0, 0.5, 0], [1, 5, 1], [0, 5, 1])
    told = f"a.csv: column {near.casefold()} is almost {role}; call it so, or otherwise"
    refuse(folder, told)
    table(folder / "a.csv", [near, role, "b", "kind"], [0, 0, 0.5, 0], [1, 1, 5, 1], [0, 0, 5, 1])
    assert len(read(folder).x) == 3


def test_arrays_may_name_their_clients(folder):
    x = np.arange(8.0).reshape(4, 2)
    np.savez(folder / "a.npz", x=x, y=[0, 1, 0, 1], client=np.array(["u", "u", "t", "t"]))
    made = read(folder, scaling="standard")
    known = x[[0, 2]]  # the training part: the first of every client
    np.testing.assert_allclose(made.x, (x - known.mean(0)) / known.std(0), rtol=1e-6)  # of float32
    assert made.owner.tolist() == [1, 1, 0, 0]


def test_scaling_needs_little_memory_besides_the_data(folder):
    np.savez(folder / "a.npz", x=np.ones((10_000, 50), np.float32), y=np.arange(10_000) % 2)
    for scaling in ("unit", "standard"):
        tracemalloc.start()
        size = read(folder, scaling=scaling).x.nbytes
        assert tracemalloc.get_traced_memory()[1] < 4.5 * size
        tracemalloc.stop()


def test_classes_that_take_turns_are_in_both_parts_of_a_client(folder):
    np.savez(folder / "a.npz", x=np.ones((16, 2)), y=np.arange(16) % 2, client=np.repeat([1, 2], 8))
    made = read(folder)
    assert made.y[made.part == TEST].tolist() == [0, 1, 0, 1] * 2


def test_arrays_of_bytes_are_images_with_or_without_a_channel(folder):
    x = np.arange(4 * 6, dtype=np.uint8).reshape(4, 2, 3)
    np.savez(folder / "a.npz", x=x, y=[0, 0, 1, 1])
    made = read(folder)
    assert made.x.dtype == np.uint8 and np.array_equal(made.x[:, 0], x)
    assert read(folder, scaling="none").x.dtype == np.float32


def test_classes_without_an_example_must_be_asked_for(folder):
    np.savez(folder / "a.npz", x=np.ones((4, 2)), y=[0, 0, 2, 2])
    refuse(folder, "a.npz: 2 labels are from 0 to 2; number classes from 0")
    assert read(folder, num_classes=4).num_classes == 4
    with pytest.raises(ConfigError, match=r"num_classes is 2, but .*a.npz has the class 2"):
        read(folder, num_classes=2)


X = np.ones((4, 2))
Y = [0, 0, 1, 1]


ARRAYS = [
    ({"y": Y}, "a.npz has no array 'x'"),
    ({"x": X}, "a.npz has no array 'y'"),
    ({"X": X, "y": Y}, "a.npz has no array 'x'; x and y must be there, got y, X"),
    ({"x": X, "y": Y, "x_test": X}, "a.npz has x_test besides x, y, client; leave it out"),
    ({"x": X, "y": Y[:3]}, r"y must have 4 values as x, one an example, got \(3,\)"),
    ({"x": X, "y": np.array(Y) * 0.5}, "y must be whole numbers or words, got 0.5"),
    ({"x": X, "y": np.array([0, np.nan, 1, 1])}, "y of example 1 is missing"),
    ({"x": X, "y": [0] * 4}, "all labels are 0, one class"),
    ({"x": np.full((4, 2), 2**24 + 1), "y": Y}, "x of example 0 has an integer beyond"),
    ({"x": np.full((4, 2), 2**60 + 1), "y": Y}, "x of example 0 has an integer beyond"),
    ({"x": X, "y": [1, 1, 2, 2]}, "from 1 to 2; number classes from 0"),
    ({"x": X, "y": [-1, 0, 1, 1]}, "from -1 to 1; number classes from 0"),
    ({"x": X, "y": [0, 0, 0, 10**9]}, "from 0 to 1000000000; number classes from 0"),
    ({"x": np.array([[1.0], [np.nan], [1], [1]]), "y": Y}, "x of example 1 is not finite"),
    ({"x": X * 1e300, "y": Y}, "x of example 0 is not finite, NaN or too large"),
    ({"x": X.astype(str), "y": Y}, "x must be numbers, .* got <U"),
    ({"x": X[:, 0], "y": Y}, r"x must be numbers, \[M, F\], .* got float64 \[4\]"),
    ({"x": X[:0], "y": []}, "is empty"),
    ({"x": np.ones((4, 8, 8, 3)), "y": Y}, "channels come first in x"),
    ({"x": np.array([[1], [{}], [1], [1]], object), "y": Y}, "not an npz file of plain arrays"),
    ({"x": X, "y": Y, "client": [1j] * 4}, "client must be integers or words"),
    ({"x": X, "y": np.zeros(4, "f4,f4")}, "y must be integers or words"),
    ({"x": X, "y": ["a", "a", "b", "\ud800"]}, r"y must be words in UTF-8, got '.ud800'"),
    ({"x": X, "y": [b"\xe8", b"\xe8", b"\xe9", b"\xe8"]}, "y must be words in UTF-8, got"),
    ({"x": X, "y": Y, "client": [0.5] * 4}, "client must be whole numbers or words, got 0.5$"),
]


@pytest.mark.parametrize("made, message", ARRAYS)
def test_arrays_that_make_no_sense_are_refused_by_the_name_of_their_file(folder, made, message):
    np.savez(folder / "a.npz", **made)
    with pytest.raises(DataError, match=message) as error:
        read(folder)
    assert str(folder / "a.npz") in str(error.value)


TABLES = [
    ("a,label\n", "is empty"),
    ("1,2\n3,4\n", "the first line must name each column"),
    ("Client,client,label\n1,2,0\n", "the first line must name each column, once"),
    ("label,a,label\n0,1,0\n", "the first line must name each column, once"),
    (",a,label\n0,1,0\n1,1,0\n", "the first line must name .*index=False"),
    ("a,label\n1,0\n1,0,0\n", "Expected 2 fields in line 3, saw 3"),
    ("a,label\n1,0,0\n1,0,0\n", "not match length"),
    ("a,label\n1,0\nblue,0\n", "column 'a' must be numbers, got .'blue'."),
    ("a,label\n1,0\nnan,0\n", "column 'a' has no value for example 1"),
    (f"a,label\n{10**22},0\n1,0\n", f"column 'a' must be numbers, got .{10**22}. of type object"),
    (f"a,label\n{'long ' * 99},0\n1,0\n", r"column 'a' must be numbers, got .{,200} of type \w+$"),
    ("a,label\nTrue,0\nnan,0\n", "column 'a' has no value for example 1"),
    ("a,label\nblue,0\nnan,0\n", "column 'a' must be numbers, got .'blue'."),
    ("a,label\n1,0\n1,\n", "y of example 1 is missing"),
    ("a,client,label\n1,b,0\n1,nan,0\n", "client of example 1 is missing"),
    ("a,label\n1,1.0\n1,1.5\n", "y must be whole numbers or words, got 1.5"),
    ("client,label\n1,0\n", "must have a column text or columns .* .commas separate"),
    ("a,b,label\n16777217,0.5,0\n1,0.5,1\n", "column 'a' of example 0 has an integer beyond"),
    ("a,b,label\n1,0.5,0\n1,1e39,1\n", "column 'b' of example 1 is not finite, NaN or too"),
]


@pytest.mark.parametrize("text, message", TABLES)
def test_tables_that_make_no_sense_are_refused(folder, text, message):
    (folder / "a.csv").write_text(text)
    refuse(folder, f"a.csv.* {message}")


NPY = b"\x93NUMPY\x01\x00\x32\x00{'descr':'<f8','fortran_order':False,'shape':(0,)}"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", NPY])
@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_files_that_are_not_what_their_ending_says_are_refused(folder, ending, content):
    (folder / f"a.{ending}").write_bytes(content)
    refuse(folder, rf"a.{ending} is not an? \w+ file")


def test_images_that_differ_are_refused(folder):
    image(folder / "a/1.png", 1)
    image(folder / "b/1.png", 1, size=(5, 3))
    refuse(folder, r"b/1.png has .*1, 3, 5.*a/1.png has .*1, 3, 4.*; all")
    image(folder / "b/1.png", (1, 2, 3), mode="RGB")
    refuse(folder, r"b/1.png has .*3, 3, 4.*a/1.png has .* all grey or all c")
    image(folder / "b/1.png", (1, 2, 3, 4), mode="RGBA")
    refuse(folder, r"b/1.png must be .* 8-bit grey or RGB: KeyError.*RGBA")
    Image.new("RGB", (4, 3), (1, 2, 3)).quantize().save(folder / "b/1.png", transparency=0)
    refuse(folder, r"b/1.png must be .*: ValueError.*transparent pixels")
    deep = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABEAIAAADA54+dAAAAD0lEQVR4nGNgfsF+gXsHAAf7AobefG6n"
    Image.new("RGB", (4, 3)).save(folder / "b/1.png", "TIFF", tiffinfo={284: 2})  # colours apart
    apart = (folder / "b/1.png").read_bytes().replace(b"\x08\0" * 3, b"\x10\0" * 3)
    for content in (base64.b64decode(deep), apart):  # colours of 16 bits
        (folder / "b/1.png").write_bytes(content)
        refuse(folder, r"b/1.png must be .* grey or RGB: KeyError.*16 bits")
    layers = [Image.new("L", (4, 3), value) for value in (1, 2)]
    layers[0].save(folder / "b/1.png", "TIFF", save_all=True, append_images=layers[1:])
    refuse(folder, r"b/1.png must be .*: ValueError.*several pictures")
    (folder / "b/1.png").write_bytes(b"nothing")
    refuse(folder, r"b/1.png must be an image of 8-bit grey or RGB: Unid")
    (folder / "b/1.png").rename(folder / "b/notes.txt")
    refuse(folder, r"b/notes.txt must be an image .*, as cats/7.png")


def test_a_folder_must_have_one_of_the_forms(folder):
    refuse(folder, r"own/mine has no files; put there a folder of images")
    (folder / "notes.txt").write_text("")
    refuse(folder, r"notes.txt is none of .csv, .npz")
    np.savez(folder / "a.npz", x=X, y=Y)
    refuse(folder, r"own/mine has a.npz, notes.txt; it must have a folder")


def test_columns_of_two_parts_are_matched_by_name(folder):
    table(folder / "train.csv", ["a", "b", "kind"], [0, 5, 0], [4, 6, 1])
    table(folder / "test.csv", ["b", "c", "kind"], [7, 8, 0])
    refuse(folder, "train.csv: the columns .*a.*c.* are in one alone")
    table(folder / "test.csv", ["b", "A", "kind"], [7, 8, 0])
    found = read(folder, scaling="none")
    assert found.x.tolist() == [[0, 5], [4, 6], [8, 7]] and [*found.column_name] == ["a", "b"]


def test_both_parts_must_be_alike(folder):
    np.savez(folder / "train.npz", x=X, y=Y)
    np.savez(folder / "test.npz", x=X[:, :1], y=Y)
    refuse(folder, r"test.npz has inputs of shape \(1,\) .* as in .*train")
    np.savez(folder / "test.npz", x=X, y=np.array(["a", "a", "b", "b"]))
    refuse(folder, "integers in one and words in the other")
    np.savez(folder / "test.npz", x=X, y=Y, client=Y)
    refuse(folder, r"train.npz has no `client`, but .*test.npz has")


@pytest.mark.parametrize(
    "params, message",
    [
        ({"clients": True}, "no folder of images"),
        ({"clients": "clients.csv"}, "clients must be True or False, got 'clients.csv'"),
        ({"scaling": "half"}, "no scaling 'half'; choose one of unit, standard, none"),
        ({"num_classes": 0}, r"num_classes must be in .*, got 0"),
        ({"num_classes": 10**9}, r"num_classes must be in .*, got 1000000000"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(folder, params, message):
    np.savez(folder / "a.npz", x=X, y=Y)
    with pytest.raises((ConfigError, DataError), match=message):
        read(folder, **params)


@pytest.mark.parametrize("source", ["../mnist", "", ".", "a/b", None, 3])
def test_a_source_is_the_name_of_a_folder(tmp_path, source):
    with pytest.raises(ConfigError, match="a source of own is the name of a folder"):
        own.read(tmp_path, source=source)


def forty(folder, **more):
    """Forty images of four classes."""
    x = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
    np.savez(folder / "a.npz", x=x, y=np.arange(40) % 4, **more)
    return folder.parents[1]


@pytest.mark.parametrize(
    "kind, fields, lacks",
    [("natural", {}, "natural clients, .*"), ("two_shard", {"num_clients": 5}, "ten classes")],
)
def test_a_partition_says_what_the_files_lack(folder, kind, fields, lacks):
    raw = forty(folder)
    with pytest.raises(DataError, match=f"{kind} needs {lacks}, which the files of own mine do no"):
        federation("own", kind, raw, params={"source": "mine"}, **fields)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "pathological", "path_line", "path_dir"])
def test_a_test_part_of_your_own_is_only_tested_on(folder, kind):
    x = np.arange(400.0)[:, None]
    np.savez(folder / "train.npz", x=x[:300], y=np.arange(300) % 4)
    np.savez(folder / "test.npz", x=x[300:], y=np.arange(100) % 4)
    fields = {"alpha": 0.5} if kind in ("dirichlet", "path_dir") else {}
    fields |= {"classes_per_client": 2} if kind.startswith("path_") else {}
    cut = partial(federation, "own", kind, folder.parents[1], num_clients=4, **fields)
    params = {"source": "mine", "scaling": "none"}
    kept = cut(params=params, val_fraction=0.1)
    for split, given in (("train", range(300)), ("val", range(300)), ("test", range(300, 400))):
        assert {*kept.x[kept.split(split).rows, 0].astype(int)} <= {*given}
    assert kept.test.sizes.sum() > 90 and kept.val.sizes.sum() > 20
    with pytest.raises(ConfigError, match="train_fraction must be absent"):
        cut(params=params, train_fraction=0.5)


def test_without_a_test_part_of_your_own_a_fraction_makes_one(folder):
    raw = forty(folder)
    for dataset, error in (("own", DataError), ("digits", ConfigError)):
        params = {"source": "mine"} if dataset == "own" else {}
        partition = {"kind": "iid", "num_clients": 4}
        spec = {"dataset": dataset, "params": params, "seed": 1, "partition": partition}
        for make in (build.build, sizes.sizes):  # at planning, too
            with pytest.raises(error, match="iid needs a test part of your own"):
                make(spec, raw)


def test_clients_and_classes_keep_their_names(folder, tmp_path):
    names = np.repeat(["é", "b c", "z"], [10, 2, 28])
    x, words = np.arange(160.0).reshape(40, 4), np.array(["no", "yes"])[np.arange(40) % 2]
    np.savez(folder / "a.npz", x=x, y=words, client=names)
    cut = partial(federation, "own", raw=folder.parents[1], params={"source": "mine"})
    made = cut("writer", train_fraction=0.5)  # leaves out the client of two examples
    assert made.called == ["z", "é"] and made.client_id.tolist() == [0, 1]
    assert made.class_name.tolist() == ["no", "yes"]
    assert made.manifest()["client_name"] == ["z", "é"]
    files = tmp_path / "a.h5", tmp_path / "a.json"
    made.save(*files)
    again = Federation.load(*files)
    assert again.called == made.called and again.digests == made.digests
    assert again.class_name.tolist() == ["no", "yes"]
    assert cut("iid", num_clients=2, train_fraction=0.5).client_name is None
    assert made.column_name is None
    (folder / "a.npz").unlink()
    pd.DataFrame(x, columns=[*"abcd"]).assign(y=words).to_csv(folder / "a.csv", index=False)
    cut("iid", num_clients=2, train_fraction=0.5).save(*files)
    assert Federation.load(*files).column_name.tolist() == [*"abcd"]
    (folder / "a.csv").unlink()
    np.savez(folder / "a.npz", x=x, y=np.arange(40) % 2, client=np.repeat([7, 3], 20))
    assert cut("natural").called == [3, 7]
    np.savez(folder / "a.npz", x=x, y=np.arange(40) % 2, client=np.repeat([0, 1], 20))
    manifest = cut("natural").manifest()
    assert "client_name" not in manifest and "class_name" not in manifest


def test_the_receipt_lists_the_content_and_the_state_changes_with_a_file(folder):
    raw = forty(folder)
    files = downloads.files("own", "mine").values()
    fetch(files, raw)
    [listed] = receipt("own", files, raw)["files"]
    assert listed["path"] == "own/mine/a.npz"
    before = downloads.state("own", "mine", raw)
    assert before == downloads.state("own", "mine", raw)
    stat = (folder / "a.npz").stat()
    os.utime(folder / "a.npz", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert downloads.state("own", "mine", raw) != before
    assert downloads.state("digits", None, raw) == ""
    (folder / "a.npz").unlink()
    with pytest.raises(DataError, match="own/mine has no files .*put there your data"):
        fetch(files, raw)


def test_a_file_that_changes_while_it_is_cut_counts_as_changed(folder, tmp_path, monkeypatch):
    raw, cut = forty(folder), build.build
    before = seals.contents(folder / "a.npz")

    def edited(*args):
        made = cut(*args)
        forty(folder, extra=[1])
        return made

    monkeypatch.setattr(build, "build", edited)
    monkeypatch.setattr(provenance, "assert_covered", lambda *roots: None)
    partition = {"kind": "iid", "num_clients": 2, "train_fraction": 0.5}
    spec = {"dataset": "own", "params": {"source": "mine"}, "partition": partition, "seed": 1}
    made = {"raw": raw, "shards": tmp_path / "a.h5", "manifest": tmp_path / "a.json"}
    given = {"spec": canonical_json(spec)} | made
    assert run_here("partition", [f"--{name}={value}" for name, value in given.items()]) == 0
    read = downloads.with_names(before, "own", [folder / "a.npz"], raw)
    assert seals.origin(tmp_path / "a.h5").inputs == read
