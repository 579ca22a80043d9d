"""Locks that end with their process: of a folder that is worked in, and of what a job writes."""

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from workflow import is_there

from fedlib import locks
from fedlib.errors import BusyError
from fedlib.locks import exclusive
from fedlib.workflow.provenance import ROOT

# Works in a folder, says so and stays.
WORKFLOW = """
import sys, time
from fedlib.locks import hold_folder
hold_folder(sys.argv[1])
print("works", flush=True)
time.sleep(1000)
"""
# Holds an output and says so. On SIGTERM it ends after so many seconds, or never.
JOB = """
import signal, sys, time
from fedlib.locks import exclusive
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
with exclusive(sys.argv[1], "it"):
    print("holds", flush=True)
    while not asked or time.monotonic() - asked[0] < float(sys.argv[2]):
        time.sleep(0.01)
sys.exit(143)
"""
# Works in a folder and starts a job, as Snakemake does: without passing on what it has open.
LEADER = """
import subprocess, sys, time
from fedlib.locks import hold_folder
hold_folder(sys.argv[1])
job = subprocess.Popen([sys.executable, "-c", *sys.argv[2:]], stdout=subprocess.PIPE)
job.stdout.readline()
print(job.pid, flush=True)
time.sleep(1000)
"""
# Works in a folder, and starts another process that does so too and outlives it.
PARENT = """
import os, subprocess, sys, time
from fedlib.locks import hold_folder, share
hold_folder(sys.argv[1])
passed, files = share()
child = subprocess.Popen(
    [sys.executable, "-c", *sys.argv[2:]], env=os.environ | passed, pass_fds=files,
    stdout=subprocess.PIPE,
)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def process(code, *arguments):
    """Another process that has said that it is ready, and its first line."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
        try:
            started.said = started.stdout.readline().strip()
            assert started.said
            yield started
        finally:
            started.kill()


def end(started):
    """Kill a process, and wait until it is gone."""
    started.kill()
    started.wait()


@pytest.fixture
def hold(monkeypatch):
    """Function that takes a folder for this process, until the end of the test."""
    monkeypatch.setattr(locks, "_HELD", held := [])
    monkeypatch.setenv(locks.WORKFLOW, "")
    yield locks.hold_folder
    for file in held:
        file.close()


# -- folders ------------------------------------------------------------------------------


def test_a_second_workflow_is_refused_at_once_and_told_of_the_first(tmp_path, hold):
    with process(WORKFLOW, tmp_path / ".snakemake") as first:
        message = rf"{tmp_path} is in use by pid {first.pid} on .* since 20\d\d-.* \(-c {tmp_path}"
        began = time.monotonic()
        with pytest.raises(BusyError, match=message):
            hold(tmp_path / ".snakemake")
        assert time.monotonic() - began < 30  # and not for as long as the first one works
        assert first.poll() is None


def snakemake_lock(folder):
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    lock = folder / "locks/0.output.lock"
    lock.touch()
    return lock


def test_the_locks_of_a_dead_snakemake_are_removed_and_those_of_a_living_one_kept(tmp_path, hold):
    with process(WORKFLOW, tmp_path) as first:
        lock = snakemake_lock(tmp_path)
        with pytest.raises(BusyError):
            hold(tmp_path)
        assert lock.exists()
        end(first)
    hold(tmp_path)
    assert not lock.exists()


def test_a_folder_is_in_use_until_the_last_process_of_a_workflow_has_ended(tmp_path, hold):
    with process(PARENT, tmp_path, WORKFLOW, tmp_path) as parent:
        child = int(parent.said)
        end(parent)
        with pytest.raises(BusyError, match=f"in use by pid {child} "):  # the one that is left
            hold(tmp_path)
        os.kill(child, signal.SIGKILL)
        while is_there(child):
            time.sleep(0.01)
        hold(tmp_path)


