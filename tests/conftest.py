"""Fixtures that several test files share."""

import compileall
import contextlib
import fcntl
import gc
import json
import os
import runpy
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import workflow

from fedlib import methods, papers, spec
from fedlib.errors import ConfigError
from fedlib.workflow import own_files, own_methods, preflight, warm
from fedlib.workflow.forkclient import SERVERS
from fedlib.workflow.plan import Plan

# Before PyTorch is imported: one thread is what the workflow uses, and busy cores make more slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test reads what is in the user's home: caches, settings and profiles. Packages that are there
# stay importable.
os.environ.setdefault("PYTHONUSERBASE", site.getuserbase())
for name, folder in workflow.HOMES.items():
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[name] = str(folder)
os.environ.pop("SNAKEMAKE_PROFILE", None)

IID = {"kind": "iid", "num_clients": 4, "train_fraction": 0.8}
LOCAL = {"solver": "sgd", "lr": 0.1, "batch_size": 32}
_COUNTED: dict[str, dict[str, int]] = {}  # outcomes of faults, see `tally`


# One for each process: fixtures of a module go back to it after its last test.
NOWHERE = tempfile.TemporaryDirectory(prefix="pytest-", ignore_cleanup_errors=True)


@contextlib.contextmanager
def elsewhere():
    """Work in an empty folder, and not in the checkout, whose results would be a hidden input."""
    with contextlib.chdir(NOWHERE.name):
        yield
    for path in Path(NOWHERE.name).iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def pytest_configure(config):
    # Or each of the processes that tests start would compile fedlib, where Python may not write.
    if not hasattr(config, "workerinput"):  # which workers of pytest-xdist have
        compileall.compile_dir(workflow.ROOT / "fedlib", quiet=2)
    if own := os.environ.get("FEDLIB_METHOD"):
        try:
            path = own_methods.parse(own).path
            from fedlib.api import runs  # only here: it imports PyTorch

            runs.check_fields(methods.load(path))
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
    # A shell starts what runs in the background, `make test &`, with Ctrl-C ignored, and whatever
    # tests start would ignore it, too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection():
    # Modules and tests stay to the end, and looking for garbage among them takes seconds.
    gc.disable()
    with elsewhere():
        yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    with elsewhere():
        return (yield)


def pytest_collection_modifyitems(items):
    # Workers of pytest-xdist take files in this order: those that take long must not come last.
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def toy_paper(scale="demo", *, name="toy", federations=("digits", "mnist"), runs=None, **changes):
    """A small declaration: FedAvg and FedEM on each federation, a table and a figure of all."""
    data = [
        spec.Data(f, f, IID, 0, f.title(), "iid", notes=(f"{f} is small",)) for f in federations
    ]
    if runs is None:
        runs = [toy_run(f, label) for f in federations for label in ("fedavg", "fedem")]
    shown = {
        "title": "All",
        "caption": "All runs.",
        "labels": tuple(dict.fromkeys(run.label for run in runs)),
        "federations": tuple(dict.fromkeys(run.federation for run in runs)),
    }
    declared = {
        "name": name,
        "title": "A toy",
        "citation": "Nobody, Nowhere",
        "scale": scale,
        "scale_note": "nothing is real",
        "seeds": (3, 4),
        "data": tuple(data),
        "runs": tuple(runs),
        "tables": {"main": spec.tables.Accuracy(**shown, published="table1")},
        "figures": {"curves": spec.figures.AccuracyOverRounds(**shown)},
    }
    return spec.Paper(**declared | changes)


def toy_run(federation="digits", label="fedavg", **changes):
    """A declared run of 20 rounds."""
    declared = {
        "federation": federation,
        "label": label,
        "title": label,
        "method": label,
        "model": "mlp",
        "rounds": 20,
        "local": LOCAL,
    }
    return spec.Run(**declared | changes)


@pytest.fixture
def declare(monkeypatch):
    """Function that makes papers be the given ones: declarations, or functions of the scale."""

    def replace_papers(**declarations):
        def load(name):
            declaration = declarations[name]
            made = declaration if callable(declaration) else lambda scale: declaration
            return SimpleNamespace(declare=made)

        monkeypatch.setattr(papers, "names", lambda: tuple(declarations))
        monkeypatch.setattr(papers, "load", load)

    return replace_papers


@pytest.fixture
def toy(declare):
    """Function that plans the toy paper, declared with `changes`, for a configuration."""

    def make(config=(), **changes):
        declare(toy=lambda scale: toy_paper(**{"scale": scale} | changes))
        return Plan(dict(config))

    return make


@pytest.fixture
def folder(finished, tmp_path):
    """A clone of the finished run to change."""
    return workflow.clone(finished, tmp_path)


@pytest.fixture
def threads_of_torch():
    """Executors with workers change them for the whole process."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A copy of the checkout in which the smoke run is done. Read it, or clone it to change it.

    Workers of pytest-xdist share one.
    """
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if shared.name.startswith("popen-") else shared
    folder, log = shared / "finished", shared / "finished.log"
    with open(shared / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            folder.mkdir()
            done = workflow.snakemake(workflow.copy_checkout(folder), *workflow.smoke())
            log.write_text(f"{done.returncode}\n{done.stdout}")
    code, _, output = log.read_text().partition("\n")
    if code != "0":
        pytest.fail(f"the smoke run failed:\n{output[-5000:]}", pytrace=False)
    return folder


@pytest.fixture(scope="module")
def job():
    """Function that runs a stage's shell command in a folder, in a fork as the workflow does.

    With `options` of `subprocess.run` it is a process of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SERVERS, "")  # `start` sets it for good
        forked = warm.start() if warm.is_wanted("cpu") else sys.executable

        def run(line: str, folder, **options) -> subprocess.CompletedProcess:
            python = sys.executable if options else forked
            words = ["bash", "-c", line.replace("python ", f"{python} ", 1)]
            environment = workflow.environment()
            del environment["PYTEST_CURRENT_TEST"]  # all forks have the same environment
            return subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, **options
            )

        yield run


@pytest.fixture
def tally():
    """Function that counts an outcome of a fault, for the table at the end."""

    def count(fault: str, outcome: str, number: int = 1) -> None:
        outcomes = _COUNTED.setdefault(fault, {})
        outcomes[outcome] = outcomes.get(outcome, 0) + number

    return count


def pytest_terminal_summary(terminalreporter):
    """The table: faults, and how often which outcome."""
    if not _COUNTED:
        return
    terminalreporter.section("faults", sep="-")
    for fault, outcomes in sorted(_COUNTED.items()):
        told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        terminalreporter.write_line(f"{fault}: {told}")


@pytest.fixture
def in_this_process(monkeypatch):
    """Build what is declared here: PyTorch takes seconds to load."""
    answer = runpy.run_path(str(workflow.ROOT / preflight.SCRIPT))["_answer"]

    def answers(wanted):
        return [answer(*asked) for asked in json.loads(json.dumps(wanted))]

    monkeypatch.setattr(preflight, "_answers", answers)
    monkeypatch.setattr(own_files, "loaded_files", lambda *_: {})  # the tests' own
