"""Files that are whole or not there, and locks that end with their process."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from fedlib.errors import BusyError, DataError
from fedlib.files import atomic, canonical_json, exclusive, read_json, release_stale_locks
from fedlib.provenance import ROOT

# Holds a lock and says so; on SIGTERM it ends, or not.
HOLD = """
import signal, sys, time
from fedlib.files import exclusive
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143) if sys.argv[2] == "polite" else None)
with exclusive(sys.argv[1], "it"):
    print("held", flush=True)
    while True:
        time.sleep(0.01)
"""
ALIVE = """
import sys, time
from fedlib.files import release_stale_locks
release_stale_locks(sys.argv[1])
print("alive", flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def process(code, *arguments):
    """Another process that has said that it is ready."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout.readline()
            yield started
        finally:
            started.kill()


def test_an_exception_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text("old")
    with pytest.raises(RuntimeError), atomic(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_the_temporary_file_has_the_same_suffix_and_the_usual_permissions(tmp_path):
    with atomic(tmp_path / "sub/x.png") as temporary:
        assert temporary.suffix == ".png"
        temporary.write_bytes(b"1")
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "sub/x.png").stat().st_mode == plain.stat().st_mode


def test_canonical_json_does_not_depend_on_the_order_of_keys_and_refuses_nan():
    assert canonical_json({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


@pytest.mark.parametrize("content", [None, "{", ""])
def test_json_that_is_missing_or_broken_is_named(tmp_path, content):
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match="x.json"):
        read_json(file)


def test_a_lock_is_refused_to_a_second_process_and_names_the_first(tmp_path):
    with process(HOLD, tmp_path / "lock", "polite") as holder:
        with pytest.raises(BusyError, match=f"it is being written .*pid {holder.pid} on "):
            with exclusive(tmp_path / "lock", "it"):
                pass


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path):
    with process(HOLD, tmp_path / "lock", "polite") as holder:
        holder.kill()
        holder.wait()
        with exclusive(tmp_path / "lock", "it"):
            assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())


def test_a_successor_asks_the_holder_to_stop_and_takes_over(tmp_path):
    with process(HOLD, tmp_path / "lock", "polite") as holder:
        with exclusive(tmp_path / "lock", "it", succeed=True):
            assert holder.wait(10) == 143


def test_a_successor_gives_up_on_a_holder_that_does_not_stop(tmp_path, monkeypatch):
    monkeypatch.setattr("fedlib.files.PATIENCE", 0.3)
    with process(HOLD, tmp_path / "lock", "deaf") as holder:
        with pytest.raises(BusyError), exclusive(tmp_path / "lock", "it", succeed=True):
            pass
        assert holder.poll() is None


def test_a_successor_leaves_processes_of_other_machines_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    with process(HOLD, tmp_path / "lock", "polite") as holder:
        with pytest.raises(BusyError), exclusive(tmp_path / "lock", "it", succeed=True):
            pass
        time.sleep(0.1)
        assert holder.poll() is None


def snakemake_locks(folder):
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    lock = folder / "locks/0.output.lock"
    lock.touch()
    return lock


def test_the_locks_of_a_dead_snakemake_are_removed(tmp_path):
    lock = snakemake_locks(tmp_path)
    with process(ALIVE, tmp_path):
        assert not lock.exists()


def test_the_locks_of_a_living_snakemake_are_kept_also_after_a_third_one_left(tmp_path):
    with process(ALIVE, tmp_path):
        lock = snakemake_locks(tmp_path)
        with process(ALIVE, tmp_path):
            assert lock.exists()
        with process(ALIVE, tmp_path):
            assert lock.exists()
    with process(ALIVE, tmp_path):
        assert not lock.exists()


def test_a_folder_without_locks_is_fine(tmp_path):
    release_stale_locks(tmp_path / ".snakemake")
