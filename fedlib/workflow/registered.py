"""The commit of `registered.py`, the settings that a paper fixed before its first run."""

import subprocess
from pathlib import Path

FILE = "registered.py"
SHORT = 10  # characters shown of a commit


def note(folder: Path) -> str:
    """A note after a citation about the paper's registered file; "" if it has none."""
    if not (folder / FILE).exists():
        return ""
    commit = changed(folder / FILE)
    named = f"commit {commit[:SHORT]}" if commit else "a commit that is not known here"
    return f". What was fixed before the first run ({FILE}) was last changed in {named}"


def changed(file: Path) -> str:
    """The last commit that changed a file.

    "" if git does not know, or if the file differs from that commit.
    """
    try:
        status, log = (
            subprocess.run(
                ["git", "--no-optional-locks", *words, "--", file.name],
                cwd=file.parent,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for words in (("status", "--porcelain"), ("log", "-1", "--format=%H"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if status else log
