"""Files that vouch for themselves: each holds the digest of its own content, checked on reading.

Somewhere in a sealed file stands `MARK` and 64 hexadecimal digits: the SHA-256 of the file's bytes
with zeros in place of these digits. JSON has room for it in an entry, HDF5 in its user block, and
Parquet among the notes in its footer, so that other programs read the files as ever. Bytes are
compared before any of them is interpreted: what is truncated or changed never reaches a parser.

A result also says of what it is one (`Made`). The specification of a job names the digests of the
specifications that its inputs are the results of, so that one digest stands for all that was asked
for on the way. Readers compare it with what they were asked for (`check_spec`), and the workflow
makes again what is of something else (`fedlib.workflow.stale`).

The standard library is all this needs.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedlib import files
from fedlib.errors import DataError
from fedlib.files import atomic, canonical_json

MARK = b"fedlib-sha256:"
BLANK = MARK + b"0" * 64  # where the digest will be
USERBLOCK = 512  # bytes, the least that HDF5 keeps free at the start of a file
ENTRY = "seal"  # of a JSON object

MADE = "made"  # likewise, and among the notes in the footer of a Parquet file

_SEAL = re.compile(re.escape(MARK) + rb"[0-9a-f]{64}")
_MADE = re.compile(rb"fedlib-made:([0-9a-f]{64}):([0-9a-f]{16}):([0-9a-f]{64}):([0-9a-f]{64})")


class Made(NamedTuple):
    """Of what a file is the result.

    Attributes:
      spec: `spec_digest` of its job's specification.
      code: digest of the job's code, see `fedlib.workflow.provenance`.
      inputs: `contents` of what the job read.
      beside: `contents` of what it wrote beside this file.
    """

    spec: str
    code: str
    inputs: str
    beside: str

    def __str__(self) -> str:
        """As it stands in files."""
        return ":".join(("fedlib-made", *self))


def spec_digest(spec: Mapping) -> str:
    """Digest of a specification."""
    return hashlib.sha256(canonical_json(spec).encode()).hexdigest()


def contents(*paths: str | Path) -> str:
    """One digest of what files hold, in this order, wherever they are."""
    return combined(map(content, paths))


def combined(digests: Iterable[str]) -> str:
    """`contents` of files that have these digests."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def content(path: str | Path) -> str:
    """Digest of what a file holds; of a sealed HDF5 file the one that it has in its first bytes.

    Raises:
      DataError: if there is no such file.
    """
    if not Path(path).exists():
        raise DataError(f"{path} does not exist; run the stage that writes it first")
    with files.regular(path).open("rb") as file:
        found = _SEAL.match(file.read(USERBLOCK))
    return found[0][len(MARK) :].decode() if found else files.digest(path)


def made(path: str | Path) -> Made | None:
    """Of what a file is the result; None for a file that does not say."""
    with files.regular(path).open("rb") as file:
        found = _MADE.search(file.read(USERBLOCK)) or _MADE.search(file.read())
    return Made(*(part.decode() for part in found.groups())) if found else None


def check_spec(path: str | Path, found: str | None, expected: str | None) -> None:
    """Nothing, if the specification of which a file is the result is what was asked for.

    Args:
      found, expected: digests; None for files that are not said to be of any.

    Raises:
      DataError: otherwise.
    """
    if found != expected:
        told = ["none" if digest is None else f"{digest[:12]}..." for digest in (found, expected)]
        raise DataError(
            f"{path} is the result of something else: of specification {told[0]}, asked for is "
            f"{told[1]}; delete it and run again"
        )


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


def close_hdf5(path: str | Path, made: Made | None = None) -> None:
    """`close` an HDF5 file that was made with a user block of `USERBLOCK` bytes."""
    with Path(path).open("rb+") as file:
        file.write(BLANK)
    if made:
        note_hdf5(path, made)
    close(path)


def note_hdf5(path: str | Path, made: Made) -> None:
    """Write into the user block of an HDF5 file, behind its seal, of what it is the result."""
    with Path(path).open("rb+") as file:
        file.seek(len(BLANK))
        file.write(f"\n{made}\n".encode())


def checked(path: str | Path, remedy: str = "delete it and run again") -> bytes:
    """The content of a sealed file.

    Args:
      remedy: what to do about a damaged one, for the message.

    Raises:
      DataError: if it is missing, or not as it was written.
    """
    try:
        content = files.regular(path).read_bytes()
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


def read_json(
    path: str | Path, remedy: str = "delete it and run again", has: tuple[str, ...] = ()
) -> dict:
    """The object that `write_json` wrote, without its seal.

    Args:
      has: entries of objects of this kind.

    Raises:
      DataError: if it is missing, not as it was written, or of another kind.
    """
    content = checked(path, remedy)
    try:
        value = json.loads(content)
        del value[ENTRY]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} is another file: it is not sealed as JSON; {remedy}") from None
    lacking = [name for name in has if name not in value]
    if lacking:
        raise DataError(f"{path} is another file: it has no {', '.join(lacking)}; {remedy}")
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
