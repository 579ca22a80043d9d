"""Sealed files: each contains the digest of its own content, which is checked on reading.

A sealed file contains `MARK` and 64 hexadecimal digits: the SHA-256 of the file's bytes with zeros
in place of these digits. JSON keeps it in an entry, HDF5 in the user block, and Parquet in the
metadata of the footer, so other programs can still read the files. The digest is checked first, so
a truncated or changed file never reaches a parser.

A result also contains the digests of its specification, code and inputs (`Made`). A job's
specification includes the digests of its inputs' specifications, so one digest covers all stages
before it. Readers compare it with the digest that they need (`check_spec`), and the workflow
remakes files with another one (`fedlib.workflow.freshness`).

This module needs the standard library only.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fedlib import files
from fedlib.errors import DataError
from fedlib.files import atomic, canonical_json

MARK = b"fedlib-sha256:"
BLANK = MARK + b"0" * 64  # replaced by the digest
USERBLOCK = 512  # bytes, the smallest that HDF5 allows
ENTRY = "seal"  # of a JSON object

MADE = "made"  # another entry; also a key in the metadata of a Parquet footer

_SEAL = re.compile(re.escape(MARK) + rb"[0-9a-f]{64}")
_MADE = re.compile(rb"fedlib-made:([0-9a-f]{64}):([0-9a-f]{16}):([0-9a-f]{64}):([0-9a-f]{64})")


class Made(NamedTuple):
    """The origin of a file.

    Attributes:
      spec: `spec_digest` of its job's specification.
      code: digest of the job's code, see `fedlib.workflow.provenance`.
      inputs: `contents` of the files that the job read.
      beside: `contents` of the other files that it wrote.
    """

    spec: str
    code: str
    inputs: str
    beside: str

    def __str__(self) -> str:
        """The form in which files contain it."""
        return ":".join(("fedlib-made", *self))


def spec_digest(spec: object) -> str:
    """Digest of a specification."""
    return hashlib.sha256(canonical_json(spec).encode()).hexdigest()


def contents(*paths: str | Path) -> str:
    """One digest of the contents of files, in this order; their paths do not matter.

    A job takes it before it reads them: a file that changes meanwhile counts as changed afterwards.
    """
    return combine(map(content, paths))


def combine(digests: Iterable[str]) -> str:
    """`contents` of files that have these digests."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def content(path: str | Path) -> str:
    """Digest of a file's content; that of a sealed HDF5 file is read from its first bytes.

    Raises:
      DataError: if there is no such file.
    """
    if not Path(path).exists():
        raise DataError(f"{path} does not exist; run the stage that writes it first")
    with Path(path).open("rb") as file:
        found = _SEAL.match(file.read(USERBLOCK))
    return found[0][len(MARK) :].decode() if found else files.digest(path)


def stand_in(path: str | Path, digest: str) -> None:
    """Write a small file with the `content` digest of a file that is elsewhere, in its place."""
    with atomic(path) as temporary:
        temporary.write_bytes(MARK + digest.encode() + b"\nThe file of this digest is elsewhere.\n")


def is_stand_in(path: str | Path) -> bool:
    """Whether `path` exists and was written by `stand_in`."""
    if not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return bool(_SEAL.match(file.read(len(BLANK))))


def origin(path: str | Path) -> Made | None:
    """The origin of a file; None if the file does not contain it."""
    with Path(path).open("rb") as file:
        begin = file.read(USERBLOCK)
        found = _MADE.search(begin) or _MADE.search(begin + file.read())
    return Made(*(part.decode() for part in found.groups())) if found else None


def check_spec(path: str | Path, found: str | None, expected: str | None) -> None:
    """Check that a file is the result of the expected specification.

    Args:
      found, expected: digests of specifications, or None.

    Raises:
      DataError: if they differ.
    """
    if found != expected:
        short = ["none" if digest is None else f"{digest[:12]}..." for digest in (found, expected)]
        raise DataError(
            f"{path} was made from specification {short[0]}, but {short[1]} is needed; "
            "delete it and run again"
        )


def close(path: str | Path) -> None:
    """Replace `BLANK` in a file by the digest.

    Raises:
      ValueError: unless the file contains `BLANK` exactly once.
    """
    content = Path(path).read_bytes()
    if (found := _SEAL.findall(content)) != [BLANK]:
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
    """Write the origin of an HDF5 file into its user block, after the seal."""
    with Path(path).open("rb+") as file:
        file.seek(len(BLANK))
        file.write(f"\n{made}\n".encode())


def write_origin(path: str | Path, made: Made) -> None:
    """Replace the origin in a sealed file, and seal it anew."""
    content = _MADE.sub(str(made).encode(), Path(path).read_bytes(), count=1)
    Path(path).write_bytes(_SEAL.sub(BLANK, content))
    close(path)


def verify(path: str | Path, remedy: str = "delete it and run again") -> bytes:
    """Check a sealed file; returns its content.

    Args:
      remedy: advice about a damaged file, for the message.

    Raises:
      DataError: if the file is missing or damaged.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run the stage that writes it first") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
    if len(found := _SEAL.findall(content)) != 1:
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
    """Write a JSON object atomically, with a seal as a further entry."""
    sealed = value | {ENTRY: BLANK.decode()}
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(sealed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        close(temporary)


def read_json(
    path: str | Path, remedy: str = "delete it and run again", has: tuple[str, ...] = ()
) -> dict:
    """The object that `write_json` wrote, without its seal.

    Args:
      has: entries that the object must have.

    Raises:
      DataError: if the file is missing, damaged or of another kind.
    """
    content = verify(path, remedy)
    try:
        value = json.loads(content)
        del value[ENTRY]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} is another file: it is not sealed as JSON; {remedy}") from None
    if lacking := [name for name in has if name not in value]:
        raise DataError(f"{path} is another file: it has no {', '.join(lacking)}; {remedy}")
    return value


def remember(path: str | Path, value: dict) -> None:
    """`write_json` to a cache; does nothing if that fails."""
    with contextlib.suppress(OSError):
        write_json(path, value)


def recall(path: str | Path) -> dict:
    """The object that `write_json` wrote to a cache; {} if it is missing or damaged.

    Only for values that the caller can compute again.
    """
    try:
        return read_json(path)
    except DataError:
        return {}


class Cache:
    """A file of values, each found by the digest of the facts on which it depends.

    A missing or damaged file counts as empty, and a failed write is ignored. A file that would
    have more than `most` values starts again with the new ones.
    """

    def __init__(self, path: str | Path, most: int = 20_000):
        self._path, self._most = path, most
        self._known, self._new = recall(path), {}

    def get(self, facts: object) -> Any:
        """The value for `facts`; None if it is not known."""
        return self._known.get(spec_digest(facts))

    def add(self, facts: object, value: object) -> None:
        """Remember the value for `facts`; both must fit into JSON."""
        key = spec_digest(facts)
        self._known[key] = self._new[key] = value

    def find(self, facts: object, find: Callable[[], Any]) -> Any:
        """The value for `facts`: the known one, or the result of `find`."""
        if self.get(facts) is None:
            self.add(facts, find())
        return self.get(facts)

    def write(self) -> None:
        """Add the new values to the file, and keep those that other processes have added."""
        if self._new:
            known = recall(self._path) | self._new
            remember(self._path, known if len(known) <= self._most else self._new)
            self._new = {}


def _seal(content: bytes) -> bytes:
    """The seal that `content` should have."""
    return MARK + hashlib.sha256(_SEAL.sub(BLANK, content)).hexdigest().encode()
