"""benchmarks/borrowed.sh on the pretended device: a borrowed machine has few packages."""

import os
import subprocess
import sys
from pathlib import Path

import pretended
import pytest
from support import only_in_ci

from fedlib.workflow.plan import Plan

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Python runs it first in every process: what is not on such a machine cannot be imported.
BARE = """
import sys
for name in '''matplotlib pandas PIL pyarrow pytest requests safetensors scipy sklearn snakemake
               tokenizers torchvision yaml'''.split():
    sys.modules[name] = None
import pretended
pretended.install()
"""


@pytest.mark.slow
@only_in_ci  # of a script for one kind of machine
@pytest.mark.skipif(bool(pretended.missing()), reason=str(pretended.missing()))
def test_a_borrowed_machine_needs_pytorch_numpy_and_h5py_alone(tmp_path):
    plan = Plan(
        {"papers": ["pfedmm"], "federations": ["synthetic"], "rounds": 3, "seeds": [1], "tag": "a"}
    )
    data, run = {"paper": "pfedmm", "federation": "synthetic"}, {"label": "fedem", "seed": 1}
    for stage, more in (("partition", {}), ("train", run), ("evaluate", run)):
        (tmp_path / f"fedem.{stage}.json").write_text(plan.spec(stage, **data, **more))
    (tmp_path / "sitecustomize.py").write_text(BARE)
    settings = {
        "DEVICE": pretended.NAME,
        "PYTHON": sys.executable,
        "SCRATCH": f"{tmp_path}/scratch",
        **{"TEST_SECONDS": "60", "MINUTES": "0.25", "ITEMS": "--items W2b"},
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE)]),
    }
    command = ["bash", "benchmarks/borrowed.sh", str(tmp_path), str(tmp_path / "out"), "fedem"]
    for _ in range(2):
        subprocess.run(command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.DEVNULL)
    said = (tmp_path / "out/log").read_text()
    made = {file.name for file in (tmp_path / "out").iterdir()}
    files = {"fedem.history.h5", "fedem.evaluation.h5", "pretended-gpu-0.gpu.md"}
    assert made == files | {"pretended-gpu-0.gpu.json", "log"}, said[-3000:]
    assert f" {pretended.NAME}, graphs, " in said and "agreement/W2b/loop" in said, said[-3000:]
    assert said.count("round 3/3") == said.count("views are scored") == 1, said[-3000:]  # once
    assert said.count("No module named pytest") == said.count("ended with 1") == 2, said[-3000:]
    assert "Error" not in said, said[-3000:]
