"""Files that are whole or not there."""

import errno
import os
import signal
from pathlib import Path

import pytest
from workflow import python

from fedlib import files
from fedlib.files import atomic, write_text


def test_an_exception_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text("old")
    with pytest.raises(RuntimeError), atomic(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_what_a_killed_process_was_writing_is_removed_by_the_next_one_who_writes_it(tmp_path):
    file, others = tmp_path / "x-y.txt", [tmp_path / ".x-abcd_123.txt", tmp_path / ".x-y-1.txt"]
    for other in others:  # of x.txt, and of somebody else
        other.touch()
    script = f"""
import os, signal
from fedlib.files import atomic
with atomic({str(file)!r}) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert python("-c", script).returncode == -signal.SIGKILL
    [left] = {*tmp_path.iterdir()} - {*others}
    assert left.read_text() == "half"
    write_text(file, "whole")
    assert {*tmp_path.iterdir()} == {file, *others}
    assert file.read_text() == "whole"


def test_what_somebody_else_is_writing_is_left_alone(tmp_path):
    file = tmp_path / "x.txt"
    with atomic(file) as mine:
        mine.write_text("mine")
        with atomic(file) as other:
            assert mine.exists()
            other.write_text("other's")
        assert file.read_text() == "other's"
    assert file.read_text() == "mine"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_temporary_file_that_was_taken_for_abandoned_is_made_again(tmp_path, monkeypatch):
    lock, taken = files.fcntl.flock, []

    def late(handle, kind):
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        lock(handle, kind)

    monkeypatch.setattr(files.fcntl, "flock", late)
    write_text(tmp_path / "x.txt", "whole")
    assert len(taken) == 1
    assert (tmp_path / "x.txt").read_text() == "whole"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_files_are_written_where_a_file_system_has_no_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    (tmp_path / ".x-abcd_123.txt").touch()  # perhaps somebody writes it: nobody can know
    write_text(tmp_path / "x.txt", "whole")
    assert sorted(os.listdir(tmp_path)) == [".x-abcd_123.txt", "x.txt"]


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_folder_is_the_old_or_the_new_one_wherever_it_is_interrupted(
    tmp_path, monkeypatch, fails_at
):
    write_text(tmp_path / "kept/README.md", "mine")
    rename, renamed = Path.rename, []

    def interrupted(path, target):
        renamed.append(path)
        if len(renamed) == fails_at:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), files.folder_instead(tmp_path / "kept") as new:
        (new / "README.md").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept/README.md").read_text() == "mine"
