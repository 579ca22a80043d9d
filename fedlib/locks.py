"""Locks of folders and outputs, which end with the process that holds them.

One workflow at a time works in a *folder*, from its first step to its report. It locks
`.snakemake/alive`, which contains its description. `python -m fedlib run` passes the open file to
the Snakemake processes that it starts, so the lock lasts as long as any of them.

One job at a time writes an *output*. If the workflow of the job that holds the lock is dead, that
job is an orphan. The new job asks the orphan to save its state, waits until it ends, and continues
from the saved state. It never stops a job of a living workflow.

Some file systems of clusters have no locks. There a warning says that nothing is locked.
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
DESCRIPTOR = "FEDLIB_LOCK"  # environment: number of the open lock file of the parent process
WORKFLOW = "FEDLIB_WORKFLOW"  # environment of jobs: the workflow that started them
WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # errors of file systems without locks

_HELD: list[IO] = []  # open files, locked until the process ends


def hold_folder(folder: str | Path = FOLDER, command: str | None = None) -> None:
    """Lock the folder for this process until it ends.

    Removes the locks that a killed Snakemake left. An environment variable tells the jobs of this
    process to which workflow they belong.

    Args:
      command: of this process, for messages of other processes; None for its command line.

    Raises:
      BusyError: if another workflow works in the folder; the message names its process.
    """
    path = Path(folder).resolve() / "alive"
    if (file := _inherit(path)) is None:
        path.parent.mkdir(exist_ok=True)
        if not take(file := path.open("a+")):
            raise BusyError(_busy_message(path.parent.parent, file))
        holder = {
            "id": f"{os.getpid()}-{time.time_ns()}",
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": command or shlex.join(sys.argv),
        }
        for lock in (path.parent / "locks").glob("*.lock"):
            lock.unlink(missing_ok=True)
    else:
        holder = _holder(file)
    _write(file, json.dumps(holder | {"pid": os.getpid()}))  # the one that holds it longest
    os.environ[WORKFLOW] = f"{holder.get('id')} {path}"
    _HELD.append(file)


def share() -> tuple[dict[str, str], list[int]]:
    """Environment and open files by which a child process shares the lock of this process."""
    files = [file.fileno() for file in _HELD]
    return {DESCRIPTOR: str(files[0])} if files else {}, files


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
      path: file that contains the holder, as "pid host workflow", while it is locked.
      what: name of the protected output, for messages.
      succeed: if the holder is an orphan on this machine, stop it (SIGTERM), wait until it ends and
        take over, instead of failing.
      wait: wait until any other holder ends, too.
      report: called with messages during the wait.

    Raises:
      BusyError: if another process holds it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        while not take(file):
            pid, host, workflow = _owner(file)
            here = host == socket.gethostname()
            whom = f"pid {pid} on {host}" if pid else "one that has just begun"
            if succeed and here and _is_dead(workflow) and _has_open(pid, file):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)
                left = f"pid {pid}, left by a workflow that was killed, to finish its round"
                _await(file, report, f"{left}; `kill -9 {pid}` gives up what it did last")
            elif wait:
                _await(file, report, f"{whom}, which writes {what}")
            else:
                raise BusyError(
                    f"{what} is being written by another process ({whom}); "
                    "wait for it or stop it, then run again"
                )
        _write(file, f"{os.getpid()} {socket.gethostname()} {os.environ.get(WORKFLOW, '')}")
        yield


def take(file: IO, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock of a file if it is free -> whether this process has it now.

    On a file system without locks: True, with a warning on stderr.
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
    """Warn, once, that a folder is not locked."""
    print(
        f"warning: the file system of {folder} has no locks ({reason}): nothing keeps two "
        "processes from writing the same files there, so start one workflow at a time",
        file=sys.stderr,
    )


def _await(file: IO, report: Callable[[str], None], whom: str) -> None:
    """Wait until the holder of a lock ends, then take the lock."""
    report(f"waiting for {whom}")
    while not take(file):
        time.sleep(0.1)


def _has_open(pid: str, file: IO) -> bool:
    """Whether process number `pid` has the file open.

    The number alone is not enough: another process may have it since, or have it in a container or
    on a machine with the same host name.
    """
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed since
                if os.path.samestat(link.stat(), os.fstat(file.fileno())):
                    return True
    return False


def _is_dead(workflow: str) -> bool:
    """Whether a job belongs to a workflow that has ended, with all of its processes."""
    name, _, path = workflow.partition(" ")
    if not path or workflow == os.environ.get(WORKFLOW):
        return False
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        return take(file, fcntl.LOCK_SH) or _holder(file).get("id") != name
    return True


def _inherit(path: Path) -> IO | None:
    """The open lock file of the parent process, or None.

    Jobs do not inherit it: they may outlive the workflow, and must not hold its lock.
    """
    if not (number := os.environ.pop(DESCRIPTOR, "")).isdecimal():
        return None
    with contextlib.suppress(OSError):  # closed, or of another folder
        if os.path.samestat(os.fstat(int(number)), path.stat()):
            os.set_inheritable(int(number), False)
            return os.fdopen(int(number), "a+")
    return None


def _write(file: IO, text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()


def _holder(file: IO) -> dict:
    """The description that the holder of a folder wrote; {} if there is none."""
    file.seek(0)
    with contextlib.suppress(ValueError):
        return json.loads(file.read())
    return {}


def _busy_message(folder: Path, file: IO) -> str:
    if not (holder := _holder(file)):  # it has not written its description yet
        return f"another process has just begun to work in {folder}; wait for it or stop it"
    return (
        f"{folder} is in use by pid {holder['pid']} on {holder['host']} since {holder['since']} "
        f"({holder['command']}); wait for it or stop it, then run again"
    )


def _owner(file: IO) -> tuple[str, str, str]:
    """(pid, host, workflow) of the job that holds an output."""
    file.seek(0)
    match = re.fullmatch(r"(\d+) (\S+) ?(.*)", file.read())
    return match.groups() if match else ("", "", "")  # it has not written them yet
