"""One hot path at a time, for whoever changes the engine; prints one line of JSON.

python -m benchmarks.micro PART --cores N
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.items import ITEMS, LR
from benchmarks.measure import keep_to

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 1.0  # of a reading, about
CHECKOUT = ("Snakefile", "config.yaml", "rules", "profiles", "envs", "fedlib", "scripts")
PLANNED = {100: 1.2, 1_000: 2.5, 10_000: 16.0}  # jobs: goal in seconds
GIGABYTE = 1e9
MEGABYTE = 1e6
COHORTS = (10, 100, 1_000)  # clients of a round


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--cores", type=int, required=True)
    args = parser.parse_args()
    keep_to(args.cores)
    print(json.dumps(PARTS[args.part](args.cores)))


def reading(value: float, unit: str, goal: float | None = None, better: str = "low") -> dict:
    """A number with its unit, its goal if it has one, and which side of it is good."""
    return {"value": value, "unit": unit, "goal": goal, "better": better}


def seconds_of(fn: Callable[[], object]) -> float:
    """Seconds that a call takes: the mean over about `SECONDS`, the first call left out."""
    fn()
    calls, begin = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - begin < SECONDS:
        fn()
        calls += 1
    return (time.perf_counter() - begin) / calls


def plan(cores: int) -> dict:
    """Batch plans of a round: which examples a client sees in which step."""
    from fedlib.engine.batches import draw_cohort
    from fedlib.engine.solvers import SGD

    item = ITEMS["W2b"]
    local, sizes = SGD(lr=LR, batch_size=item.batch_size), item.sizes().tolist()
    clients = range(len(sizes))
    took = seconds_of(lambda: draw_cohort(sizes, local, 0, 0, "fit", clients=clients))
    return {"plans": reading(len(sizes) / took, "clients/s", better="high")}


def step(cores: int) -> dict:
    """A training step of one client, gradient and update, on one core."""
    import torch

    from benchmarks import models
    from fedlib.engine.device import channels_last
    from fedlib.engine.solvers import SGD, gradient
    from fedlib.engine.task import Batch, Task

    torch.set_num_threads(1)
    found = {}
    for name in ("W1a", "W1b", "W2a", "W2b", "W2c", "W3a", "W3b"):
        item = ITEMS[name]
        task, local = Task(lambda item=item: models.fast(item)), SGD(lr=LR)
        params = task.init(0)
        weights = task.trainable(params)
        statistics = {n: v for n, v in params.items() if task.is_statistic(n)}
        x, y = (torch.from_numpy(array[: item.batch_size]) for array in item.data())
        if task.convolves:
            x = channels_last(x)
        batch = Batch(x, y, torch.arange(len(x)), key=torch.tensor(0), train=True)

        def one(task=task, local=local, weights=weights, statistics=statistics, batch=batch):
            def loss(w):
                return task.loss({**w, **statistics}, batch)

            grads, _ = gradient(loss, weights)
            with torch.no_grad():
                local.step_(weights, grads, (), LR, {})

        found[name] = reading(1000 * seconds_of(one), "ms")
    return found


def aggregate(cores: int) -> dict:
    """The server's weighted average of ten models of W1."""
    import torch

    from benchmarks import models
    from fedlib import tree
    from fedlib.engine.task import Task

    torch.set_num_threads(cores)
    item = ITEMS["W1a"]
    stacked = tree.repeat(Task(lambda: models.fast(item)).init(0), item.cohort)
    weights = torch.arange(1.0, item.cohort + 1)
    took = seconds_of(lambda: tree.mean(stacked, weights))
    size = 4 * tree.numel(stacked)
    return {"average": reading(size / took / GIGABYTE, "GB/s", better="high")}


def evaluate(cores: int) -> dict:
    """Scores of all clients' examples under one shared model, and under three experts."""
    import torch

    from benchmarks.contenders import ours

    found = {}
    for name in ("W1a", "W4a", "W2a", "W3a"):
        torch.set_num_threads(cores)
        simulation = ours.build(ITEMS[name], "loop")
        method, cohort = simulation.method, simulation.everyone("seen", 0)
        state = simulation.init()
        personal = method.personalise(state, cohort)
        took = seconds_of(lambda m=method, p=personal, c=cohort: c.score(m.predict, p))
        found[name] = reading(ITEMS[name].examples / took, "samples/s", better="high")
    return found


