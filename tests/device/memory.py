"""How much of a device's memory jobs and checkpoints take; checks for `checks.py`."""

import tempfile
from pathlib import Path

import checks
import every_method as contract
import torch
from stages import SPEC

from fedlib.forecast import estimates, speed
from fedlib.forecast.estimates import DataSize
from fedlib.forecast.own_trial import make_up
from fedlib.models import load
from fedlib.run import checkpoint
from fedlib.run.build import build_simulation
from fedlib.run_spec import RunSpec


def job(name: str, method: str, local: dict, clients: int, each: int) -> tuple:
    """(simulation of a large job, its estimated megabytes)."""
    params, about = checks.MODELS[name]
    spec = RunSpec.from_json(
        SPEC
        | {"model": name, "model_params": {"num_classes": 5} | params, "method": method}
        | {"params": {"num_experts": 3} if method == "fedem" else {}, "participation": {}}
        | {"local": {"batch_size": 16, "lr": 0.01} | local, "rounds": 2}
    )
    half = each // 2
    size = DataSize(list(about["shape"]), [], "float32", 5, None, clients, clients,
                    clients * half, clients * (each - half), 0)  # fmt: skip
    counts = {"train": [half] * clients, "test": [each - half] * clients}
    federation = make_up(size, ["seen"] * clients, counts)
    with torch.device("meta"):
        module = load(name).build(**spec.model_params)
    numbers = sum(weights.numel() for weights in module.parameters())
    found = estimates.Speed(1, numbers, *speed.counted(module, size)[1:])
    size = size._replace(size=federation.x.nbytes)
    # A pretended capture keeps each of its tensors. A GPU's took a fifth more.
    made = build_simulation(spec, federation, device=checks.NAME, executor="batched")
    return made, estimates.card_megabytes(spec, size, found) - estimates.BASE_MB


def estimated(*about) -> list[str]:
    """A job allocates at most its estimate, and no less than a sixth of it."""
    simulation, most = job(*about)
    data = simulation.data
    torch.cuda.reset_peak_memory_stats()
    begun = torch.cuda.memory_allocated()
    checks.numbers(simulation)
    new = torch.cuda.max_memory_allocated() - begun
    mb = (new + data.x.nbytes + data.y.nbytes) / 1e6
    return [] if most / 6 < mb < most else [f"{mb:.0f} MB, {most:.0f} expected"]


def shared_storage() -> list[str]:
    """A checkpoint of clients that share tensors is as large as one made on a CPU."""
    sizes = []
    for device in ("cpu", checks.GPU):
        state = checks.there(contract.make("fedrep"), torch.device(device)).init(100, 0)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.pt"
            checkpoint.save_tensors(file, checkpoint.flatten(state))
            sizes.append(file.stat().st_size)
    return [] if sizes[0] == sizes[1] else [f"{sizes[1]} bytes, from a CPU {sizes[0]}"]
