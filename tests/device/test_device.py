"""Everything that trains, on a GPU: on a pretended one, or with REAL_DEVICE=cuda on a real one.

FEDLIB_DEVICE=all tests every method with every executor (`make test-device`); without it each
method has one executor, and each of the other checks every fourth method. Whether a step waits is
tried of all methods in CI.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pretended
import pytest
import torch
from every_method import METHODS
from support import EVERYTHING

from fedlib import models

HERE = Path(__file__).parent
GIVEN = os.environ.get("PYTHONPATH")  # where this is rehearsed
PATHS = [str(place) for place in (HERE, HERE.parent, HERE.parents[1], GIVEN) if place]
# A process of its own: fedlib must be imported after the device is there.
START = """
import os, pretended
if not os.environ.get("REAL_DEVICE"):
    pretended.install()
import checks
checks.main()
"""
ALL = os.environ.get("FEDLIB_DEVICE") == "all"
REAL = os.environ.get("REAL_DEVICE")
EXECUTORS = ("loop", "traced", "batched", "batched:2", "graphs", "graphs:2")
MODELS = sorted({*models.MODELS} - {"vae"})  # no classifier; fedmix_vae trains one

# Where a round may wait for the device between steps, and why.
MAY_WAIT = {
    "engine/journal.py:refuse_divergence": "stops before anybody computes with what is not finite",
    "engine/task.py:<dictcomp>": "a model that is drawn on the host begins in this round",
    "engine/task.py:init": "the same, where Python has no frame for a comprehension",
    "methods/clustered.py:average": "clusters are as many as the data make",
    "methods/clustered.py:disagree": "whether a cluster is split depends on its gradients",
    "methods/clustered.py:split": "the same",
    "methods/fedjets.py:choose": "the download depends on whom clients trust",
    "methods/fedkd.py:factor": "a message is as long as the singular values ask for",
    "methods/fedmoe.py:by_class": "in the rounds that it logs",
    "methods/ifca.py:pick_models": "the same: it draws on the host",
    "methods/ifca.py:round": "the download depends on what clients chose",
    "methods/ifca.py:stopped": "training ends when clients choose as before",
    "methods/parts/chosen.py:update": "keeps the best model, by its loss",
    "methods/parts/early_stopping.py:train": "clients that no longer improve train no more",
}  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REAL and bool(pretended.missing()), reason=str(pretended.missing())),
]
only_pretended = pytest.mark.skipif(bool(REAL), reason="a real device tells nobody of its waits")


def turns(names, ways):
    """Pairs: all of them, or of each name one way, in turn."""
    if ALL:
        return [(name, way) for name in names for way in ways]
    return [(name, ways[i % len(ways)]) for i, name in enumerate(names)]


def quarter(names, first=0):
    return [*names] if ALL else [*names][first::4]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Function that has a process check something, and fails with what went wrong there."""
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path_factory.mktemp("device"),  # each test's own folder ends with it
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(PATHS)},
    )

    def check(*words) -> None:
        process.stdin.write(json.dumps([words[0], words[1:]]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the process ended with {process.wait()}"
        wrong = json.loads(line)
        assert not wrong, "\n".join(wrong)

    yield check
    process.stdin.close()
    process.wait()


@only_pretended
def test_the_pretended_device_refuses_what_a_gpu_refuses(ask):
    ask("refusals")


@pytest.mark.parametrize(("name", "how"), turns(METHODS, EXECUTORS))
def test_a_method_computes_what_it_computes_on_a_cpu(ask, name, how):
    ask("method", name, how)


@pytest.mark.parametrize(("name", "there"), turns(quarter(METHODS), (True, False)))
def test_a_checkpoint_is_continued_on_the_other_device(ask, name, there):
    ask("resumed", name, there)


@pytest.mark.parametrize(("name", "how"), turns(quarter(METHODS, 1), ("loop", "batched", "graphs")))
def test_states_too_large_for_the_device_stay_in_host_memory(ask, name, how):
    ask("at_home", name, how)


@only_pretended
@pytest.mark.parametrize(
    ("name", "how"), turns(METHODS if EVERYTHING else quarter(METHODS, 2), ("batched", "loop"))
)
def test_no_step_waits_and_a_round_only_where_it_must(ask, name, how):
    ask("waits", name, how, MAY_WAIT)


@pytest.mark.parametrize(
    ("name", "how"), turns(quarter(MODELS), ("graphs", "loop", "batched", "traced"))
)
@pytest.mark.parametrize("method", ["fedavg", "pfedmm"] if ALL else ["fedavg"])
def test_an_architecture_trains_as_on_a_cpu(ask, name, how, method):
    ask("model", name, how, method)


@pytest.mark.parametrize("method", ["fedavg", "pfedmm", "local"] if ALL else ["pfedmm"])
def test_the_api_trains_there_and_its_models_can_leave(ask, method):
    pytest.importorskip("pandas", reason="the API reads files with it; a borrowed machine may not")
    ask("api", method)


def test_a_checkpoint_keeps_shared_tensors_shared(ask):
    ask("shared_storage")


@pytest.mark.skipif(REAL == "cpu", reason="a CPU captures and counts nothing")
def test_a_capture_that_fails_leaves_nothing_behind(ask):
    ask("captures")


@pytest.mark.skipif(bool(REAL) and torch.cuda.device_count() < 2, reason="there is no second one")
def test_the_second_device_captures_its_own_steps(ask):
    ask("other_card")
