"""What a machine can do to a stage: a full disk, a read-only one, no memory, another clock."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest
import workflow
from faults import LONG, at_length, often, said
from stages import assert_one_line
from support import EVERYTHING

from fedlib.workflow.layout import RESULTS

PLAN = commands.smoke_plan()
RUN = {"paper": "pfedmm", "federation": "digits", "label": "fedem", "seed": "0"}
JOBS = {
    "partition": {"paper": "pfedmm", "federation": "digits"},
    "train": RUN,
    "evaluate": RUN,
    "metrics": {"paper": "pfedmm"},
    "table": {"paper": "pfedmm", "table": "main"},
    "figure": {"paper": "pfedmm", "figure": "accuracy_over_rounds"},
    "report": {},
}
OUTPUTS = {stage: sum(RESULTS[stage], ()) for stage in JOBS}
OUTPUTS["train"] += ("checkpoints",)
PAGE = os.sysconf("SC_PAGE_SIZE")  # a file system in memory has so many bytes, or twice, ...
stages = pytest.mark.parametrize("stage", JOBS if EVERYTHING or LONG else ("train", "figure"))
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts a small file system"
)
pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path):
    """Function that puts a file system of that many bytes into a folder, or changes it."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options: str) -> Path:
        again = ["remount"] if folder.is_mount() else []
        words = ["mount", "-t", "tmpfs", "-o", ",".join([*again, *options]), "tmpfs", folder]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def run(job, finished):
    """Function that runs a stage in the finished folder, its outputs in `out`.

    With `room` it has so many bytes of memory besides its libraries. It returns exit code, stdout
    and stderr.
    """

    def run_stage(stage: str, out: Path, room: int | None = None) -> tuple[int, str, str]:
        line = commands.command(PLAN, stage, **JOBS[stage])
        for name in OUTPUTS[stage]:
            path = PLAN.path(name, **JOBS[stage])
            assert f" {path}" in line
            line = line.replace(f" {path}", f" {out / Path(path).name}")
        if stage == "train":
            line += " --checkpoint-every 1"
        if room:
            line = line.replace("python ", f"python -c {shlex.quote(LIMITED)} {room} ", 1)
        done = job(line, finished, **({"timeout": 600} if room else {}))
        return done.returncode, done.stdout, done.stderr

    return run_stage


def written(stage: str, out: Path) -> dict[str, bytes]:
    """The outputs that are there; of a history, which has times in it, that it is there."""
    names = {Path(PLAN.path(name, **JOBS[stage])).name for name in OUTPUTS[stage]}
    files = {file.name: file for file in out.iterdir() if file.is_file() and file.name in names}
    with_times = ("history.h5", "evaluation.h5", "REPORT.md", "report.html")
    return {n: b"" if n in with_times else file.read_bytes() for n, file in files.items()}


def litter(out: Path) -> list[Path]:
    """Temporary files that a failed job left."""
    return [file for file in out.rglob(".*") if file.is_file()]


@needs_root
@stages
def test_a_full_disk_is_a_line_and_the_next_run_is_right(run, disk, tmp_path, tally, stage):
    right_folder = tmp_path / "right"
    right_folder.mkdir()
    assert run(stage, right_folder)[0] == 0
    right = written(stage, right_folder)
    files = [f for f in right_folder.rglob("*") if f.is_file()]
    needed = sum(file.stat().st_blocks for file in files) * 512 // PAGE  # less where it is sparse
    for part in (0.5, 0.1, 0.3, 0.8)[: often(1, 4)]:
        out = disk(f"size={max(1, int(part * needed)) * PAGE}")
        assert_one_line(run(stage, out), "No space left on device", "run again")
        found = written(stage, out)
        assert {n: right[n] for n in found} == found and len(found) < len(right)
        assert not litter(out)
        tally(f"full disk, {stage}", "told in a line")
        if often(0, 1):
            disk("size=1g")
            assert run(stage, out)[0] == 0
            assert written(stage, out) == right
            tally(f"full disk, {stage}", "right when run again with space")
        for file in out.iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()


@needs_root
@stages
def test_a_read_only_folder_is_a_line(run, disk, tally, stage):
    out = disk("size=1m", "ro")
    assert_one_line(run(stage, out), "Read-only file system", str(out))
    tally("read-only folder", f"{stage} told it in a line")


@needs_root
def test_snakemake_in_a_read_only_folder_of_results_has_no_traceback(finished, disk, tmp_path):
    folder = workflow.clone(finished, tmp_path / "copy")
    shutil.rmtree(folder / "results")
    (folder / "results").symlink_to(disk("size=1m", "ro"))
    done = workflow.snakemake(folder, *workflow.smoke())
    assert done.returncode == 1
    assert "Read-only file system" in done.stdout or "not writable" in done.stdout, done.stdout
    assert "Traceback" not in done.stdout, done.stdout


MEMORY = 1 << 20
# Address space is what can be limited here; that of libraries depends on how they were built.
LIMITED = """
import resource, runpy, sys
from fedlib.run import evaluate, job
_, room, *sys.argv = sys.argv
size = resource.getpagesize() * int(open("/proc/self/statm").read().split()[0]) + int(room)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_job_without_enough_memory_says_so_and_is_right_with_more(run, tmp_path, tally, stage):
    for size in [MEMORY * mb for mb in ((10,) if often(1, 0) else range(10, 140, 10))]:
        out = tmp_path / str(size)
        out.mkdir()
        code, *_ = outcome = run(stage, out, size)
        assert code or size > 10 * MEMORY
        if code:
            assert_one_line(outcome, "there is not enough memory", "give this one more")
            assert not litter(out)
            assert "history.h5" not in written(stage, out)
        tally(f"too little memory, {stage}", "told it in a line" if code else "had enough")
    assert run(stage, out)[0] == 0


def at(folder: Path, seconds: float, pattern: str) -> None:
    """Give files the time of a clock that is off by so many seconds."""
    for file in folder.glob(pattern):
        os.utime(file, (time.time() + seconds,) * 2)


def metrics_of(folder: Path) -> dict[str, bytes]:
    return {f.name: said(f) for f in (folder / PLAN.path("results") / "metrics").iterdir()}


# How many days the clock was off that wrote the shards, and the one that wrote the runs.
@at_length
@pytest.mark.parametrize(("shards", "runs"), [(1, -400), (1, 1), (-400, -400)])
def test_a_clock_that_jumps_changes_no_number(finished, tmp_path, tally, shards, runs):
    # What is missing is made by a clock that is right.
    folder, results = workflow.clone(finished, tmp_path / "copy"), PLAN.path("results")
    right = metrics_of(folder)
    at(folder / results, shards * 86400, "shards/**/*")
    at(folder / results, runs * 86400, "runs/**/*")
    shutil.rmtree(folder / results / "metrics")
    (folder / PLAN.path("evaluation", **RUN)).unlink()
    arguments = [PLAN.path("metrics_csv", paper="pfedmm"), *workflow.smoke()]
    done = workflow.snakemake(folder, *arguments)
    assert done.returncode == 0, done.stdout
    assert metrics_of(folder) == right
    tally("clock that jumps", f"{shards:+} and {runs:+} days, the same bytes")
