"""Files that are either whole or not there: atomic writes, digests, canonical JSON."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedlib.errors import DataError


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is flushed and renamed to `path`.

    A crash, a full disk or an exception leaves `path` as it was and removes the temporary file.
    What follows finds the new file, also after a loss of power: the name has been flushed, too.
    Whoever is killed can remove nothing; the next one who writes `path` does. So the temporary file
    is locked until then.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    handle, temporary = _temporary(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _flush_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _temporary(path: Path) -> tuple[int, Path]:
    """A new file beside `path`, and a handle that has it locked while somebody writes it."""
    while True:
        # The suffix stays, because some writers (matplotlib, numpy) choose the format by it.
        names = {"prefix": f".{path.stem}-", "suffix": path.suffix}
        handle, name = tempfile.mkstemp(dir=path.parent, **names)
        with contextlib.suppress(OSError):  # a file system without locks: nobody else has one, too
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # taken for abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files for `path` of processes that were killed: nobody has them locked."""
    name = re.compile(re.escape(f".{path.stem}-") + r"[a-z0-9_]{8}" + re.escape(path.suffix))
    for file in [one for one in path.parent.iterdir() if name.fullmatch(one.name)]:
        with contextlib.suppress(OSError), file.open("rb+") as content:  # NFS locks no reader
            fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


@contextlib.contextmanager
def folder_instead(folder: str | Path) -> Iterator[Path]:
    """Yields a copy of `folder`, empty if there is none, which takes its place on success.

    An exception leaves `folder` as it was. The copy has the same name, in a temporary folder beside
    the original.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        new, old = Path(temporary) / folder.name, Path(temporary) / "old"
        if folder.exists():
            shutil.copytree(folder, new)
        else:
            new.mkdir()
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def regular(path: str | Path) -> Path:
    """`path`, if reading it comes to an end, as that of a pipe may not.

    Raises:
      DataError: for a pipe, a socket or a device.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{path} is no file; move it away and run again")
    return Path(path)


def canonical_json(value: object) -> str:
    """`value` as JSON text that does not depend on the order of keys.

    Raises:
      ValueError: for NaN and infinity, which JSON has no word for.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with regular(path).open("rb") as file:
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
