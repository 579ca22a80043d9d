"""Files that vouch for themselves: each holds the digest of its own content, checked on reading.

Somewhere in a sealed file stands `MARK` and 64 hexadecimal digits: the SHA-256 of the file's bytes
with zeros in place of these digits. JSON has room for it in an entry, HDF5 in its user block, and
Parquet among the notes in its footer, so that other programs read the files as ever. Bytes are
compared before any of them is interpreted: what is truncated or changed never reaches a parser.

The standard library is all this needs.
"""

import contextlib
import hashlib
import json
import re
from pathlib import Path

from fedlib.errors import DataError
from fedlib.files import atomic

MARK = b"fedlib-sha256:"
BLANK = MARK + b"0" * 64  # where the digest will be
USERBLOCK = 512  # bytes, the least that HDF5 keeps free at the start of a file
ENTRY = "seal"  # of a JSON object

_SEAL = re.compile(re.escape(MARK) + rb"[0-9a-f]{64}")


def close(path: str | Path) -> None:
    """Fill in the digest of a file that holds `BLANK`.

    Raises:
      ValueError: unless it holds it exactly once.
    """
    content = Path(path).read_bytes()
    found = _SEAL.findall(content)
    if found != [BLANK]:
        raise ValueError(f"{path} must hold one blank seal, found {len(found)} seals")
    with Path(path).open("rb+") as file:
        file.seek(content.index(BLANK))
        file.write(_seal(content))


def close_hdf5(path: str | Path) -> None:
    """`close` an HDF5 file that was made with a user block of `USERBLOCK` bytes."""
    with Path(path).open("rb+") as file:
        file.write(BLANK)
    close(path)


def checked(path: str | Path, remedy: str = "delete it and run again") -> bytes:
    """The content of a sealed file.

    Args:
      remedy: what to do about a damaged one, for the message.

    Raises:
      DataError: if it is missing, or not as it was written.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run the stage that writes it first") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
    found = _SEAL.findall(content)
    if len(found) != 1:
        raise DataError(
            f"{path} is truncated or corrupted, or of another version: it holds {len(found)} "
            f"digests of itself, expected one; {remedy}"
        )
    if found[0] != _seal(content):
        raise DataError(
            f"{path} is truncated or corrupted: its content does not match its digest; {remedy}"
        )
    return content


def write_json(path: str | Path, value: dict) -> None:
    """Write a JSON object atomically, sealed by an entry of its own."""
    sealed = value | {ENTRY: BLANK.decode()}
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(sealed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        close(temporary)


def read_json(path: str | Path, remedy: str = "delete it and run again") -> dict:
    """The object that `write_json` wrote, without its seal.

    Raises:
      DataError: if it is missing, or not as it was written.
    """
    value = json.loads(checked(path, remedy))
    del value[ENTRY]
    return value


def remember(path: str | Path, value: dict) -> None:
    """`write_json` to a cache, where that is possible."""
    with contextlib.suppress(OSError):
        write_json(path, value)


def remembered(path: str | Path) -> dict:
    """What `write_json` wrote to a cache; nothing if it is not there or not whole.

    For what only saves time: who asks finds it out anew.
    """
    try:
        return read_json(path)
    except DataError:
        return {}


def _seal(content: bytes) -> bytes:
    """The seal that `content` should have."""
    blank = _SEAL.sub(BLANK, content)
    return MARK + hashlib.sha256(blank).hexdigest().encode()
