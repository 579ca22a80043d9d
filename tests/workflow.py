"""Copies of the checkout, and Snakemake on them, for the tests of the workflow."""

import atexit
import base64
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "config.yaml", "workflow", "config", "rules", "profiles", "envs")
PARTS += ("fedlib", "scripts")
SMOKE = "tests/smoke.yaml"
CACHE = Path(tempfile.gettempdir()) / f"fedlib-tests-{os.getuid()}"  # of all tests
HOMES = {"HOME": CACHE / "home", "XDG_CONFIG_HOME": CACHE / "config", "XDG_CACHE_HOME": CACHE}

# Snakemake and what it imports late take seconds to load, so runs of it are forks of one process
# that has them loaded. It must not have fedlib: each copy of the checkout has its own.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["snakemake.cli", "snakemake.utils", "pandas", "yte"])


def copy_checkout(folder: Path) -> Path:
    """The files of this checkout that the workflow consists of, without results.

    With compiled modules, or each process in a copy would compile its own.
    """
    ignored = shutil.ignore_patterns(".*")
    for part in (*PARTS, SMOKE):
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy2(source, target)
    return folder


def python(*words: object, **options) -> subprocess.CompletedProcess:
    """Run Python, in this checkout unless `cwd` is given; what it says is text.

    Args:
      options: of `subprocess.run`.
    """
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **{"cwd": ROOT} | options)


def wait_for(condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    """Whether a process lives; one that has ended and that nobody asked after does not."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")


def clone(finished: Path, folder: Path) -> Path:
    """A copy of a folder with all its times, which Snakemake looks at."""
    subprocess.run(["cp", "-a", f"{finished}/.", folder], check=True)
    return folder


def mark_interrupted(folder: Path, file: str) -> None:
    """Mark a file as Snakemake does while a job writes it."""
    marks = folder / ".snakemake/incomplete"
    marks.mkdir(parents=True, exist_ok=True)
    (marks / base64.urlsafe_b64encode(file.encode()).decode()).touch()


def environment(**changes: str) -> dict:
    """Environment of the jobs: no GPU, one thread, and no cache of other checkouts."""
    fixed = {"FEDLIB_GPU_SLOTS": "0", "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(CACHE)}
    return {**os.environ, **fixed, "PYTHONDONTWRITEBYTECODE": "1", **changes}


def smoke(*arguments: str) -> list[str]:
    """Arguments for Snakemake: `arguments`, and the configuration of the tests."""
    return [*arguments, "--configfile", SMOKE]


def snakemake(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess:
    """Run Snakemake in `folder`, in a fork; its output, both streams together, is `stdout`."""
    arguments = ["--nocolor", *map(str, arguments)]
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        child = _FORKS.Process(target=_snakemake, args=(str(folder), arguments, log.name, changes))
        child.start()
        child.join()
        return subprocess.CompletedProcess(arguments, child.exitcode, log.read())


def dry_run(folder: Path, arguments: Iterable[str] = (), **changes: str) -> tuple[int, str]:
    """Exit code and output of `snakemake --dry-run` in `folder`."""
    done = snakemake(folder, "--dry-run", *arguments, **changes)
    return done.returncode, done.stdout


def _snakemake(folder: str, arguments: list[str], log: str, changes: dict) -> None:
    """In the forked process: be Snakemake."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    os.environ.update(environment(**changes))
    sys.argv[:] = ["snakemake", *arguments]
    from snakemake.cli import main

    try:
        main(arguments)
    finally:
        atexit._run_exitfuncs()  # which a process of `multiprocessing` leaves out
