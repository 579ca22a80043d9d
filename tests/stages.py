"""Stages of the workflow as commands: a run, its arguments, how to start and to interrupt it."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time

import pytest
import torch
from support import assert_same_result, assert_same_tensors, toy_federation

from fedlib import seals, spec
from fedlib.results import RunResult
from fedlib.seals import spec_digest
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ROUNDS = 60  # a second or two: enough to be interrupted twice

RUN = spec.Run(
    federation="toy",
    label="fedem",
    title="FedEM",
    method="fedem",
    model="mlp",
    model_params={"in_features": 4, "hidden": 6, "num_classes": 3},
    rounds=ROUNDS,
    local={"solver": "sgd", "lr": 0.05, "momentum": 0.9, "batch_size": 4},
    params={"num_experts": 2},
    participation={"rate": 0.7, "aggregation": "damped"},
    evaluate_every=10,
)
SPEC = RUN.spec(3, spec_digest({})).to_json()


def options(folder, run_spec=SPEC, **changes):
    """Arguments of train.py; the shards are beside the folder."""
    named = {
        "spec": json.dumps(run_spec),
        "shards": folder.parent / "toy.h5",
        "manifest": folder.parent / "toy.json",
        "state": folder / "state.pt",
        "history": folder / "history.h5",
        "checkpoints": folder / "checkpoints",
        "checkpoint-every": 1,
        "device": "cpu",
    }
    return [f"--{name}={value}" for name, value in (named | changes).items() if value is not None]


def evaluation(folder, run_spec=SPEC, **changes):
    """Arguments of evaluate.py."""
    own = {"checkpoint-every": None, "out": folder / "evaluation.h5"}
    views = [["seen", "one_step", "test"], ["unseen", "carry", "test"]]
    everything = {"views": views, "predictions": []}
    return options(folder, everything | run_spec, **own | changes)


def start(stage, arguments):
    """A stage as a process of its own."""
    line = [sys.executable, ROOT / "scripts" / f"{stage}.py", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(line, env=ENVIRONMENT, text=True, **pipes)


def finish(process):
    """(exit code, stdout, stderr)."""
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_here(stage, arguments):
    """Exit code of a stage run in this process: the same code without the start of PyTorch."""
    path = str(ROOT / "scripts" / f"{stage}.py")
    kept = {number: signal.getsignal(number) for number in STOPPING}
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path.copy())
        patch.setattr(sys, "argv", [path, *arguments])
        code = command.run(runpy.run_path(path)["main"])
    for number, handler in kept.items():
        signal.signal(number, handler)
    torch.set_num_threads(threads)
    return code


def shards(folder):
    """The federation of these tests, saved in `folder`."""
    toy_federation((7, 12, 6, 10)).save(folder / "toy.h5", folder / "toy.json")
    return folder


def wait_for_round(process, folder, number):
    """Return once the process has a checkpoint of at least round `number`."""
    index, deadline = folder / "checkpoints" / "checkpoint.json", time.monotonic() + 60
    while not index.exists() or seals.read_json(index)["round"] < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no checkpoint within a minute"
        time.sleep(0.005)
    return seals.read_json(index)["round"]


def assert_same_run(folder, other):
    """Two finished runs are equal in every tensor and array."""
    tensors, others = (torch.load(f / "state.pt", weights_only=True) for f in (folder, other))
    assert_same_tensors(tensors, others)
    one, two = (RunResult.load(f / "history.h5") for f in (folder, other))
    assert one.spec == two.spec == SPEC
    assert_same_result(one, two)


def assert_one_line(outcome, *messages):
    """The stage failed with exit code 1 and one line that holds `messages`, no traceback."""
    code, _, stderr = outcome
    assert code == 1
    assert stderr.startswith("error: ") and stderr.count("\n") == 1, stderr
    assert all(message in stderr for message in messages), stderr
