"""Whether the tests notice faults that are planted on purpose, one at a time: tests/planted.toml.

  python tests/planted.py            all of them
  python tests/planted.py 3 17       these, counted from 1

Each is planted in a copy of the checkout. There the test runs that noticed it last, as the list
says. If that passes, all tests run that can reach the file until one fails: first those whose text
names the module, then the others, and at last those marked slow. Name that one in the list.
"""

import multiprocessing
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests/planted.toml"
CACHES = (".git", ".venv", ".snakemake", ".pytest_cache", ".ruff_cache", "__pycache__")
EMPTY = ("data/raw", "results", "figures")  # folders that the copy has, without their content

# Large libraries take seconds to load, so tests are forks of one process that has them loaded. It
# must not have fedlib, of which the copy has its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in conftest.py, which comes after PyTorch here
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pytest", "torch", "pandas", "h5py", "jinja2"])


def faults() -> list[dict[str, str]]:
    """All faults: a file, the text `old` in it that becomes `new`, the `test` that notices it."""
    return tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]


def with_fault(text: str, fault: dict[str, str]) -> str:
    """A file's text with a fault.

    Raises:
      ValueError: unless its text stands there exactly once.
    """
    if text.count(fault["old"]) != 1:
        raise ValueError(
            f"{fault['file']} has {fault['old']!r} {text.count(fault['old'])} times, expected once"
        )
    return text.replace(fault["old"], fault["new"])


def noticed(fault: dict[str, str], checkout: Path) -> str:
    """The first line of pytest on a test that fails with the fault alone; "" if all pass."""
    return _noticed(fault, checkout, [fault["test"]]) or _searched(fault, checkout)


def _searched(fault: dict[str, str], checkout: Path) -> str:
    """The same, of the tests that can reach the file."""
    sys.path.insert(0, str(ROOT))
    import changed

    tests = [
        test
        for test in changed.TESTS.rglob("test_*.py")
        # What looks for the text of a fault in the code would notice every one.
        if changed.can_reach(test, [fault["file"]]) and test.name != "test_planted.py"
    ]
    stem = Path(fault["file"]).stem
    reach = {test: len(changed.reached(test)[0]) for test in tests}
    tests.sort(key=lambda test: (stem not in test.stem, reach[test], test.name))
    near = [test for test in tests if stem in test.stem or stem in test.read_text("utf-8")]
    far = [test for test in tests if test not in near]
    for marked, these in (("not slow", near), ("not slow", far), ("slow", tests)):
        names = [str(test.relative_to(ROOT)) for test in these]
        if line := _noticed(fault, checkout, names, "-m", marked):
            return line
    return ""


def _noticed(fault: dict[str, str], checkout: Path, names: list[str], *words: str) -> str:
    """The same, of the tests of these names."""
    path = checkout / fault["file"]
    whole = path.read_text(encoding="utf-8")
    left_out: list[str] = []  # tests that fail in the copy, whatever is planted
    while names:
        path.write_text(with_fault(whole, fault), encoding="utf-8")
        line = _failure(checkout, *words, *names, *left_out)
        path.write_text(whole, encoding="utf-8")
        if not line:
            break
        test = line.split()[1].partition("[")[0]  # with all of its parameters
        if not _failure(checkout, test):
            return line
        if test in names:  # it cannot even be imported there
            names = [name for name in names if name != test]
        else:
            left_out.append(f"--deselect={test}")
    return ""


def _failure(checkout: Path, *words: str) -> str:
    """The first line of pytest on a test that fails, "FAILED tests/test_x.py::test_y - ..."."""
    arguments = ["-xq", "--tb=no", "-p", "no:cacheprovider", *words]
    with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
        child = _FORKS.Process(target=_pytest, args=(str(checkout), arguments, log.name))
        child.start()
        child.join()
        said = log.read()
    if child.exitcode in (0, 5):  # 5: no test
        return ""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not lines or child.exitcode == 4:  # no such test
        raise RuntimeError(said[-500:])
    return lines[0]


def _pytest(checkout: str, arguments: list[str], log: str) -> None:
    """In the forked process: be pytest."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(checkout)
    own = str(ROOT / "tests")
    sys.path[:] = [checkout, *(entry for entry in sys.path if entry not in (own, str(ROOT)))]
    import pytest

    sys.exit(int(pytest.main(arguments)))


def _left_out(folder: str, names: list[str]) -> list[str]:
    """Of the names in a folder of the checkout those that are not copied."""
    made = {ROOT / name for name in EMPTY}
    return [name for name in names if name in CACHES or Path(folder, name) in made]


def main() -> int:
    """Plant and run; exit status 1 if a fault goes unnoticed."""
    known = faults()
    wanted = [int(word) for word in sys.argv[1:]] or range(1, len(known) + 1)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        shutil.copytree(ROOT, checkout, ignore=_left_out, symlinks=True)
        for name in EMPTY:
            (checkout / name).mkdir(parents=True, exist_ok=True)
        for number in wanted:
            line = noticed(known[number - 1], checkout)
            missed += not line
            print(f"{number} {known[number - 1]['file']}: {line or 'NOT NOTICED'}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
