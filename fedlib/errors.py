"""Errors that a user can fix: the message says what is wrong, the value, and what would be right.

`fedlib.workflow.command` prints them without a traceback; every other exception is our bug.
"""

import difflib
import re
import reprlib
import traceback
from collections.abc import Iterable

SHOWN = 200  # characters of a value in a message

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, SHOWN, SHOWN, SHOWN
# Characters that control a terminal or turn the direction of text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""`text`, safe to show in a terminal: its control characters are spelt out, as "\x1b".

    Tabs and line ends stay. Names of files and answers of servers can contain any character.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class ConfigError(ValueError):
    """The configuration or a declaration names something that does not exist or makes no sense."""


class DataError(ValueError):
    """A file is missing, truncated or corrupted, or has other content than its name says."""


class DivergedError(ArithmeticError):
    """Training produced a loss that is not a finite number."""


class BusyError(RuntimeError):
    """Another process is working on the same output."""


class StaleCodeError(RuntimeError):
    """The code on disk is not the code with which this job was planned."""


def quote(value: object) -> str:
    """A value for a message: at most three levels deep and `SHOWN` characters long."""
    text = _SHORT.repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def brief(error: Exception) -> str:
    """An exception for a message: its first line with text, at most 1,000 characters of it.

    Its class is in front, unless that is `ValueError`, `ConfigError` or `DataError` with a text.
    """
    # PyTorch adds lines about its own code; other packages begin with an empty line.
    line = next(filter(None, map(str.strip, str(error).splitlines())), "")[:1000]
    alone = type(error) in (ValueError, ConfigError, DataError) and line
    return line if alone else f"{type(error).__name__}: {line}".rstrip(": ")


def nearest(word: object, known: Iterable[str]) -> str:
    """For a message: the known names that are most like `word`, or all of them if none is."""
    known = [*known]
    spelt = {name.lower(): name for name in known}
    near = [spelt[x] for x in difflib.get_close_matches(str(word).lower(), spelt, n=3)]
    return f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(known) or 'none'}"


def of_file(error: Exception, path: str, named: str) -> ConfigError:
    """An error in a user's Python file as a `ConfigError`, with the last line of the file involved.

    Args:
      path: of the file.
      named: name of the file in the message.
    """
    lines = [x.lineno for x in traceback.extract_tb(error.__traceback__) if x.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines, error = [error.lineno], type(error)(error.msg)
    where = f", line {lines[-1]}" if lines else ""
    text = " ".join(str(error).split())
    return ConfigError(f"{named}{where}: {type(error).__name__}: {text}")
