"""benchmarks/borrowed.sh on the pretended device: a borrowed machine has few packages."""

import os
import subprocess
import sys
from pathlib import Path

import pretended
import pytest

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
@pytest.mark.skipif(bool(pretended.missing()), reason=str(pretended.missing()))
def test_a_borrowed_machine_needs_pytorch_numpy_and_h5py_alone(tmp_path):
    plan = Plan(
        {"papers": ["pfedmm"], "federations": ["synthetic"], "rounds": 3, "seeds": [1], "tag": "a"}
    )
    job = {"paper": "pfedmm", "federation": "synthetic", "label": "fedem", "seed": 1}
    data = {name: job[name] for name in ("paper", "federation")}
    (tmp_path / "partition.json").write_text(plan.spec("partition", **data))
    for stage in ("train", "evaluate"):
        (tmp_path / f"fedem.{stage}.json").write_text(plan.spec(stage, **job))
    (tmp_path / "sitecustomize.py").write_text(BARE)
    settings = {
        "DEVICE": pretended.NAME,
        "PYTHON": sys.executable,
        "SCRATCH": f"{tmp_path}/scratch",
    }
    settings |= {"TEST_SECONDS": "0.1", "MINUTES": "0.3", "ITEMS": "--items W2b"}
    settings |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE)])}
    command = ["bash", "benchmarks/borrowed.sh", str(tmp_path), str(tmp_path / "out"), "fedem"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    made = {file.name for file in (tmp_path / "out").iterdir()}
    wanted = {
        "log",
        "fedem.history.h5",
        "fedem.evaluation.h5",
        "pretended-gpu-0.gpu.md",
        "pretended-gpu-0.gpu.json",
    }
    assert made == wanted, done.stdout[-3000:]
    assert "agreement/W2b/loop" in done.stdout and "Error" not in done.stdout, done.stdout[-3000:]
