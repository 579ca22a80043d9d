"""The record of software and hardware that every result carries."""

import shutil
import subprocess
import sys

import numpy
import pytest

import fedlib.environment
from fedlib.environment import environment


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout's folder, which the record takes for its own."""
    monkeypatch.setattr(fedlib.environment, "ROOT", tmp_path / "checkout")
    (tmp_path / "checkout").mkdir()
    fedlib.environment._checkout.cache_clear()
    yield tmp_path / "checkout"
    fedlib.environment._checkout.cache_clear()


def test_the_environment_names_versions_and_machine():
    found = environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == numpy.__version__
    assert {"platform", "cpu", "gpu", "commit", "clean"} <= found.keys()


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(folder, *words):
    name = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.check_output(["git", *name, *words], cwd=folder, text=True).strip()


@needs_git
def test_the_commit_is_that_of_the_checkout_and_of_a_linked_worktree(folder, monkeypatch):
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "-m", "Begin")
    git(folder, "worktree", "add", "../linked")
    commit = git(folder, "rev-parse", "HEAD")
    assert environment()["commit"] == commit and len(commit) == 40
    git(folder, "commit", "--allow-empty", "-m", "Go on")
    monkeypatch.setattr(fedlib.environment, "ROOT", folder.parent / "linked")
    assert environment()["commit"] == commit


def is_clean():
    """As the record of a new process has it."""
    fedlib.environment._checkout.cache_clear()
    return environment()["clean"]


@needs_git
def test_a_checkout_is_clean_until_something_is_changed_or_new(folder):
    git(folder, "init")
    (folder / ".gitignore").write_text("results\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "Begin")
    (folder / "results").mkdir()
    (folder / "results/x").touch()
    assert is_clean() is True
    (folder / "method.py").touch()
    assert is_clean() is False
    (folder / "method.py").unlink()
    (folder / ".gitignore").write_text("results\nfigures\n")
    assert is_clean() is False


def test_whether_something_that_git_does_not_know_is_clean_is_unknown(folder, monkeypatch):
    assert is_clean() is None
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("0" * 40)
    assert is_clean() is None  # no repository, whatever it looks like
    monkeypatch.setenv("PATH", "")
    assert is_clean() is None and environment()["commit"] is None
