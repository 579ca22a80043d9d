"""Files that are either whole or not there: atomic writes, digests, canonical JSON, locks."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedlib.errors import BusyError, DataError


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is flushed and renamed to `path`.

    A crash, a full disk or an exception leaves `path` as it was and removes the temporary file.
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


@contextlib.contextmanager
def exclusive(path: str | Path, what: str, *, succeed: bool = False) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it however the process ends.

    Args:
      path: names the holder, as "pid host", while it is held.
      what: is protected, for the message.
      succeed: ask a holder on this machine to stop (SIGTERM) and take over, instead of failing.

    Raises:
      BusyError: if another process holds it, or does not stop within `PATIENCE` seconds.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        holder = _lock(file)
        if holder is not None and succeed and _stop(holder):
            holder = _wait(file)
        if holder is not None:
            raise BusyError(
                f"{what} is being written by another process ({holder}); "
                "wait for it or stop it, then run again"
            )
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}")
        file.flush()
        yield


def release_stale_locks(folder: str | Path) -> None:
    """Remove the locks of a Snakemake that was killed, in its `folder` (".snakemake").

    Every Snakemake that comes here shares `folder`/alive until it ends. Whoever finds itself alone
    knows that the locks there are a dead one's, so that the same command simply goes on.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for lock in (folder / "locks").glob("*.lock"):
            lock.unlink(missing_ok=True)
    fcntl.flock(alive, fcntl.LOCK_SH)
    _HELD.append(alive)


_HELD: list = []  # open files whose locks last as long as the process
PATIENCE = 60.0  # seconds; a training job answers SIGTERM after its round


def _lock(file: IO) -> str | None:
    """Take the lock; its holder if that fails."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        pid, _, host = file.read().partition(" ")
        return f"pid {pid or 'unknown'} on {host or 'unknown'}"
    return None


def _stop(holder: str) -> bool:
    """Ask the holder to stop; False if it is not a process of this machine."""
    match = re.fullmatch(r"pid (\d+) on (.*)", holder)
    if match is None or match[2] != socket.gethostname():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(match[1]), signal.SIGTERM)
    return True


def _wait(file: IO) -> str | None:
    """Take the lock as soon as it is free; its holder if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while (holder := _lock(file)) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    return holder


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
