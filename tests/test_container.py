"""The container file belongs to the lock, and a linter finds nothing in it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import workflow

from scripts import container

FILE = workflow.ROOT / "Containerfile"


def hadolint() -> str | None:
    """The linter, beside this Python or elsewhere."""
    return shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )


def test_the_container_file_is_the_one_of_this_lock():
    assert FILE.read_text(encoding="utf-8") == container.containerfile(workflow.ROOT)


def test_another_lock_makes_another_container_file(tmp_path):
    folder = workflow.copy_checkout(tmp_path)
    shutil.copy(workflow.ROOT / "requirements.lock", folder)
    assert container.containerfile(folder) == FILE.read_text(encoding="utf-8")
    with (folder / "requirements.lock").open("a") as lock:
        lock.write("one-more==1.0\n")
    assert container.containerfile(folder) != FILE.read_text(encoding="utf-8")


def test_the_container_has_all_that_the_workflow_consists_of():
    copied = re.findall(r"^COPY (.*) \./", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert names == {*workflow.PARTS, "requirements.lock"}


def test_what_the_container_copies_is_not_ignored():
    lines = (workflow.ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert not set(lines) & {*workflow.PARTS, "requirements.lock"}


@pytest.mark.skipif(hadolint() is None, reason="needs hadolint (make test-environments)")
def test_hadolint_finds_nothing_in_the_container_file():
    done = subprocess.run([hadolint(), FILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(hadolint() is None, reason="needs hadolint (make test-environments)")
def test_hadolint_would_find_a_package_without_a_version(tmp_path):
    bad = tmp_path / "Containerfile"
    bad.write_text(FILE.read_text(encoding="utf-8") + "RUN pip install numpy\n", encoding="utf-8")
    done = subprocess.run([hadolint(), bad], capture_output=True, text=True)
    assert done.returncode == 1 and "DL3013" in done.stdout
