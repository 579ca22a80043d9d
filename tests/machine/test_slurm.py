"""The workflow on a Slurm cluster of one node: what happens to jobs there changes no number.

`make test-slurm` runs it and shows a log, which is kept in docs/slurm-run.txt.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import slurm_node
import workflow

from fedlib import seals
from fedlib.run.checkpoint import Checkpoints

PLUGIN = "snakemake_executor_plugin_slurm"
CONFIG = "tests/slurm.yaml"
METRICS = "results/demo-slurm/metrics/pfedmm.csv"
RUNS = "results/demo-slurm/runs/pfedmm/digits"
HUNGRY = '''
"""FedAvg that has 1,500 MB of memory more."""

import time

import torch

from fedlib.methods.fedavg import FedAvg

KEPT = []


class Hungry(FedAvg):
    """See above."""

    def init(self, num_clients, seed):
        """Take the memory, and have it until Slurm has looked, which it does every second."""
        KEPT.append(torch.ones(1500, 2**18))
        time.sleep(5)
        return super().init(num_clients, seed)
'''
PATIENCE = 900  # seconds, on a machine that is busy with other things

missing = slurm_node.lacking()
if not missing and importlib.util.find_spec(PLUGIN) is None:
    missing = f"needs {PLUGIN} (make install-slurm)"
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"no Slurm here: {missing}"),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with slurm_node.Node(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout with data and shards, which were made without a cluster."""
    folder = workflow.copy_checkout(tmp_path_factory.mktemp("checkout"))
    shutil.copy(workflow.ROOT / CONFIG, folder / CONFIG)
    done = workflow.snakemake(folder, "partitions", "--cores", "1", "--configfile", CONFIG)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def local(checkout, tmp_path_factory) -> list[str]:
    """What the workflow computes without a cluster."""
    folder = workflow.clone(checkout, tmp_path_factory.mktemp("local"))
    done = workflow.snakemake(folder, METRICS, "--cores", "1", "--configfile", CONFIG)
    assert done.returncode == 0, done.stdout
    return numbers(folder)


def numbers(folder: Path) -> list[str]:
    """All numbers that a run of the workflow leaves, without the digests of what they are made of.

    A history that went on from a checkpoint says so, and is another file than one that did not.
    """
    frames = sorted((folder / METRICS).parent.glob("pfedmm*.parquet"))
    assert len(frames) == 2
    return [(folder / METRICS).read_text(), *(pd.read_parquet(file).to_csv() for file in frames)]


def _text(file: Path) -> str:
    """Of a file; nothing if there is none."""
    return file.read_text() if file.exists() else ""


class Sent:
    """A Snakemake that sends its jobs to the node, and a log of what becomes of them."""

    def __init__(self, node: slurm_node.Node, folder: Path, *options: str, target: str = METRICS):
        self.node, self.folder, self.began = node, folder, time.monotonic()
        self.output = folder / "snakemake.txt"
        self.before = {*self._of_node()}
        words = [sys.executable, "-m", "snakemake", target, "--nocolor", "--configfile", CONFIG]
        words += ["--workflow-profile", "profiles/slurm", "--slurm-status-command", "squeue"]
        words += ["--slurm-init-seconds-before-status-checks", "2", "--slurm-no-account", *options]
        with self.output.open("w") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT}
            self.process = node.start(words, folder, env=workflow.environment(), **streams)
        self.say("snakemake " + " ".join(options))

    def say(self, text: str) -> None:
        """A line of the log."""
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def ends(self) -> int:
        """Wait; its exit code. The log then has what Slurm says of the jobs."""
        code = self.process.wait(PATIENCE)
        for line in self._of_node():
            if line not in self.before:
                self.say(f"slurmd: {line}")
        for line in self.jobs():
            self.say(f"squeue: {line}")
        self.say(f"snakemake ended with {code}")
        return code

    def _of_node(self) -> list[str]:
        """Why the node ended jobs, in its own words, each once."""
        lines = _text(self.node.folder / "slurmd.log").splitlines()
        told = [line for line in lines if "exceeded memory limit" in line or " DUE TO " in line]
        return [*dict.fromkeys(line.partition("error: ")[2].strip("* ") for line in told)]

    def jobs(self, label: str = "", state: str = "all") -> list[str]:
        """Jobs that Slurm knows of this workflow: number, state, reason, minutes, MB and name."""
        names = "%A %T %r limit=%l memory=%m cpus=%C %k"
        known = self.node.said("squeue", "-h", "-S", "i", "-t", state, "-o", names).splitlines()
        run = re.search(r"SLURM run ID: (\S+)", self.output.read_text())
        mine = self.node.said("squeue", "-h", "-t", "all", "-o", "%A", "-n", run[1] if run else "-")
        return [line for line in known if line.split()[0] in mine.split() and label in line]

    def held(self, *labels: str) -> dict[str, int]:
        """Stop these trainings, each after a round and with a checkpoint; their processes."""
        logs = {label: self.log_of(label) for label in labels}
        before = {label: self._saved(label) for label in labels}
        found = self._stopped({x: lambda x=x: "\nround " in _text(logs[x]) for x in labels})
        time.sleep(Checkpoints.seconds)  # so that a checkpoint is due after the next round
        for process in found.values():
            os.kill(process, signal.SIGCONT)
        self._stopped({x: lambda x=x: self._saved(x) != before[x] for x in labels})
        for label in labels:
            last = _text(logs[label]).strip().rpartition("\n")[2]
            self.say(f"stopped the training of {label}, with a checkpoint: {last}")
        return found

    def _stopped(self, when: dict[str, Callable[[], bool]]) -> dict[str, int]:
        """Stop trainings as soon as what is told of each is so; their processes."""
        found: dict[str, int] = {}
        while len(found) < len(when):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() - self.began < PATIENCE, self.output.read_text()
            time.sleep(0.01)
            for label in [x for x, is_so in when.items() if x not in found and is_so()]:
                found[label] = self._process(label)
                os.kill(found[label], signal.SIGSTOP)
        return found

    def _saved(self, label: str) -> str:
        """What names the checkpoint of a training."""
        folder = self.folder / "results/demo-slurm/.checkpoints/pfedmm/digits"
        return _text(folder / label / "seed0/checkpoint.json")

    def log_of(self, label: str) -> Path:
        """Where a training says how far it is; Snakemake begins a new one for a new attempt."""
        return self.folder / f"results/demo-slurm/logs/train/pfedmm/digits/{label}/seed0.log"

    def _process(self, label: str) -> int:
        """The process of a training."""
        state = f"{label}/seed0/state.pt"
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                here = os.readlink(entry / "cwd") == str(self.folder)
            except OSError:
                continue  # it has ended
            trains = words[1:2] == ["scripts/train.py"] and any(w.endswith(state) for w in words)
            if here and trains:
                return int(entry.name)
        raise AssertionError(f"{label} has no process")


