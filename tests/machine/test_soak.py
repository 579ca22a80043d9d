"""Memory, open files and threads of processes that work for hours: a test of `make test-long`.

docs/reliability.md says what was run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soak
import workflow
from soak import SPREAD_MB, Held

MINUTES = float(os.environ.get("FEDLIB_SOAK_MINUTES", "0"))
FLAT = [Held(300 + mb, 10, 2) for mb in (0, 40, 41, 40, 42, 40, 41, 42, 40, 41, 42, 41)]


def test_a_process_that_fills_its_caches_and_then_goes_up_and_down_does_not_grow():
    assert soak.growth(FLAT) == []


@pytest.mark.parametrize(
    "leak",
    [Held(SPREAD_MB, 0, 0), Held(0.0, 1, 0), Held(0.0, 0, 1)],
    ids=["memory", "files", "threads"],
)
def test_what_is_never_given_back_is_growth(leak):
    samples = [
        Held(*(kept + number * more for kept, more in zip(sample, leak, strict=True)))
        for number, sample in enumerate(FLAT)
    ]
    [told] = soak.growth(samples)
    assert told.split()[0] == next(name for name, more in leak._asdict().items() if more)


HOLDING = """
import mmap, os, soak
before = soak.held(os.getpid())
with open("one", "w"), open("two", "w"):
    # New pages, whatever the allocator has to spare.
    with mmap.mmap(-1, 20_000_000, mmap.MAP_PRIVATE) as pages:
        pages.write(os.urandom(20_000_000))
        after = soak.held(os.getpid())
print(after.files - before.files, after.mb - before.mb)
"""


def test_what_a_process_holds_is_counted():
    # In a process of its own: of a large one the machine may take pages back meanwhile.
    path = os.pathsep.join(map(str, (workflow.ROOT, workflow.ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", HOLDING],
        env=workflow.environment(PYTHONPATH=path),
        check=True,
        capture_output=True,
        text=True,
    )
    files, mb = done.stdout.split()
    assert int(files) == 2
    assert float(mb) > 15  # of 19


@pytest.mark.slow
@pytest.mark.skipif(not MINUTES, reason="a test of `make test-long`")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_grows_while_jobs_are_done_over_and_over(capsys):
    words = [sys.executable, Path(soak.__file__), str(60 * MINUTES)]
    with subprocess.Popen(
        words, env=workflow.environment(), cwd=workflow.ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        found = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0 and found
    with capsys.disabled():
        for name in ("own", "forking"):
            samples = [Held(*sample[name]) for sample in found]
            settled = samples[int(soak.WARM_UP * len(samples)) :]
            print(f"\n{name}: {len(samples)} times, {samples[0]}, {settled[0]} to {settled[-1]}")
    for name in ("own", "forking"):
        assert soak.growth([Held(*sample[name]) for sample in found]) == [], name
