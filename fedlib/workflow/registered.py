"""What a paper fixed before its first run, `registered.py` in its folder: in which commit."""

import subprocess
from pathlib import Path

FILE = "registered.py"
SHORT = 10  # characters of a commit that are shown


def note(folder: Path) -> str:
    """What follows a citation, about the registered file of a paper's folder; "" if it has none."""
    if not (folder / FILE).exists():
        return ""
    commit = changed(folder / FILE)
    named = f"commit {commit[:SHORT]}" if commit else "a commit that is not known here"
    return f". What was fixed before the first run ({FILE}) was last changed in {named}"


def changed(file: Path) -> str:
    """The commit in which a file was last changed.

    "" where git cannot tell, or where the file is not as it was committed.
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
