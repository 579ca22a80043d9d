"""The record of software and hardware that every result carries."""

import subprocess
import sys

import pytest

import fedlib.environment
from fedlib.environment import ROOT, environment


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout's folder, which the record takes for its own."""
    monkeypatch.setattr(fedlib.environment, "ROOT", tmp_path / "checkout")
    (tmp_path / "checkout").mkdir()
    return tmp_path / "checkout"


def test_the_environment_names_versions_and_machine():
    import numpy

    found = environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == numpy.__version__
    assert found["threads"] >= 1
    assert {"platform", "cpu", "gpu", "commit"} <= found.keys()


def test_asking_for_the_environment_loads_nothing():
    code = (
        "import sys; from fedlib.environment import environment; environment();"
        "print([m for m in ('torch', 'numpy', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "files",
    [
        {"HEAD": COMMIT},
        {"HEAD": "ref: refs/heads/main", "refs/heads/main": COMMIT},
        {"HEAD": "ref: refs/heads/main", "packed-refs": f"# pack\n{COMMIT} refs/heads/main"},
    ],
    ids=["detached", "branch", "packed"],
)
def test_the_commit_is_read_from_git_s_files(folder, files):
    for name, content in files.items():
        file = folder / ".git" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    assert environment()["commit"] == COMMIT


def test_a_linked_worktree_has_a_commit_too(folder, tmp_path):
    git, linked = tmp_path / "git", tmp_path / "git/worktrees/one"
    (git / "refs/heads").mkdir(parents=True)
    linked.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {linked}\n")
    (linked / "HEAD").write_text("ref: refs/heads/main\n")
    (linked / "commondir").write_text("../..\n")
    (git / "refs/heads/main").write_text(COMMIT + "\n")
    assert environment()["commit"] == COMMIT


def test_without_git_there_is_no_commit_and_no_error(folder):
    assert environment()["commit"] is None
