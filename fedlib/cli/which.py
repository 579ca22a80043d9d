"""Write docs/which-method-when.md from the kept results of the benchmark."""

import argparse
from pathlib import Path

from fedlib import files
from fedlib.environment import git
from fedlib.report import packs, which

PAGE = Path("docs/which-method-when.md")
KEPT = Path("docs/results/benchmark")
REGISTERED = "fedlib/papers/benchmark/registered.py"


def main(args: argparse.Namespace) -> None:
    """Write the page."""
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    text = page(changed(Path(REGISTERED)) or which.commit_in(old))
    files.write_text(PAGE, text)
    print(f"{PAGE} is written from {KEPT / packs.FOLDER}")


def page(commit: str) -> str:
    """The page of the kept results."""
    folder = str(KEPT.relative_to(PAGE.parent))
    return which.text(KEPT / packs.FOLDER, commit, folder, REGISTERED)


def changed(file: Path) -> str:
    """The last commit that changed a file.

    "" if git does not know, or if the file differs from that commit.
    """
    status = git(file.parent, "--no-optional-locks", "status", "--porcelain", "--", file.name)
    return "" if status else git(file.parent, "log", "-1", "--format=%H", "--", file.name) or ""
