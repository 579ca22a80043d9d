"""A process that has libraries loaded and starts jobs by forking: `python forkserver.py FD NAMES`.

An import of PyTorch takes seconds, longer than many jobs. This process imports the named modules
when the first client asks for a job, and forks itself for every job. A job runs its script as
`__main__`, with the arguments, working directory, environment and files of its client
(`forkclient.py`). It imports `fedlib` itself, so the next job sees an edit.

A job gives the same bits as one in a new process:

* The libraries were imported under the job's environment. A client with another one is refused.
* No thread is lost. A server with threads refuses all clients, except for threads that survive a
  fork. It also refuses all clients if an import failed.
* There is no CUDA: `fedlib.workflow.warm` starts no server where jobs may use a GPU.

A refused client starts an ordinary process, and so does one for which no fork could start. This
process ends when the workflow ends, in any way, and then the kernel sends SIGTERM to its jobs, so
trainings save a checkpoint.

It imports the standard library only. It needs Linux, for pidfd and prctl.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

FORK_SAFE = {"jemalloc_bg_thd"}  # of pyarrow; jemalloc stops and starts it around a fork
PATIENCE = 60.0  # seconds in which a client must send its request
SENT_AWAY = 1 << 16  # instead of an exit status: the client must start its own process
PR_SET_PDEATHSIG = 1


class ForkRequest(NamedTuple):
    """A client's request for a job, and the connection, which stays open while the job runs."""

    argv: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]  # standard input, output and error
    connection: socket.socket


class Server:
    """Forks jobs for clients until its standard input ends, which the workflow holds open.

    Attributes:
      listener: socket of new connections.
      names: modules to import before the first job.
      environment: of these imports; None before them.
      ready: whether jobs may be forks of this process.
    """

    def __init__(self, listener: socket.socket, names: Iterable[str]):
        self.listener, self.names = listener, tuple(names)
        self.environment: dict[str, str] | None = None
        self.ready = False
        self.interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.selector = selectors.DefaultSelector()
        self._on(listener, self._answer_client)
        self._on(0, sys.exit)  # the workflow has ended

    def serve(self) -> ForkRequest:
        """Serve as long as the workflow lives; returns only in the forks, with their request."""
        while True:
            for key, _ in self.selector.select():
                if (job := key.data()) is not None:
                    return job

    def _answer_client(self) -> ForkRequest | None:
        """Answer a new client -> its request in the fork, None in this process."""
        connection, _ = self.listener.accept()
        request = None
        with contextlib.suppress(OSError, ValueError, struct.error):  # the client died
            request = receive(connection) if _is_own(connection) else None
        pid, parent = None, os.getpid()
        if request and self._is_ready_for(request.environment):
            quiet = warnings.catch_warnings(action="ignore", category=DeprecationWarning)
            with contextlib.suppress(OSError), quiet:  # there may be no room for a process
                pid = os.fork()  # it warns of threads, see FORK_SAFE
        if pid is None:
            answer(connection, SENT_AWAY)
        elif pid == 0:
            return self._become(parent, request)
        else:
            ended = os.pidfd_open(pid)
            self._on(ended, lambda: self._send_status(pid, ended, connection))
            self._on(connection, lambda: self._pass_signal(pid, connection))
        for file in request.files if request else ():
            os.close(file)
        return None

    def _on(self, file: int | socket.socket, do: Callable[[], ForkRequest | None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, do)

    def _is_ready_for(self, environment: dict[str, str]) -> bool:
        """Whether this process has the libraries that the job would import."""
        if self.environment is None:
            self.environment = environment
            os.environ.clear()
            os.environ.update(environment)
            with contextlib.suppress(Exception):  # the job itself will report it
                for name in self.names:
                    importlib.import_module(name)
                self.ready = not threads()
            gc.collect()
            gc.freeze()  # otherwise garbage collection in each job would copy the libraries
        return self.ready and environment == self.environment

    def _become(self, parent: int, request: ForkRequest) -> ForkRequest:
        """In the new process: end with the server, and take the job's files and folder."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(128 + signal.SIGTERM)
        signal.signal(signal.SIGINT, self.interrupt)
        for key in list(self.selector.get_map().values()):  # so that none is closed later
            key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
        self.selector.close()
        request.connection.close()
        for number, file in enumerate(request.files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request.folder)
        return request

    def _pass_signal(self, pid: int, connection: socket.socket) -> None:
        """Send a client's signal to its job, or end the job if the client has ended."""
        with contextlib.suppress(OSError):
            sent = connection.recv(64)
            for number in sent or [signal.SIGTERM]:
                os.kill(pid, number)
            if sent:
                return
        with contextlib.suppress(ValueError):  # the job's end, of the same moment, closed it
            self.selector.unregister(connection)

    def _send_status(self, pid: int, ended: int, connection: socket.socket) -> None:
        """Send a job's exit status to its client."""
        _, status = os.waitpid(pid, 0)
        self.selector.unregister(ended)
        os.close(ended)
        with contextlib.suppress(KeyError):
            self.selector.unregister(connection)
        answer(connection, os.waitstatus_to_exitcode(status))


def answer(connection: socket.socket, status: int) -> None:
    """Tell a client the exit status of its job, negative for a signal, or `SENT_AWAY`."""
    with contextlib.suppress(OSError), connection:
        connection.sendall(struct.pack("i", status))


def receive(connection: socket.socket) -> ForkRequest:
    """Receive a client's request, see `forkclient.ask`."""
    connection.settimeout(PATIENCE)
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    (length,) = struct.unpack("q", head)
    text = b""
    while len(text) < length:
        if not (part := connection.recv(length - len(text))):
            raise ValueError("the client is gone")
        text += part
    connection.settimeout(None)
    return ForkRequest(*json.loads(text), files, connection)


def _is_own(connection: socket.socket) -> bool:
    """Whether the client is a process of the same user; as in forkclient.py."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] == os.geteuid()


def threads() -> set[str]:
    """Names of the threads of this process that would not survive a fork."""
    others = (task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid()))
    return {(task / "comm").read_text().strip() for task in others} - FORK_SAFE


def main() -> None:
    """Serve; in a job, run its script as Python would."""
    number, *names = sys.argv[1:]
    if has_own_folder := not sys.flags.safe_path:  # this file's, whose modules are not for jobs
        sys.path.pop(0)
    job = Server(socket.socket(fileno=int(number)), names).serve()
    if has_own_folder:
        sys.path.insert(0, os.path.dirname(os.path.abspath(job.argv[0])))
    sys.argv[:] = job.argv
    try:
        runpy.run_path(job.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        leave(end.code)


def leave(status: int) -> None:
    """End this process without a clean-up of its modules, which takes a second.

    Children of `multiprocessing` end in the same way.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
