"""SIGKILL at random moments, of jobs and of Snakemake: it ends with the same bytes."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stages
import torch
import workflow
from commands import smoke_plan
from faults import at_length, said
from support import assert_same_tensors

pytestmark = [
    pytest.mark.slow,
    at_length,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

NARROWED = ["rounds=12", "labels=fedem", "seeds=[0,1]"]
PLAN = smoke_plan(*NARROWED)
TARGETS = [PLAN.path("metrics_csv", paper="pfedmm")]
COMMAND = [sys.executable, "-m", "snakemake", "--nocolor", *TARGETS]
COMMAND += workflow.smoke("--config", *NARROWED)
VICTIMS = ("snakemake", "job", "all")
KILLS = 100


def content(folder: Path) -> dict[str, bytes]:
    """What must not differ by a byte: metrics, clients, and states of all runs."""
    results = folder / PLAN.path("results")
    files = [*results.glob("metrics/*"), *results.glob("runs/**/state.pt")]
    return {str(file.relative_to(results)): said(file) for file in sorted(files)}


def processes(folder: Path) -> list[int]:
    """Whoever works in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(entry / "cwd")) == folder:
                found.append(int(entry.name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout whose trainings save every round; nothing is left running in it."""
    folder = workflow.copy_checkout(tmp_path.resolve() / "checkout")
    train = folder / "rules/train.smk"
    text = train.read_text().replace("--checkpoints ", "--checkpoint-every 1 --checkpoints ")
    train.write_text(text)
    yield folder
    kill(processes(folder))


def begin(folder: Path) -> subprocess.Popen:
    with (folder / "output").open("a") as output:
        return subprocess.Popen(
            COMMAND, cwd=folder, env=workflow.environment(), stdout=output, stderr=output
        )


def wait(process: subprocess.Popen, seconds: float) -> bool:
    """Whether it ended in that time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.poll() is not None


def strike(folder: Path, snakemake: subprocess.Popen, draw: random.Random) -> str:
    """Kill somebody, Snakemake where there is no job at this moment; who it was."""
    jobs = [pid for pid in processes(folder) if pid != snakemake.pid]
    victim = draw.choice(VICTIMS) if jobs else "snakemake"
    if victim == "job":
        kill([draw.choice(jobs)])
        wait(snakemake, 120)  # it reports the failure and goes on with what does not need the job
    else:
        snakemake.kill()
        if victim == "all":
            kill(jobs)
    snakemake.kill()
    snakemake.wait()
    return victim


def clear(folder: Path) -> None:
    shutil.rmtree(folder / "results")
    (folder / "output").write_text("")


def test_random_kills_do_not_change_a_byte(checkout, tally):
    began = time.monotonic()
    assert begin(checkout).wait(600) == 0, (checkout / "output").read_text()
    span, right = time.monotonic() - began, content(checkout)
    # Metrics in two forms and clients; the states.
    assert len(right) == 3 + len(PLAN.trainings())
    clear(checkout)
    draw, done, struck = random.Random(1), 0, False
    while done < KILLS or struck:
        snakemake = begin(checkout)
        if wait(snakemake, draw.uniform(0, span) if done < KILLS else 600):
            told = (checkout / "output").read_text()
            assert snakemake.returncode == 0 and "Traceback" not in told, told
            assert content(checkout) == right
            tally("SIGKILL of a workflow", "workflows finished with the same bytes")
            clear(checkout)
            print(f"the same {len(right)} files after {done} kills", flush=True)
            struck = False
            continue
        victim = strike(checkout, snakemake, draw)
        tally("SIGKILL of a workflow", f"kills of {victim}")
        done, struck = done + 1, True
        print(f"kill {done}: {victim}", flush=True)  # it takes an hour at length: pytest -s


def test_sigterm_with_too_little_time_to_save_does_not_change_a_bit(tmp_path, tally):
    folder = stages.shards(tmp_path) / "whole"
    spec = {**stages.SPEC, "rounds": 60}
    assert stages.run_here("train", stages.options(folder, spec)) == 0
    right, draw = torch.load(folder / "state.pt"), random.Random(0)
    for number in range(20):
        folder = tmp_path / str(number)
        arguments = stages.options(folder, spec)
        process = stages.start("train", arguments)
        stages.wait_for_round(process, folder, draw.randrange(1, 40))
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0, 0.02))
        process.kill()
        code = stages.finish(process)[0]
        tally("SIGTERM, and SIGKILL at most 20 ms later", {143: "saved", -9: "killed"}.get(code))
        assert stages.run_here("train", arguments) == 0
        assert_same_tensors(torch.load(folder / "state.pt"), right)
