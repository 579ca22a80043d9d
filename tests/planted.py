"""Whether the tests notice faults that are planted on purpose, one at a time: tests/planted.toml.

  python tests/planted.py            all of them
  python tests/planted.py 3 17       these, counted from 1

Each is planted in a copy of the checkout, where the test runs that noticed it, as the list says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests/planted.toml"
CACHES = (".git", ".venv", ".snakemake", ".pytest_cache", ".ruff_cache", "__pycache__")
EMPTY = ("data/raw", "results", "figures")  # folders that the copy has, without their content


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


def is_noticed(fault: dict[str, str], checkout: Path) -> bool:
    """Whether its test fails with the fault and passes without."""
    path = checkout / fault["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(with_fault(whole, fault), encoding="utf-8")
    missed = _passes(fault["test"], checkout)
    path.write_text(whole, encoding="utf-8")
    return not missed and _passes(fault["test"], checkout)


def _passes(test: str, checkout: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, "OMP_NUM_THREADS": "1", "FEDLIB_TESTS": "all"},
        capture_output=True,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout.decode()[-500:])
    return done.returncode == 0


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
            found = is_noticed(known[number - 1], checkout)
            missed += not found
            told = "noticed" if found else "NOT NOTICED"
            print(f"{number} {known[number - 1]['file']}: {told}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