def test_a_job_that_outlives_its_workflow_does_not_hold_the_folder(tmp_path, hold):
    with process(LEADER, tmp_path, JOB, tmp_path / "lock", 0) as leader:
        end(leader)
        hold(tmp_path)
        os.kill(int(leader.said), signal.SIGKILL)


# -- outputs ------------------------------------------------------------------------------


def test_an_output_is_refused_while_its_holder_has_not_yet_written_who_it_is(tmp_path):
    with (tmp_path / "lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match=r"process \(one that has just begun\)"):
            exclusive(tmp_path / "lock", "it").__enter__()


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path):
    with process(JOB, tmp_path / "lock", 0) as holder:
        end(holder)
        with exclusive(tmp_path / "lock", "it"):
            assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())


def test_an_orphan_is_asked_to_stop_and_waited_for_however_long_it_takes(tmp_path, hold):
    told = []
    with process(LEADER, tmp_path, JOB, tmp_path / "lock", 1.0) as leader:
        end(leader)
        hold(tmp_path)
        with exclusive(tmp_path / "lock", "it", succeed=True, report=told.append):
            assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())
    assert told[0].startswith(f"waiting for pid {leader.said}, left by a workflow that was killed")
    assert any(f"to finish its round; `kill -9 {leader.said}` gives up" in line for line in told)


def refused(tmp_path, pid: int):
    """The output is refused even to a successor, and the process that writes it left alone."""
    with pytest.raises(BusyError, match=f"pid {pid} on "):
        exclusive(tmp_path / "lock", "it", succeed=True).__enter__()
    time.sleep(0.1)
    assert is_there(pid)


def test_the_job_of_a_living_workflow_is_no_orphan(tmp_path, hold):
    # Of another folder that shares the output with this one.
    with process(LEADER, tmp_path / "a", JOB, tmp_path / "lock", 0) as leader:
        hold(tmp_path / "b")
        refused(tmp_path, int(leader.said))
        os.kill(int(leader.said), signal.SIGKILL)


def test_another_job_of_the_same_workflow_is_no_orphan(tmp_path, hold):
    hold(tmp_path)
    with process(JOB, tmp_path / "lock", 0) as holder:
        refused(tmp_path, holder.pid)


def test_no_other_process_is_asked_to_stop_whatever_number_the_lock_gives(tmp_path, hold):
    """Such as that of a process in another container of the same name."""
    with process(LEADER, tmp_path, JOB, tmp_path / "lock", 0) as leader:
        end(leader)
        hold(tmp_path)
        with subprocess.Popen(["sleep", "60"]) as bystander:
            try:
                text = (tmp_path / "lock").read_text()
                (tmp_path / "lock").write_text(text.replace(leader.said, str(bystander.pid), 1))
                refused(tmp_path, bystander.pid)
            finally:
                bystander.kill()
                os.kill(int(leader.said), signal.SIGKILL)


def test_who_waits_goes_on_when_the_holder_has_ended(tmp_path):
    told = []
    with process(JOB, tmp_path / "lock", 0.5) as holder:
        holder.terminate()
        with exclusive(tmp_path / "lock", "it", wait=True, report=told.append):
            pass
    assert told == [f"waiting for pid {holder.pid} on {socket.gethostname()}, which writes it"]


def test_where_a_file_system_has_no_locks_a_line_says_so_and_work_goes_on(
    tmp_path, hold, monkeypatch, capsys
):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    hold(tmp_path)
    for name in "ab":
        with exclusive(tmp_path / f"out/{name}", "it", succeed=True):
            pass
    lines = capsys.readouterr().err.splitlines()
    said = "warning: the file system of {} has no locks".format
    assert [x.partition(" (")[0] for x in lines] == [said(tmp_path), said(tmp_path / "out")]


def test_processes_of_other_machines_are_left_alone(tmp_path, hold, monkeypatch):
    with process(LEADER, tmp_path, JOB, tmp_path / "lock", 0) as leader:
        end(leader)
        hold(tmp_path)
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        refused(tmp_path, int(leader.said))
        os.kill(int(leader.said), signal.SIGKILL)
