"""Files that are either whole or not there: atomic writes, digests, canonical JSON."""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedlib.errors import DataError


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is flushed and renamed to `path`.

    A crash, a full disk or an exception leaves `path` as it was and removes the temporary file.
    What follows finds the new file, also after a loss of power: the name has been flushed, too.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays, because some writers (matplotlib, numpy) choose the format by it.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _flush_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: str | Path) -> dict:
    """The JSON object in `path`.

    Raises:
      DataError: if the file is missing or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run again") from None


def canonical_json(value: object) -> str:
    """`value` as JSON text that does not depend on the order of keys.

    Raises:
      ValueError: for NaN and infinity, which JSON has no word for.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _flush_names(folder: Path) -> None:
    """Have the names in a folder on disk, where its file system can do that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
