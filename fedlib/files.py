"""Atomic writes, digests and canonical JSON."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def modules(folder: Path) -> tuple[str, ...]:
    """Names of the modules in a package's folder, sorted; not those that begin with "_"."""
    return tuple(sorted(file.stem for file in folder.glob("[!_]*.py")))


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is flushed and renamed to `path`.

    A full disk or an exception leaves `path` unchanged and removes the temporary file. The name is
    flushed, too, so the new file survives a loss of power. A killed process leaves its temporary
    file behind, and the next writer of `path` removes it. Files of living writers are locked and
    stay.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    handle, temporary = _temporary(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.umask(umask := os.umask(0))  # it can be read only where it is set
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        _flush_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _temporary(path: Path) -> tuple[int, Path]:
    """(handle, path) of a new file beside `path`, locked until the handle is closed."""
    while True:
        # Some writers (matplotlib, numpy) choose the format by the suffix.
        handle, name = tempfile.mkstemp(path.suffix, f".{path.stem}-", path.parent)
        with contextlib.suppress(OSError):  # the file system has no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # another process removed it before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files for `path` without a lock: killed processes left them."""
    name = re.compile(re.escape(f".{path.stem}-") + r"[a-z0-9_]{8}" + re.escape(path.suffix))
    for file in [one for one in path.parent.iterdir() if name.fullmatch(one.name)]:
        with contextlib.suppress(OSError), file.open("rb+") as content:  # NFS needs write access
            fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


@contextlib.contextmanager
def folder_instead(folder: str | Path) -> Iterator[Path]:
    """Yields a copy of `folder` (empty if there is none), which replaces it on success.

    An exception leaves `folder` unchanged. The copy has the same name, in a temporary folder beside
    the original.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        new, old = Path(temporary) / folder.name, Path(temporary) / "old"
        if folder.exists():
            shutil.copytree(folder, new, symlinks=True)
        else:
            new.mkdir()
        yield new
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        except BaseException:  # Ctrl-C between the two, too
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def canonical_json(value: object) -> str:
    """`value` as JSON text that does not depend on the order of keys.

    Raises:
      ValueError: for NaN and infinity, which JSON cannot express.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(path: str | Path, algorithm: str = "sha256") -> str:
    """Hexadecimal digest of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _flush_names(folder: Path) -> None:
    """Flush the names in a folder to disk, if its file system supports that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
