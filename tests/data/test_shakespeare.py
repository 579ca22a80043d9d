"""Shakespeare: from the complete works to windows of letters, one client per role."""

import string

import numpy as np
import pytest
from data_fixtures import REAL_RAW, federation, needs, put

from fedlib.data import downloads
from fedlib.data.sources import shakespeare
from fedlib.data.sources.shakespeare import read_roles, split_lines, split_role, windows
from fedlib.errors import DataError

WORKS = downloads.table("shakespeare").files["text"]


def by_role(raw):
    read = {"train_fraction": 0.8}
    return federation("shakespeare", "natural", raw, seed=12345, params=read, order="random")


HEADER = "a first line that is skipped\nThe Complete Works\nby William Shakespeare\nSonnet\n"
PLAY = """
1601


{title}

by William Shakespeare


  Enter somebody
{speeches}"""


def works(plays: dict[str, str]) -> str:
    """A text in the layout of etext 100: a header that names the author, then the plays."""
    return HEADER + "".join(PLAY.format(title=t, speeches=s) for t, s in plays.items())


def speech(role: str, num: int, words: str = "words and more words, ") -> str:
    """`num` speeches of a role, of two lines each."""
    return "".join(f"  {role}. {i:03} {words * 4}\n    {words * 3}\n" for i in range(num))


@pytest.fixture(autouse=True)
def any_length(monkeypatch):
    """Made-up texts are shorter than the plays."""
    monkeypatch.setattr(shakespeare, "FEWEST_LINES_OF_TEXT", 0)


@pytest.fixture
def raw(tmp_path):
    """Two plays of two and three roles, with 12 to 30 lines of about 80 characters each."""
    text = works(
        {
            "THE FIRST": speech("Ann", 7) + speech("BOB", 10),
            "THE SECOND": speech("Ann", 15) + speech("CY", 8) + speech("DEE", 6),
        }
    )
    put(tmp_path, WORKS, text.encode())
    return tmp_path


# Roles


def test_roles_are_told_apart_by_play_and_name():
    twice = 2 * speech("ANN", 2) + speech("CY", 3)
    roles = read_roles(works({"ONE": speech("Ann", 2) + speech("BOB", 2), "TWO": twice}))
    assert list(roles) == [("ONE", "ANN"), ("ONE", "BOB"), ("TWO", "ANN"), ("TWO", "CY")]
    assert [len(lines) for lines in roles.values()] == [4, 4, 8, 6]
    assert roles["ONE", "ANN"][0].startswith("000 words and more")


def test_a_speech_goes_on_over_lines_indented_by_four():
    text = works(
        {
            "ONE": "  ANN. Who's\n    there?\n Exit\n    Nay,\n  BOB. Answer\nnot\n    me.\n"
            "  SIR Toby. Stand\n    and\n      unfold\n  BOB. a\n  BOB. b\n"
        }
    )
    roles = read_roles(text)
    # What is indented by less is nobody's, and yet the speech goes on after it: LEAF's rule.
    assert roles["ONE", "ANN"] == ["Who's", "there?", "Nay,"]
    assert roles["ONE", "SIR TOBY"] == ["Stand", "and", "  unfold"]
    assert roles["ONE", "BOB"] == ["Answer", "me.", "a", "b"]


def test_the_comedy_of_errors_is_not_indented():
    title = "THE COMEDY OF ERRORS"
    lines = "ACT I. Scene 1\nANN. one\ntwo\n\n<<THIS\nlost\nBOB. a\nb\nc\nACT II. x\nnobody\n"
    roles = read_roles(works({title: lines}))
    assert roles[title, "ANN"] == ["one", "two", ""]
    assert roles[title, "BOB"] == ["a", "b", "c"]
    assert len(roles) == 2


def test_roles_of_two_lines_and_plays_of_one_role_are_left_out():
    text = works({"ONE": "  ANN. a\n    b\n" + speech("BOB", 2), "TWO": speech("CY", 9)})
    assert list(read_roles(text)) == [("ONE", "BOB")]


def test_nothing_is_read_after_the_plays(monkeypatch):
    text = works({"ONE": speech("ANN", 3) + speech("BOB", 3)})
    first = [line[:6] for line in text.splitlines()[1:]].index("  ANN.")
    monkeypatch.setattr(shakespeare, "PLAYS_END", first + 9)  # the tenth of twelve lines
    found = {role: len(lines) for (_, role), lines in read_roles(text).items()}
    assert found == {"ANN": 6, "BOB": 4}


def test_half_of_the_complete_works_is_refused(raw, monkeypatch):
    lines = (raw / WORKS.path).read_text().count("\n")
    monkeypatch.setattr(shakespeare, "FEWEST_LINES_OF_TEXT", lines)
    assert by_role(raw).num_clients == 5
    monkeypatch.setattr(shakespeare, "FEWEST_LINES_OF_TEXT", lines + 1)
    with pytest.raises(
        DataError, match=f"100.txt is not .* have {lines + 1} lines .*: it has {lines};"
    ):
        by_role(raw)


# Lines


@pytest.mark.parametrize(("num", "last"), [(3, 1), (5, 1), (10, 1), (15, 2), (20, 3), (25, 4)])
def test_the_test_lines_are_the_last_fifth_rounded_as_in_the_paper(num, last):
    lines = [str(number) for number in range(num)]  # section 3.9
    train, test = split_lines(lines, 0.8)
    assert train + test == lines and len(test) == last


def test_a_role_becomes_two_texts_without_line_breaks_and_wide_spaces():
    train, test = split_role([f"line   {number},  " for number in range(20)], 0.8)
    assert test == "line 17,  line 18,  line 19, "
    assert train.count("line") == 17 and train.endswith("line 16, ")


# Windows


@pytest.mark.parametrize(("length", "num"), [(0, 0), (80, 0), (81, 1), (100, 20)])
def test_a_text_has_a_window_for_each_character_that_80_follow(length, num):
    assert windows("x" * length).shape == (num, 81)  # section 3.9: max(0, len - 80)


def test_a_character_outside_the_vocabulary_is_named():
    with pytest.raises(DataError, match=r"outside the vocabulary: \['é'\]"):
        windows("é" * 100)


# Clients


def test_labels_are_the_window_one_character_later(raw):
    built = by_role(raw)
    assert built.num_clients == 5
    assert built.x.shape == built.y.shape and built.x.shape[1] == 80
    assert built.x.dtype == built.y.dtype == np.uint8
    assert np.array_equal(built.x[:, 1:], built.y[:, :-1])
    for client in range(5):
        rows = built.train.of(client)
        assert np.array_equal(built.x[rows[1:]], built.y[rows[:-1]])  # stride 1


def test_the_windows_of_a_client_are_those_of_its_texts(raw):
    built = by_role(raw)
    roles = read_roles((raw / WORKS.path).read_text())
    expected = sorted(
        tuple(max(0, len(text) - 80) for text in split_role(lines, 0.8)) for lines in roles.values()
    )
    sizes = np.stack([built.split(name).sizes for name in ("train", "test")], axis=1)
    assert sorted(map(tuple, sizes.tolist())) == expected


# The complete works, where they are


@needs("shakespeare")
def test_the_complete_works_have_1145_roles_in_36_plays():
    roles = read_roles((REAL_RAW / WORKS.path).read_text())
    assert (len(roles), len({play for play, _ in roles})) == (1145, 36)
    assert sum(map(len, roles.values())) == 106_132
    assert min(map(len, roles.values())) == 3
    texts = [" ".join(split_role(lines, 0.8)) for lines in roles.values()]
    assert set().union(*texts) <= set(string.printable)
