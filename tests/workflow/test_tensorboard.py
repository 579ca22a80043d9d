"""Curves of finished trainings for TensorBoard."""

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import made_up
import pytest

from fedlib.cli import arguments, tensorboard
from fedlib.errors import ConfigError


@pytest.fixture
def command(toy, monkeypatch, tmp_path):
    """Function that runs the command on the toy paper; returns what was written, by folder."""
    written: dict[str, list] = {}

    @contextmanager
    def writer(folder, purge_step):
        assert purge_step == 0
        calls = written.setdefault(str(folder), [])
        yield SimpleNamespace(add_scalar=lambda *call: calls.append(call))

    module = SimpleNamespace(SummaryWriter=writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    plan = toy()
    monkeypatch.setattr(arguments, "plan", lambda args: plan)

    def run():
        tensorboard.main(SimpleNamespace(out=tmp_path / "events"))
        return written

    return run, plan


def test_every_finished_training_has_its_curves(command, tmp_path):
    run, plan = command
    with pytest.raises(ConfigError, match="no training in results/demo is finished"):
        run()
    first = plan.trainings()[0]
    history = made_up.run("fedavg", "fedavg", 3, rounds=4)["history"]
    path = plan.path("history", **first._asdict())
    right = json.loads(plan.spec("train", **first._asdict()))
    made = {"code": "0" * 16, "inputs_sha256": "0" * 64}
    replace(history, spec=right | {"rounds": 9}, provenance=history.provenance | made).save(path)
    with pytest.raises(ConfigError, match="no training in results/demo is finished"):
        run()
    replace(history, spec=right, provenance=history.provenance | made).save(path)
    [(folder, calls)] = run().items()
    place = f"events/{first.paper}/{first.federation}/{first.label}/seed3"
    assert folder == str(tmp_path / place)
    found = {(name, int(number)): value for name, value, number in calls}
    for view, scores in history.scores.items():
        for i, number in enumerate(history.round):
            expected = scores.correct[i].sum() / scores.count.sum()
            assert found[f"accuracy/{'/'.join(view)}", number] == expected
    assert found["bytes_up", history.round[-1]] == history.bytes_up[-1]
    assert sum(name == "train_loss" for name, _ in found) == len(history.train_loss)