def test_faults_on_a_cluster_change_no_metric(node, checkout, local, tmp_path):
    """Memory, a kill, a requeue; then a time limit, from whose checkpoint training goes on."""
    folder = workflow.clone(checkout, tmp_path)
    # PyTorch alone needs more than that; the second attempt has enough.
    little = ["--set-resources", "train:mem_mb=400 if attempt == 1 else 3000"]
    first = Sent(node, folder, *little)
    held = first.held("fedavg", "fedem")
    os.kill(held["fedem"], signal.SIGKILL)
    first.say("killed the training of fedem, in its second attempt")
    number = first.jobs("fedavg", "RUNNING")[0].split()[0]
    node.said("scontrol", "requeue", number)
    first.say(f"requeued job {number}, the training of fedavg")
    assert first.ends() == 1
    states = [line.split()[1] for line in first.jobs("train")]
    assert sorted(states) == ["COMPLETED", "FAILED", "FAILED", "FAILED"]
    assert "resuming after round" in first.log_of("fedavg").read_text()

    first.log_of("fedem").unlink()
    second = Sent(node, folder, "--set-resources", "train:runtime=2 * attempt")
    second.held("fedem")  # until its two minutes are over
    assert second.ends() == 0
    assert [line.split()[1] for line in second.jobs("train")] == ["TIMEOUT", "COMPLETED"]
    assert "resuming after round" in second.log_of("fedem").read_text()
    assert numbers(folder) == local


def test_a_job_that_needs_more_memory_than_was_estimated_gets_twice_as_much(
    node, checkout, tmp_path
):
    folder = workflow.clone(checkout, tmp_path)
    (folder / "mine").mkdir()
    (folder / "mine/hungry.py").write_text(HUNGRY)
    little = {stage: {"seconds": 600, "mb": 500} for stage in ("train", "evaluate")}
    estimates = {"unit": "core", "machine": "made up", "runs": {"pfedmm/digits/own-hungry": little}}
    seals.write_json(folder / "results/demo-slurm/estimates.json", estimates)
    method, state = "methods=[mine/hungry.py]", f"{RUNS}/own-hungry/seed0/state.pt"
    sent = Sent(node, folder, "--config", method, "labels=[own-hungry]", target=state)
    assert sent.ends() == 0 and (folder / state).exists()
    # The least that is asked for, 1,000 MB and 700 for Snakemake on the node; then twice that.
    words = [line.split() for line in sent.jobs("rule_train")]
    tried = [("FAILED", "memory=1700M"), ("COMPLETED", "memory=3400M")]
    assert [(line[1], line[4]) for line in words] == tried
    assert f"> {1700 * 2**20})" in (node.folder / "slurmd.log").read_text()
