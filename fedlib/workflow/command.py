"""Shared by all scripts: errors in one line, and common arguments."""

import argparse
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

from fedlib import locks
from fedlib.errors import BusyError, ConfigError, DataError, DivergedError, StaleCodeError, plain

MENDABLE = (BusyError, ConfigError, DataError, DivergedError, StaleCodeError)
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE
# Errors of the system, not of the code.
TROUBLES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)
TROUBLES += (errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
TROUBLES += (errno.EEXIST,)  # a file in the place of a folder
NO_MEMORY = "can't allocate memory"  # of PyTorch's error
SEVERAL = {"type": Path, "nargs": "+", "default": []}  # of an argument with any number of files
STOPPING = threading.Event()  # set by the signal that stops this process and its jobs


def run(main: Callable[[], None]) -> int:
    """Run a script's main function -> the exit code of the process.

    1 is an error that the user can fix, with one line on stderr; 130 is Ctrl-C; 141 is a closed
    pipe. Any other exception is a bug of fedlib and keeps its traceback.
    """
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Discard the rest of the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MENDABLE as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:  # also of a package's metadata
        if not error.name or error.name.partition(".")[0] == "fedlib":
            raise
        return _fail(f"{sys.executable} has no {error.name}; take .venv/bin/python (make install)")
    except Exception as error:
        if (reason := _of_the_machine(error)) is None:
            raise
        return _fail(f"{reason}: finished files are whole, unfinished ones were removed")
    return 0


def interrupt_once() -> None:
    """Let only the first Ctrl-C interrupt this process; the second one reaches its jobs only.

    A second interrupt would stop Snakemake in its clean-up, with pages of tracebacks, while it
    waits for jobs to save their state. With this function the jobs end at once, and then Snakemake.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def interrupt(*_: object) -> NoReturn:
    """Interrupt this process, by the first signal only; a handler of signals."""
    STOPPING.set()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def tell_interrupts() -> None:
    """Let an uncaught Ctrl-C print a line, as in `run`, and no traceback from now on."""

    def say(kind: type, error: BaseException, trace: object) -> None:
        if issubclass(kind, KeyboardInterrupt):
            _fail("interrupted")
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = say


def json_argument(text: str, *needed: str) -> dict:
    """The JSON object in a command-line argument, or in the file that `@path` names.

    Raises:
      ConfigError: if it is not a JSON object, or lacks a key that is `needed`.
    """
    try:
        value = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except FileNotFoundError:
        raise ConfigError(f"{text[1:]} does not exist") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"expected JSON text or @path, got {text[:80]!r} ({error})") from None
    if not isinstance(value, dict):
        raise ConfigError(f"expected a JSON object, got {text[:80]!r}")
    if missing := [key for key in needed if key not in value]:
        raise ConfigError(f"the specification lacks {', '.join(missing)}, got {text[:80]!r}")
    return value


def job_parser(doc: str | None, spec: str, **paths: str) -> argparse.ArgumentParser:
    """Arguments of every job: specification, digest of its code, files that it reads and writes.

    Args:
      doc: of its script.
      spec: what is specified, for --help.
      paths: what the files are, by the names of their arguments.
    """
    parser = argparse.ArgumentParser(description=doc)
    what = f"specification of the {spec}, JSON or @file (python -m fedlib spec prints it)"
    parser.add_argument("--spec", required=True, help=what)
    parser.add_argument("--code", help="digest of the code this job was planned with")
    for name, meaning in paths.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=meaning)
    return parser


def run_parser(doc: str | None, **paths: str) -> argparse.ArgumentParser:
    """Arguments of every job of one run; see `job_parser`."""
    read = {"shards": "federation, .h5", "manifest": "its manifest, .json"}
    parser = job_parser(doc, "run", **read, **paths)
    receipts = "receipts of the pretrained weights of the model and its modules, .json"
    parser.add_argument("--weights", **SEVERAL, metavar="RECEIPT", help=receipts)
    devices = ("auto", "cpu", "cuda")
    parser.add_argument("--device", default="auto", choices=devices, help="default: %(default)s")
    parser.add_argument("--gpus", type=int, help="GPUs granted by the workflow; 0 means the CPU")
    executors = "loop, traced, batched or graphs; auto: by device and layers (default: %(default)s)"
    parser.add_argument("--executor", default="auto", help=executors)
    cores = (
        "threads that share out clients on a CPU; any number of them gives the same bits "
        "(default: FEDLIB_THREADS, or 1)"
    )
    parser.add_argument("--threads", type=threads, default=threads(), help=cores)
    return parser


def hold(args: argparse.Namespace, output: Path) -> AbstractContextManager[None]:
    """Lock the checkpoints of a run, whose `output` this process makes; see `locks.exclusive`.

    A job of the workflow may take over from the orphan of a killed workflow.
    """
    lock, succeed = args.checkpoints / "lock", args.code is not None
    return locks.exclusive(lock, str(output.parent), succeed=succeed, report=tell)


def threads(text: str | None = None) -> int:
    """Cores of a training or an evaluation.

    Args:
      text: their number; by default that of `FEDLIB_THREADS`, and 1 without it.

    Raises:
      ConfigError: if it is not a number from 1 on.
    """
    text = text or os.environ.get("FEDLIB_THREADS") or "1"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"FEDLIB_THREADS must be a whole number from 1 on, got {text!r}")
    return int(text)


def exhibit_parser(doc: str | None, *forms: str) -> argparse.ArgumentParser:
    """Arguments of a job that makes one table or figure, with an output in each of `forms`."""
    made = {form: f"output, .{form}" for form in forms}
    read = {"metrics": "tidy metrics, .parquet", "clients": "clients, .parquet"}
    parser = job_parser(doc, "table or figure", **read, **made)
    numbers = "the paper's own numbers, .csv, and the curves beside them, if it has any"
    parser.add_argument("--published", **SEVERAL, help=numbers)
    return parser


def _of_the_machine(error: BaseException | None) -> str | None:
    """The fault of the machine and its remedy; None for any other error.

    PyTorch, HDF5 and matplotlib raise their own errors, with the system's error in the text or the
    context.
    """
    while error is not None:
        if type(error).__name__ == "OutOfMemoryError":  # PyTorch's, which is not imported here
            return (
                "the GPU has not enough memory for one client; run again with FEDLIB_GPU_SLOTS=1, "
                "which puts one job on a card, or device=cpu: it goes on from its checkpoint"
            )
        if isinstance(error, MemoryError) or NO_MEMORY in str(error):
            return "there is not enough memory; stop other jobs or give this one more, run again"
        for number in TROUBLES:
            said = os.strerror(number)
            if getattr(error, "errno", None) == number or said in str(error):
                # Of a copy the second one is written.
                file = getattr(error, "filename2", None) or getattr(error, "filename", None)
                return f"{said}{f': {file}' if file else ''}; mend that and run again"
        error = error.__cause__ or error.__context__
    return None


def _fail(message: str, code: int = 1) -> int:
    print(plain(f"error: {message}"), file=sys.stderr)
    return code


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, flush=True)


class Stop(AbstractContextManager["Stop"]):
    """Whether this process must stop after SIGTERM, Ctrl-C or SIGHUP; called after every round.

    A terminal that closes sends SIGHUP, unless nohup ignores it. A second Ctrl-C ends the process
    at once.
    """

    def __init__(self):
        """Listen from now on."""
        self.signal = 0
        signal.signal(signal.SIGTERM, self._note_signal)
        for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C is ignored in the background
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note_signal)

    def __call__(self) -> bool:
        """Whether a signal has arrived."""
        return bool(self.signal)

    def __exit__(self, kind, *_):
        """Exit a stopped process with 128 plus the number of the signal."""
        if kind is SystemExit and self.signal:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is saved
            raise SystemExit(128 + self.signal) from None

    def _note_signal(self, number: int, _) -> None:
        self.signal = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(1, b"stopping after this round; press Ctrl-C once more to stop at once\n")
