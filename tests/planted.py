"""Whether the tests notice faults that are planted on purpose, one at a time: tests/planted.toml.

  python tests/planted.py            all of them
  python tests/planted.py 3 17       these, counted from 1

Each is planted in a copy of the checkout. The tests that can reach its file run there, those that
reach least first, until one fails. Those marked slow run only where no other has noticed it.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import changed

from fedlib.workflow.provenance import ROOT

FAULTS = ROOT / "tests/planted.toml"


def faults() -> list[dict[str, str]]:
    """All faults: a file, and the text `old` in it that becomes `new`."""
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
    """The first line of pytest on a test that fails; "" if all pass."""
    tests = [
        test for test in changed.TESTS.glob("test_*.py") if changed.can_reach(test, [fault["file"]])
    ]
    tests.sort(key=lambda test: (len(changed.reached(test)[0]), test.name))
    names = [str(test.relative_to(ROOT)) for test in tests]
    path = checkout / fault["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(with_fault(whole, fault), encoding="utf-8")
    try:
        for marked in ("not slow", "slow"):
            words = [sys.executable, "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider"]
            done = subprocess.run(
                [*words, "-m", marked, *names], cwd=checkout, capture_output=True, text=True
            )
            if done.returncode not in (0, 5):  # 5: no test
                lines = [
                    line
                    for line in done.stdout.splitlines()
                    if line.startswith(("FAILED", "ERROR"))
                ]
                return lines[0] if lines else done.stdout[-200:] + done.stderr[-200:]
    finally:
        path.write_text(whole, encoding="utf-8")
    return ""


def main() -> int:
    """Plant and run; exit status 1 if a fault goes unnoticed."""
    known = faults()
    wanted = [int(word) for word in sys.argv[1:]] or range(1, len(known) + 1)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        left_out = shutil.ignore_patterns(".*", "__pycache__", "raw", "results", "figures")
        shutil.copytree(ROOT, checkout, ignore=left_out, symlinks=True)
        for name in ("data/raw", "results", "figures"):
            (checkout / name).mkdir(parents=True, exist_ok=True)
        for number in wanted:
            line = noticed(known[number - 1], checkout)
            missed += not line
            print(f"{number} {known[number - 1]['file']}: {line or 'NOT NOTICED'}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
