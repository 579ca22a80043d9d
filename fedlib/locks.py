"""Locks that end with the process that holds them, and what to do about who holds one.

A *folder* is worked in by one workflow at a time, from its first step to its report. It holds
`.snakemake/alive`, which says who it is. `scripts/workflow.py` passes the open file on to the
Snakemakes that it starts, so that the lock lasts as long as any of them, and no longer.

An *output* is written by one job at a time. A job that finds it locked by a job of another workflow
which is dead takes it for that one's orphan: it asks the orphan to save its state, waits until that
has been done and goes on from there. A job that anybody living has started is left alone.

Where a file system has no locks, as some of clusters have not, nothing is locked, and that is said.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from fedlib.errors import BusyError

FOLDER = ".snakemake"
DESCRIPTOR = "FEDLIB_LOCK"  # environment: number of the open lock file that was passed on
WORKFLOW = "FEDLIB_WORKFLOW"  # environment of jobs: which workflow they belong to
PATIENCE = 60.0  # seconds between two lines of who waits; an orphan answers after its round
WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # what file systems without locks say

_HELD: list[IO] = []  # open files whose locks last as long as the process


def hold_folder(folder: str | Path = FOLDER, command: str | None = None) -> IO:
    """Take the folder for this process, until it ends; the open lock file.

    The locks that a Snakemake left which was killed are removed. Jobs that this process starts
    know that they belong to it.

    Args:
      command: what this process is doing, for the message to others; its command line if None.

    Raises:
      BusyError: at once, naming the other process, if another workflow works in the folder.
    """
    path = Path(folder).resolve() / "alive"
    file = _passed_on(path)
    if file is None:
        path.parent.mkdir(exist_ok=True)
        file = path.open("a+")
        if not take(file):
            raise BusyError(_occupied(path.parent.parent, file))
        holder = {
            "id": f"{os.getpid()}-{time.time_ns()}",
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": command or shlex.join(sys.argv),
        }
        _write(file, json.dumps(holder))
        for lock in (path.parent / "locks").glob("*.lock"):
            lock.unlink(missing_ok=True)
    os.environ[WORKFLOW] = f"{_holder(file).get('id')} {path}"
    _HELD.append(file)
    return file


@contextlib.contextmanager
def exclusive(
    path: str | Path,
    what: str,
    *,
    succeed: bool = False,
    wait: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it however the process ends.

    Args:
      path: names the holder, as "pid host workflow", while it is held.
      what: is protected, for the message.
      succeed: ask a holder that is an orphan on this machine to stop (SIGTERM), wait until it has
        and take over, instead of failing.
      wait: for any other holder, too, until it has ended.
      report: gets a line now and then while it waits.

    Raises:
      BusyError: if another process holds it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        while not take(file):
            pid, host, workflow = _owner(file)
            here = host == socket.gethostname()
            if succeed and here and _is_dead(workflow) and _has_open(pid, file):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)
                whom = f"pid {pid}, left by a workflow that was killed, to finish its round"
                _await(file, report, whom, f"; `kill -9 {pid}` gives up what it did last")
            elif wait:
                _await(file, report, f"pid {pid} on {host}, which writes {what}")
            else:
                raise BusyError(
                    f"{what} is being written by another process (pid {pid} on {host}); "
                    "wait for it or stop it, then run again"
                )
        _write(file, f"{os.getpid()} {socket.gethostname()} {os.environ.get(WORKFLOW, '')}")
        yield


def take(file: IO, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock of a file if it is free; whether that worked.

    Where the file system has no locks it always works, and a line on stderr says so.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT:
            raise
        _tell_unlocked(str(Path(file.name).parent), error.strerror)
    return True


@functools.cache
def _tell_unlocked(folder: str, reason: str) -> None:
    """Say, once, that nobody is kept from a folder."""
    print(
        f"warning: the file system of {folder} has no locks ({reason}): nothing keeps two "
        "processes from writing the same files there, so start one workflow at a time",
        file=sys.stderr,
    )


def _await(file: IO, report: Callable[[str], None], whom: str, hint: str = "") -> None:
    """Return when the holder of a lock has ended, and the lock is taken."""
    told = time.monotonic()
    report(f"waiting for {whom}")
    while not take(file):
        if time.monotonic() - told >= PATIENCE:
            told = time.monotonic()
            report(f"still waiting for {whom}{hint}")
        time.sleep(0.1)


def _has_open(pid: str, file: IO) -> bool:
    """Whether that process, as this one sees it, has the file open.

    Numbers are given anew, and those of another container or machine of that name are others'.
    """
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed since
                if os.path.samestat(link.stat(), os.fstat(file.fileno())):
                    return True
    return False


def _is_dead(workflow: str) -> bool:
    """Whether a job belongs to a workflow, and nobody of it is left."""
    name, _, path = workflow.partition(" ")
    if not path or workflow == os.environ.get(WORKFLOW):
        return False
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        free = take(file, fcntl.LOCK_SH)
        return free or _holder(file).get("id") != name
    return True


def _passed_on(path: Path) -> IO | None:
    """The lock file that the parent process holds and has passed on, if there is one.

    It is not passed on further: jobs may outlive the workflow, and must not hold its lock.
    """
    number = os.environ.pop(DESCRIPTOR, "")
    if not number.isdecimal():
        return None
    with contextlib.suppress(OSError):  # not open any more, or the folder is another one
        if os.path.samestat(os.fstat(int(number)), path.stat()):
            os.set_inheritable(int(number), False)
            return os.fdopen(int(number), "a+")
    return None


def _write(file: IO, text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()


def _holder(file: IO) -> dict:
    """What the holder of a folder says of itself."""
    file.seek(0)
    with contextlib.suppress(ValueError):
        return json.loads(file.read())
    return {}


def _occupied(folder: Path, file: IO) -> str:
    holder = _holder(file)
    if not holder:  # it has begun this moment
        return f"another process has just begun to work in {folder}; wait for it or stop it"
    return (
        f"{folder} is in use by pid {holder['pid']} on {holder['host']} since {holder['since']} "
        f"({holder['command']}); wait for it or stop it, then run again"
    )


def _owner(file: IO) -> tuple[str, str, str]:
    """(pid, host, workflow) of the job that holds an output."""
    file.seek(0)
    match = re.fullmatch(r"(\d+) (\S+) ?(.*)", file.read())
    return match.groups() if match else ("unknown", "unknown", "")
