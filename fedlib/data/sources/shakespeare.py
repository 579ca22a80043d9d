"""Shakespeare: the next character in the lines of the plays' roles, which are natural clients.

An example is a window of 80 characters; its labels are the window one character later. A window
starts at every character of a text, and the last lines of a role are its test text. Characters are
numbered as in Python's `string.printable`.

Source: Project Gutenberg's etext 100 of 1994, cut into roles as LEAF does (S. Caldas et al., 2018,
  arXiv:1812.01097, preprocess_shakespeare.py, after McMahan et al., AISTATS 2017), and into windows
  as FedEM does (Marfoq et al., NeurIPS 2021); pFedMM's README, section 3.9.
"""

import re
import string
from pathlib import Path

import numpy as np

from fedlib.data import downloads
from fedlib.data.examples import TEST, TRAIN, Examples, ownership
from fedlib.errors import DataError

VOCABULARY = string.printable
NUM_CLASSES = len(VOCABULARY)  # 100
HAS = ("owner", "part")
WINDOW = 80  # characters
FEWEST_LINES = 3  # of a role; LEAF leaves out smaller ones
PLAYS_END = 124_195  # line of the text, of LEAF's counting
FEWEST_LINES_OF_TEXT = PLAYS_END

TEXT = "shakespeare/100.txt"  # below data/raw/, for messages

_AUTHOR = "by William Shakespeare"
_COMEDY_OF_ERRORS = "THE COMEDY OF ERRORS"  # the only play without indents
_SPEECH = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)")
_CONTINUED = re.compile(r"    (.*)")
_SPEECH_UNINDENTED = re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)")
_CONTINUED_UNINDENTED = re.compile(r"(.*)")


def read(raw: Path, *, train_fraction: float) -> Examples:
    """The windows of all roles, role by role, from the raw file below `raw`.

    Lines are split into parts before they become windows, so the parts do not overlap, although
    adjacent windows of a text share 79 characters. Inputs and labels are uint8: 4 million windows
    take 0.7 GB.

    Args:
      raw: folder of raw files.
      train_fraction: of a role's lines; the last lines are its test part.

    Raises:
      DataError: if the raw file is missing or not the complete works.
    """
    try:
        text = downloads.files("shakespeare")["text"].read(raw).decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"{TEXT} is not plain ASCII ({error})") from None
    _check_whole(text)
    texts = [split_role(lines, train_fraction) for lines in read_roles(text).values()]
    pool = [windows(text) for role in texts for text in role]  # [n, WINDOW + 1] each
    sizes = [len(part) for part in pool]
    x, y = np.empty((2, sum(sizes), WINDOW), np.uint8)
    np.concatenate([part[:, :-1] for part in pool], out=x)
    np.concatenate([part[:, 1:] for part in pool], out=y)
    return Examples(x, y, NUM_CLASSES, **ownership(sizes, TRAIN, TEST))


def _check_whole(text: str) -> None:
    """Raises DataError for another text, or one that ends early: no checksum is published."""
    lines = text.count("\n")
    if lines < FEWEST_LINES_OF_TEXT or text.count(_AUTHOR) < 2:
        raise DataError(
            f"{TEXT} is not the complete works, whose plays have {FEWEST_LINES_OF_TEXT:,} lines "
            f"and name their author: it has {lines:,}; delete it and its archive, and run again"
        )


def windows(text: str) -> np.ndarray:
    """All runs of 81 characters, as numbers; a view, not a copy -> [max(0, len - 80), 81]

    Raises:
      DataError: if a character is not in the vocabulary.
    """
    if strange := set(text) - set(VOCABULARY):
        raise DataError(f"the text has characters outside the vocabulary: {sorted(strange)}")
    numbers = np.array([VOCABULARY.index(character) for character in text], np.uint8)
    if len(numbers) <= WINDOW:
        return np.empty((0, WINDOW + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(numbers, WINDOW + 1)


def split_role(lines: list[str], train_fraction: float) -> tuple[str, str]:
    """Training and test text of a role, each without line breaks."""
    lines = [re.sub(" {2,}", " ", line) for line in lines]
    train, test = split_lines(lines, train_fraction)
    return " ".join(train), " ".join(test)


def split_lines(lines: list[str], fraction: float) -> tuple[list[str], list[str]]:
    """The first lines, and the last max(1, int((1 - fraction) * n)) lines.

    This is the papers' formula, rounding included: for 10 lines, int((1 - 0.8) * 10) is 1, not 2.
    """
    num_last = max(1, int((1 - fraction) * len(lines)))
    return lines[: len(lines) - num_last], lines[len(lines) - num_last :]


def read_roles(text: str) -> dict[tuple[str, str], list[str]]:
    """The lines of each role, by (play, role) in the order of the text; LEAF's rules.

    Plays with a single role, and roles of fewer than three lines, are left out.
    """
    found = {}
    for title, roles in _plays(text):
        for role, lines in roles.items():
            if len(roles) > 1 and len(lines) >= FEWEST_LINES:
                found.setdefault((title, role), []).extend(lines)
    return found


def _plays(text: str) -> list[tuple[str, dict[str, list[str]]]]:
    """Title, and lines of each role, of all works that name Shakespeare as the author."""
    lines = text.splitlines()[1:]
    authored = [number for number, line in enumerate(lines) if _AUTHOR in line]
    first = authored[1] - 5  # the first of them is in the header
    plays, role, errors = [], None, False
    for number in range(first, min(len(lines), PLAYS_END + 1)):
        if _AUTHOR in (line := lines[number]):
            title = _title(lines, number)
            errors, role = title == _COMEDY_OF_ERRORS, None
            plays.append((title, {}))
            continue
        speech = (_SPEECH_UNINDENTED if errors else _SPEECH).match(line)
        continued = (_CONTINUED_UNINDENTED if errors else _CONTINUED).match(line)
        if speech:
            role = speech[1].upper()
            if errors and role.startswith("ACT "):
                role = None
            else:
                plays[-1][1].setdefault(role, []).append(speech[2])
        elif role and continued:
            if errors and line.startswith("<"):
                role = None
            else:
                plays[-1][1][role].append(continued[1])
    return plays


def _title(lines: list[str], number: int) -> str:
    """The title, two to seven lines above the line that names the author."""
    return next(filter(None, [lines[number - distance].strip() for distance in range(2, 8)]), "")
