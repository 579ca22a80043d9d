"""Large federations, from raw files to figures: what each stage takes, and that it takes all.

`make test-long`: 3,550 clients with as many images as FEMNIST, and 10,000 clients with twenty
each. docs/reliability.md has its table.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import commands
import large_paper
import numpy as np
import pytest
import workflow
from faults import at_length

from fedlib.report import frames
from fedlib.workflow import shell
from fedlib.workflow.config import read
from fedlib.workflow.plan import Plan

pytestmark = [pytest.mark.slow, at_length]

# Of each federation: clients, and images of a client; FEMNIST has 805,263 of 3,550 writers.
SIZES = {"femnist-sized": (3_550, 227), "ten-thousand": (10_000, 20)}
LIMIT_SECONDS = 120  # of a core, for any stage; the largest takes a tenth of that
LIMIT_MB = 6_000
# Runs a command in a small process, and says what it took: a process that was forked from a large
# one is credited with the memory of that.
ASIDE = """
import json, os, sys, time
began = time.monotonic()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
took = {"cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}
took["wall"] = time.monotonic() - began
with open(sys.argv[1], "w") as file:
    json.dump(took, file)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Took(NamedTuple):
    """What a job took: seconds of a core, seconds, megabytes at most."""

    cpu: float
    wall: float
    mb: float


def images(file: Path, clients: int, each: int) -> None:
    """That many grey images a client; the class is the brightest of the first 62 pixels."""
    file.parent.mkdir(parents=True)
    x = np.random.default_rng(0).integers(0, 256, (clients * each, 28, 28), np.uint8)
    y = x.reshape(len(x), -1)[:, :62].argmax(1)
    np.savez(file, x=x, y=y, client=np.repeat(np.arange(clients), each))


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Of the made-up paper alone."""
    with pytest.MonkeyPatch.context() as patch:
        from fedlib import papers

        patch.setattr(papers, "names", lambda: ("large",))
        patch.setattr(papers, "load", lambda name: large_paper)
        yield Plan(read([workflow.ROOT / "config.yaml"], ["papers=[large]", "device=cpu"]))


def run(folder: Path, words: list[str]) -> Took:
    """What a command took that has to end well."""
    given = {"cwd": folder, "env": workflow.environment()}
    ended = workflow.python("-S", "-c", ASIDE, "took.json", *words, **given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Took(**json.loads((folder / "took.json").read_text()))


def tell(capsys, took: dict[str, Took]) -> None:
    """The rows of docs/reliability.md."""
    with capsys.disabled():
        print("\n\n| job | CPU, s | peak memory, MB | seconds |\n|---|---|---|---|")
        for name, job in took.items():
            print(f"| {name} | {job.cpu:.1f} | {job.mb:.0f} | {job.wall:.1f} |")


@pytest.fixture(scope="module")
def done(plan, tmp_path_factory) -> tuple[Path, dict[str, Took]]:
    """A copy of the checkout in which all stages ran, and what each job took by itself."""
    folder = workflow.copy_checkout(tmp_path_factory.mktemp("large"))
    shutil.copy(large_paper.__file__, folder / "fedlib/papers/large.py")
    for name, size in SIZES.items():
        images(folder / f"data/raw/own/{name}/images.npz", *size)
    shell.write_specifications(plan, folder)
    took = {}
    for stage, wildcards in plan.jobs():
        line = commands.command(plan, stage, **wildcards)
        name = " ".join([stage, "/".join(map(str, wildcards.values()))]).strip()
        took[name] = run(folder, ["bash", "-c", line.replace("python", sys.executable, 1)])
    return folder, took


def test_every_stage_stays_within_minutes_and_memory(done, capsys):
    _, took = done
    tell(capsys, took)
    for name, job in took.items():
        assert job.cpu < LIMIT_SECONDS and job.mb < LIMIT_MB, (name, job)


def test_no_client_is_lost_on_the_way_from_the_raw_files_to_the_tables(plan, done):
    folder, _ = done
    clients = frames.read_parquet(folder / plan.path("clients", paper="large"))
    for federation, (number, each) in SIZES.items():
        mine = clients[(clients["federation"] == federation) & (clients["label"] == "fedem")]
        test = mine[(mine["at"] == "last") & (mine["split"] == "test")]
        test = test[test["protocol"] == "default"]
        assert sorted(test["client"]) == list(range(number))
        assert abs((test["group"] == "unseen").sum() - number / 10) < 1
        # A fifth of its images, one more where they do not divide, is what a client is tested on.
        assert test["count"].between(each // 5, each // 5 + 1).all()
