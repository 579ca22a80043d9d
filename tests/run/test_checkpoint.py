"""Checkpoints: whole or not there, checked before they are believed, and executing nothing."""

import pickle
from typing import NamedTuple

import pytest
import torch
from support import Payload, assert_same_tensors
from torch import Tensor

from fedlib.engine.solvers import Memory
from fedlib.errors import DataError
from fedlib.files import digest
from fedlib.run import checkpoint
from fedlib.run.checkpoint import Checkpoints, flatten, load_tensors, restore, save_tensors

STAMP = {"spec": {"method": "fedavg", "seed": 1}, "code": "abc"}


class State(NamedTuple):
    model: dict
    memory: Memory
    pi: Tensor


def state(fill=1.0):
    """A state with everything that occurs in one: nested entries, counts, empty buffers."""
    return State(
        model={"body": {"a.weight": torch.full((2, 3), fill)}, "heads": torch.full((2,), -fill)},
        memory=Memory(buffers=(), epochs=torch.arange(4)),
        pi=torch.full((4, 2), 0.5, dtype=torch.float64),
    )


# -- states -------------------------------------------------------------------------------


def test_a_state_survives_the_round_trip_through_a_file(tmp_path):
    sha256 = save_tensors(tmp_path / "state.pt", flatten(state(3.0)))
    restored = restore(state(), load_tensors(tmp_path / "state.pt", sha256))
    assert isinstance(restored, State) and isinstance(restored.memory, Memory)
    assert restored.memory.buffers == ()
    assert_same_tensors(flatten(restored), flatten(state(3.0)))


def test_a_view_is_saved_without_the_tensor_it_looks_into(tmp_path):
    save_tensors(tmp_path / "view.pt", {"view": torch.zeros(1_000_000)[:10]})
    assert (tmp_path / "view.pt").stat().st_size < 10_000  # ten numbers and a header, not 4 MB


def test_a_state_of_another_method_is_refused():
    tensors = flatten(state())
    tensors[".rho"] = tensors.pop(".pi")
    with pytest.raises(DataError, match=r"does not fit the method: entries \['.pi', '.rho'\]"):
        restore(state(), tensors)
    with pytest.raises(DataError, match=r"entries \[.*\.\.\.\] are on one side") as refused:
        restore(state(), {f".model[{number}]": torch.zeros(1) for number in range(1000)})
    assert len(str(refused.value)) < 300


def test_a_file_with_code_is_not_executed_though_its_checksum_is_right(tmp_path):
    torch.save({"weight": Payload(tmp_path / "executed")}, file := tmp_path / "state.pt")
    with pytest.raises(pickle.UnpicklingError):
        load_tensors(file, digest(file))
    assert not (tmp_path / "executed").exists()


# -- checkpoints --------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """A checkpoint after round 3."""
    checkpoints = Checkpoints(tmp_path, STAMP)
    checkpoints.save(3, flatten(state(3.0)))
    return checkpoints


def test_the_latest_checkpoint_is_found_by_another_process(tmp_path, saved):
    saved.save(5, flatten(state(5.0)))
    done, tensors = Checkpoints(tmp_path, STAMP).load()
    assert done == 5
    assert_same_tensors(flatten(restore(state(), tensors)), flatten(state(5.0)))
    assert [file.name for file in tmp_path.glob("state-*")] == ["state-5.pt"]


@pytest.mark.parametrize(
    "other", [{**STAMP, "code": "abd"}, {**STAMP, "spec": {"method": "fedavg", "seed": 2}}, {}]
)
def test_the_checkpoint_of_another_run_is_ignored(tmp_path, saved, other):
    assert Checkpoints(tmp_path, other).load() is None


@pytest.mark.parametrize("moment", ["save_tensors", "seals.write_json"])
def test_a_crash_while_saving_leaves_the_checkpoint_before(tmp_path, saved, monkeypatch, moment):
    # Before the state is written, or between the state and the index that names it.
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"fedlib.run.checkpoint.{moment}", crash)
    with pytest.raises(KeyboardInterrupt):
        saved.save(4, flatten(state(4.0)))
    monkeypatch.undo()
    done, tensors = Checkpoints(tmp_path, STAMP).load()
    assert done == 3
    assert_same_tensors(flatten(restore(state(), tensors)), flatten(state(3.0)))
    saved.save(4, flatten(state(4.0)))  # and the next attempt cleans up
    assert [file.name for file in tmp_path.glob("state-*")] == ["state-4.pt"]


def test_a_checkpoint_whose_state_is_gone_says_what_to_delete(tmp_path, saved):
    (tmp_path / "state-3.pt").unlink()
    with pytest.raises(DataError, match=rf"state-3.pt does not exist.*delete {tmp_path} to start"):
        saved.load()


def test_checkpoints_are_due_after_rounds_or_after_seconds(tmp_path, monkeypatch):
    by_rounds = Checkpoints(tmp_path, STAMP, every=3)
    assert [number for number in range(1, 8) if by_rounds.due(number)] == [3, 6]
    now = [100.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    by_seconds = Checkpoints(tmp_path, STAMP, seconds=20)
    by_seconds.save(1, flatten(state()))
    now[0] += 19
    assert not by_seconds.due(2)
    now[0] += 1
    assert by_seconds.due(3)


@pytest.mark.parametrize("last, left", [(True, []), (False, ["checkpoint.json", "state-3.pt"])])
def test_clearing_removes_what_was_being_written_the_checkpoint_if_asked_and_nothing_else(
    tmp_path, saved, last, left
):
    written = [".state-4-abc.pt", ".checkpoint-abc.json"]  # as `fedlib.files.atomic` names them
    for name in ("lock", "notes.txt", *written):
        (tmp_path / name).write_text("half")
    for _ in range(2):
        saved.clear(last)
        assert {file.name for file in tmp_path.iterdir()} == {*left, "lock", "notes.txt"}
