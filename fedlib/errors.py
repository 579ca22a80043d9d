"""The errors a user can mend: each message says what is wrong, the value, and what would be right.

`fedlib.workflow.command` prints them without a traceback; every other exception is a bug of ours.
"""

import re
import reprlib
import traceback

SHOWN = 200  # characters of a value in a message

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, SHOWN, SHOWN, SHOWN
# What makes a terminal do something rather than show it, and turns the direction of text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""`text` as it may be shown in a terminal: of control characters, only tabs and line ends.

    Names of files, and answers of servers, are anybody's. The others are spelt out: "\x1b".
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class ConfigError(ValueError):
    """The configuration or a declaration names something that does not exist or makes no sense."""


class DataError(ValueError):
    """A file is missing, truncated, corrupted or not what its name says."""


class DivergedError(ArithmeticError):
    """Training produced a loss that is not a finite number."""


class BusyError(RuntimeError):
    """Another process is working on the same output."""


class StaleCodeError(RuntimeError):
    """The code on disk is not the code this job was planned with."""


def shown(value: object) -> str:
    """A value as a message shows it: no deeper than three levels, and no longer than `SHOWN`."""
    text = _SHORT.repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def of_file(error: Exception, path: str, named: str) -> ConfigError:
    """What an error in a user's file of Python says, with the last of its lines that led to it.

    Args:
      path: of the file.
      named: the file, as the message has it.
    """
    lines = [x.lineno for x in traceback.extract_tb(error.__traceback__) if x.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines, error = [error.lineno], type(error)(error.msg)
    where = f", line {lines[-1]}" if lines else ""
    text = " ".join(str(error).split())
    return ConfigError(f"{named}{where}: {type(error).__name__}: {text}")
