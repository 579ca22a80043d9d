"""What clients keep in a file: the same bits, no memory of the process, nothing left behind."""

import errno
import gc
import os
from pathlib import Path

import pytest
import torch
from support import cohort_of, run, same_bits, sgd, tiny_task, toy_federation

from fedlib import mapped
from fedlib.engine import scratch
from fedlib.engine.solvers import Adam
from fedlib.methods.fedavg import FedAvg
from fedlib.methods.local import Local
from fedlib.run.checkpoint import flatten, load_tensors, restore, save_tensors
from fedlib.tree import Rows


@pytest.fixture
def no_room(monkeypatch):
    """A machine whose memory is too small for anything that clients keep."""
    monkeypatch.setattr(scratch, "ROOM_SHARE", 0)
    gc.collect()


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trained(local, rounds=3):
    method, federation = FedAvg(task=tiny_task(), local=local), toy_federation()
    return run(method, federation, [[0, 1], [2, 0], [1, 2]][:rounds])


@pytest.mark.parametrize("local", [sgd(), Adam(lr=0.01, batch_size=4)], ids=["sgd", "adam"])
def test_momenta_in_a_file_have_the_same_bits(local, monkeypatch):
    in_memory = trained(local)
    monkeypatch.setattr(scratch, "ROOM_SHARE", 0)
    before = len(mapped._maps)
    in_files = trained(local)
    assert len(mapped._maps) > before
    assert same_bits(in_memory, in_files)


def test_models_of_the_clients_own_in_a_file_have_the_same_bits(monkeypatch):
    def kept():
        method, federation = Local(task=tiny_task(), local=sgd(momentum=0.0)), toy_federation()
        return run(method, federation, [[0, 1], [2, 0]])

    in_memory, before = kept(), len(mapped._maps)
    monkeypatch.setattr(scratch, "ROOM_SHARE", 0)
    in_files = kept()
    assert len(mapped._maps) == before + 2  # of client 1, and of the others
    assert same_bits(in_memory, in_files)


def test_a_file_is_gone_with_its_last_tensor(no_room, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(mapped._maps)
    state = trained(sgd(), rounds=1)
    assert len(mapped._maps) == before + 1
    assert not list(tmp_path.iterdir())  # it has no name
    del state
    gc.collect()
    assert len(mapped._maps) == before


def test_a_state_in_files_is_saved_and_restored(no_room, tmp_path):
    state = trained(sgd())
    digest = save_tensors(tmp_path / "state.pt", flatten(state))
    assert same_bits(state, restore(state, load_tensors(tmp_path / "state.pt", digest)))


def test_rows_in_a_file_take_no_memory(no_room):
    rows = Rows({"w": torch.full((2**22,), float(c))} for c in range(4))  # 16 MiB each
    keep = scratch.keeper(rows, 4, {})
    before = resident()
    kept = keep(rows)
    assert resident() - before < 2**23
    assert [row["w"].max().item() for row in kept] == [0, 1, 2, 3]
    assert resident() - before > 2**25  # this is how it would be
    mapped.let_go()
    assert resident() - before < 2**23


def test_a_loaded_state_takes_no_memory_until_it_is_read(tmp_path):
    digest = save_tensors(tmp_path / "state.pt", {"w": torch.ones(2**24)})  # 64 MiB
    before = resident()
    loaded = load_tensors(tmp_path / "state.pt", digest)
    assert resident() - before < 2**23
    assert loaded["w"].sum() == 2**24


def test_without_room_on_the_disk_momenta_stay_in_memory_and_it_is_noted(no_room, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    task, federation, local = tiny_task(), toy_federation(), sgd()
    cohort, params = cohort_of(task, federation), task.init(0)
    memory = local.memory(params, federation.num_clients)
    cohort.fit(task.loss, cohort.broadcast(params), local=local, memory=memory)
    reason = cohort.executor.notes["kept_in_memory"]
    assert reason.startswith("no file in") and reason.endswith("No space left on device")
