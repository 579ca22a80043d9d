"""What a job imports: most of a short job's time is the import of packages that it may not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import toy_federation

from fedlib import spec
from fedlib.results import RunResult
from fedlib.seals import spec_digest

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy", "triton")
OTHERS = ("torchvision", "pandas", "pyarrow", "scipy", "matplotlib")


def loaded(program: str) -> set[str]:
    """Names in `sys.modules` after a Python program."""
    program += "\nimport sys; print('\\n', *sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
def test_training_and_evaluation_import_pytorch_but_no_compiler_and_no_tables(tmp_path):
    shards, manifest = tmp_path / "toy.h5", tmp_path / "toy.json"
    toy_federation((9, 12, 8, 10)).save(shards, manifest)
    run = spec.Run(
        federation="toy",
        label="fedem",
        title="FedEM",
        method="fedem",
        model="mlp",
        model_params={"in_features": 4, "hidden": 6, "num_classes": 3},
        rounds=2,
        local={"solver": "sgd", "lr": 0.05, "momentum": 0.9, "batch_size": 4},
        params={"num_experts": 2},
    )
    common = [f"--shards={shards}", f"--manifest={manifest}"]
    common += [f"--state={tmp_path}/state.pt", f"--history={tmp_path}/history.h5", "--device=cpu"]
    own = {"train": f"--checkpoints={tmp_path}/checkpoints", "evaluate": f"--out={tmp_path}/out.h5"}
    views = {"train": {}, "evaluate": {"views": [], "predictions": []}}
    program = ["import runpy, sys"]
    for stage, option in own.items():
        given = json.dumps(run.spec(3) | {"data": spec_digest({})} | views[stage])
        program += [
            f"sys.argv[:] = {[f'scripts/{stage}.py', f'--spec={given}', *common, option]!r}",
            "try: runpy.run_path(sys.argv[0], run_name='__main__')",
            "except SystemExit as done: assert not done.code, done.code",
        ]
    modules = loaded("\n".join(program))
    assert "torch" in modules
    assert not modules & {*COMPILERS, *OTHERS}
    evaluated = RunResult.load(tmp_path / "out.h5").diagnostics
    assert evaluated["flops_per_example"] > 0  # counting needs no compiler either
