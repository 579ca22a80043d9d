"""What scripts share: an error the user can mend is one line, a bug keeps its traceback."""

import errno
import re
import runpy
import shlex
import signal
import subprocess
import sys
from importlib import metadata

import pytest
import torch
from workflow import python

from fedlib import errors
from fedlib.errors import ConfigError
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT


def raising(error: BaseException):
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    "cls", [x for x in vars(errors).values() if isinstance(x, type) and issubclass(x, Exception)]
)
def test_every_error_of_the_project_is_one_line(cls, capsys):
    assert command.run(raising(cls("alpha must be positive, got 0"))) == 1
    assert capsys.readouterr() == ("", "error: alpha must be positive, got 0\n")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a.h5"),
        OSError("write failed: errno = 28, error message = 'No space left on device'"),  # HDF5
        RuntimeError("[enforce fail] . No space left on device"),  # PyTorch
    ],
)
def test_a_full_disk_is_called_that_also_behind_the_error_of_a_library(error, capsys):
    behind = AttributeError("'Stream' object has no attribute 'pos'")  # matplotlib
    behind.__context__ = error
    for one in (error, behind):
        assert command.run(raising(one)) == 1
        assert capsys.readouterr().err.startswith("error: No space left on device")
    behind.__context__ = KeyError("x")
    with pytest.raises(AttributeError):
        command.run(raising(behind))


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, capsys):
    (tmp_path / "a").touch()
    assert command.run((tmp_path / "a").mkdir) == 1
    assert capsys.readouterr().err.startswith(f"error: File exists: {tmp_path}/a; mend that")


def test_no_message_moves_the_cursor_or_changes_a_terminal(capsys):
    given = "no a\x1b[2J\x07\r\x9b1m\u202e\x00\x7f; é, –,\ttab\nand a line"
    assert command.run(raising(errors.DataError(given))) == 1
    shown = r"no a\x1b[2J\x07\r\x9b1m\u202e\x00\x7f; é, –," + "\ttab\nand a line"
    assert capsys.readouterr().err == f"error: {shown}\n"


def test_an_interrupt_exits_as_shells_expect(capsys):
    assert command.run(raising(KeyboardInterrupt())) == 128 + 2
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.parametrize("error", [KeyError("x"), OSError(errno.EBADF, "no"), ValueError("x")])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(type(error)):
        command.run(raising(error))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON text or @path, got '{'"),
        ("[1]", r"expected a JSON object, got '\[1\]'"),
        ("@/no/such/file", "/no/such/file does not exist"),
    ],
)
def test_an_argument_that_is_neither_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        command.json_argument(text)


@pytest.mark.parametrize(
    ("script", "text", "message"),
    [
        ("table", "{}", "error: the specification lacks kind, federations, runs, got '{}'"),
        ("figure", '{"kind": "x", "federations": [], "runs": []}', "error: kind must be "),
        ("report", "{}", "error: the specification lacks papers, scale, folder, got '{}'"),
        ("metrics", '{"runs": []}', "error: the specification lacks paper, got "),
    ],
)
def test_a_specification_by_hand_that_lacks_something_is_refused_in_one_line(
    script, text, message, capsys, monkeypatch
):
    stage = runpy.run_path(str(ROOT / f"scripts/{script}.py"))
    files = {"table": "csv md tex json", "figure": "pdf png svg json"}
    files |= {"report": "results figures md html", "metrics": "runs parquet csv clients"}
    given = [word for name in files[script].split() for word in (f"--{name}", "x")]
    if script in ("table", "figure"):
        given += ["--metrics", "x", "--clients", "x"]
    monkeypatch.setattr(sys, "argv", [script, "--spec", text, *given])
    assert command.run(stage["main"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(message) and told.count("\n") == 1


def test_a_package_that_is_missing_is_named_with_the_python_that_has_it(capsys):
    module = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    for error in (module, metadata.PackageNotFoundError("torch")):
        assert command.run(raising(error)) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert f"{sys.executable} has no torch" in line and ".venv/bin/python" in line
    with pytest.raises(ModuleNotFoundError):  # a bug
        command.run(raising(ModuleNotFoundError("No module", name="fedlib.x")))


def test_whoever_reads_no_more_gets_no_traceback():
    script = "import sys; from fedlib.workflow import command\n"
    script += "sys.exit(command.run(lambda: print('line\\n' * 100_000)))"
    pipe = (
        f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} | head -1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", pipe], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "line\n", "")


def test_a_training_has_as_many_cores_as_are_asked_for(monkeypatch):
    for given, threads in (("", 1), ("2", 2)):
        monkeypatch.setenv("FEDLIB_THREADS", given)
        assert command.threads() == threads
    for given in ("x", "0"):
        monkeypatch.setenv("FEDLIB_THREADS", given)
        with pytest.raises(ConfigError, match=f"FEDLIB_THREADS .* got '{given}'"):
            command.threads()
        with pytest.raises(ConfigError, match=f"FEDLIB_THREADS .* got '{given}'"):
            command.run_parser("A stage.")


@pytest.mark.parametrize(
    "error, message",
    [
        (PermissionError(13, "Permission denied", "x"), "Permission denied: x"),
        (OSError(30, "Read-only file system", "x"), "Read-only file system: x"),
        (OSError(28, "No space left on device", "from", None, "to"), "left on device: to; mend"),
        (IsADirectoryError(21, "Is a directory", "x"), "Is a directory: x"),
        (OSError(27, "File too large", "x"), "too large: x; mend that and run again"),
        (OSError("HDF5: errno = 5, 'Input/output error'"), "Input/output error; mend that"),
        (torch.OutOfMemoryError("CUDA out of memory"), "FEDLIB_GPU_SLOTS=1"),
        (MemoryError(), "there is not enough memory; stop other jobs"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "there is not enough memory"),
    ],
)
def test_what_the_machine_denies_is_a_line_with_a_remedy(capsys, error, message):
    assert command.run(raising(error)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and re.search(message, line), line


def test_an_interrupt_that_nobody_catches_is_a_line_and_other_errors_keep_their_traceback():
    script = "from fedlib.workflow import command; command.tell_interrupts(); raise {}"
    for error, status, said in (
        ("KeyboardInterrupt", -signal.SIGINT, r"error: interrupted\n"),
        ("KeyError('x')", 1, r"Traceback .*KeyError: 'x'\n"),
    ):
        done = python("-c", script.format(error))
        assert done.returncode == status and re.fullmatch(said, done.stderr, re.DOTALL)


def test_a_second_interrupt_is_left_to_the_jobs():
    script = """
import os, signal
from fedlib.workflow import command
command.interrupt_once()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
os.kill(os.getpid(), signal.SIGINT)
print("and cleaned up")
"""
    done = python("-c", script)
    assert (done.stdout, done.stderr) == ("interrupted\nand cleaned up\n", "")


def test_sigterm_interrupts_snakemake_whatever_it_does_and_once():
    """Its own handler would wait here for ever."""
    script = """
import os, signal, threading
from types import SimpleNamespace
from snakemake.scheduling.job_scheduler import JobScheduler
from fedlib.workflow import command, internals
internals.interrupt_by_sigterm(command.interrupt)
scheduler = SimpleNamespace(_lock=threading.Lock(), _open_jobs=threading.Semaphore(0))
signal.signal(signal.SIGTERM, JobScheduler.exit_gracefully.__get__(scheduler))
with scheduler._lock:
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        print("interrupted")
os.kill(os.getpid(), signal.SIGTERM)
print(command.STOPPING.is_set())
"""
    done = python("-c", script, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\nTrue\n", "")