def shards(cores: int) -> dict:
    """Loading a shard file that is in the page cache, without and with checking it."""
    from benchmarks.contenders import ours
    from fedlib.federation import Federation

    federation = ours.federation(ITEMS["W3a"])
    size = federation.x.nbytes + federation.y.nbytes
    with tempfile.TemporaryDirectory() as folder:
        file, manifest = Path(folder, "shards.h5"), Path(folder, "manifest.json")
        federation.save(file, manifest)
        alone = seconds_of(lambda: Federation.load(file))
        checked = seconds_of(lambda: Federation.load(file, manifest))
    return {
        "load": reading(size / alone / GIGABYTE, "GB/s", 1.0, "high"),
        "load and check": reading(size / checked / GIGABYTE, "GB/s", better="high"),
    }


_FIRST_BATCH = """
import os, runpy, sys, time
started = float(sys.argv.pop(1))
from fedlib.engine.solvers import SGD
def first(*args):
    print(time.monotonic() - started, flush=True)
    os._exit(0)
SGD.step_ = first
sys.argv = ["scripts/train.py", *sys.argv[1:]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(cores: int) -> dict:
    """From the start of a process to the gradient of its first batch; and what a table imports."""
    from benchmarks.contenders import ours
    from fedlib.seals import spec_digest
    from fedlib.spec import Run

    federation = ours.federation(ITEMS["W1a"])
    spec = (
        Run(
            federation="bench",
            label="fedavg",
            title="FedAvg",
            method="fedavg",
            model="emnist_cnn",
            model_params={"num_classes": 62},
            rounds=1,
            local={"solver": "sgd", "lr": LR, "batch_size": 32},
            participation={"rate": 0.1},
        )
        .spec(seed=0, data=spec_digest(federation.spec))
        .to_json()
    )
    with tempfile.TemporaryDirectory() as folder:
        file, manifest = Path(folder, "shards.h5"), Path(folder, "manifest.json")
        federation.save(file, manifest)
        outputs = {"--state": "state.pt", "--history": "history.h5", "--checkpoints": "kept"}
        options = [word for name, value in outputs.items() for word in (name, f"{folder}/{value}")]
        options += ["--spec", json.dumps(spec), "--shards", str(file), "--manifest", str(manifest)]
        command = [sys.executable, "-c", _FIRST_BATCH, str(time.monotonic()), *options]
        said = _output([*command, "--device", "cpu", "--threads", "1"])
    imports = "import sys, time; sys.path[:0] = ['.', 'scripts']; import table; "
    imports += "print(float('torch' in sys.modules))"
    begin = time.monotonic()
    torch_imported = float(_output([sys.executable, "-c", imports]).split()[-1])
    took = time.monotonic() - begin
    return {
        "training: first batch": reading(float(said.split()[-1]), "s", 2.5),
        "table: imports": reading(took, "s"),
        "table: PyTorch imported (0 is no)": reading(torch_imported, "", 0.0),
    }


_ROUND = """
import sys
from dataclasses import replace
from benchmarks.clock import peak_memory
from benchmarks.contenders import ours
from benchmarks.items import ITEMS
clients = int(sys.argv[1])
some = {"num_clients": clients, "cohort": clients, "examples": 2 * clients}
simulation = ours.build(replace(ITEMS["W1a"], **some), "loop")
ours.one_round(simulation, simulation.init(), 0)
print(peak_memory())
"""


def memory(cores: int) -> dict:
    """Peak memory of a round of FedAvg, PyTorch included, over cohorts of different sizes."""
    peak = {n: float(_output([sys.executable, "-c", _ROUND, str(n)])) for n in COHORTS}
    found = {f"{n:,} clients": reading(x / MEGABYTE, "MB") for n, x in peak.items()}
    few, *_, many = peak
    return found | {"the most / the fewest": reading(peak[many] / peak[few], "", 1.1)}


def planning(cores: int) -> dict:
    """Snakemake's dry run of so many jobs, in a fresh copy of the checkout."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for part in CHECKOUT:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            options = {"ignore": ignored} if (ROOT / part).is_dir() else {}
            copy(ROOT / part, Path(folder, part), **options)
        for jobs, goal in PLANNED.items():
            seeds = " ".join(map(str, range(jobs // 2)))  # training and evaluation of each
            config = ["papers=pfedmm", "federations=digits", "labels=fedavg", f"seeds={seeds}"]
            command = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "all"]
            begin = time.monotonic()
            _output([*command, "--config", "tag=bench", *config], folder)
            found[f"{jobs:,} jobs"] = reading(time.monotonic() - begin, "s", goal)
    return found


def _output(command: list[str], folder: str | Path = ROOT) -> str:
    """What a command prints; CalledProcessError if it fails, after its last lines on stderr."""
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    done.check_returncode()
    return done.stdout


PARTS = {
    "plan": plan,
    "step": step,
    "aggregate": aggregate,
    "evaluate": evaluate,
    "shards": shards,
    "start": start,
    "memory": memory,
    "planning": planning,
}


if __name__ == "__main__":
    main()
