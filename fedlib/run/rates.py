"""How fast this machine is: operations per second of a kind of model, measured once and remembered.

A rate is measured on made-up examples, in about half a second, when a plan first asks for it, and
kept in the user's cache folder beside the executors of `fedlib.run.calibration`. Runs share one if
they are of the same method and train the same architectures in batches of about the same size with
the same executor, on the same device and PyTorch. How many operations there are is counted, see
`fedlib.run.rehearsal`.

Measured and not looked up, because the operations per second of one processor differ by a factor of
a hundred between a small linear model and a wide convolution, so that no constant would do.
"""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from fedlib import seals
from fedlib.engine.choice import BLOCK, ONE_BY_ONE, choose
from fedlib.errors import DataError
from fedlib.files import canonical_json
from fedlib.run import calibration, evaluate
from fedlib.run.miniature import small
from fedlib.run.rehearsal import Rehearsed, Timed, by_example, clock_of

STEPS = 2  # local steps of each client in a measured round
SECONDS = 0.2  # that measured rounds take together, if one is not longer
ROUNDS = 5  # measured at most
OPERATIONS = {"cpu": 1e10, "cuda": 1e12}  # of a measured round, about: batches shrink to that
SMALLEST = 4  # examples of a batch, however costly they are
TOGETHER = 16  # clients measured where they are batched
SCORED = 64  # examples of each client and split


def file() -> Path:
    """Where rates are kept, for all checkouts of a user on a machine."""
    return calibration.file().with_name("rates.json")


def remembered() -> dict[str, dict]:
    """All rates by key; none if there is no file, or it is damaged."""
    return seals.remembered(file())


def remember(found: dict[str, dict]) -> None:
    """Add rates to the file, or replace them there."""
    seals.remember(file(), remembered() | found)


def batch_size(spec: dict, sizes: dict) -> int:
    """Examples of a typical batch: no more than a client of average size has."""
    seen = [n for n, g in zip(sizes["train"], sizes["group"], strict=True) if g == "seen"]
    return max(2, min(spec["local"]["batch_size"], round(sum(seen) / max(len(seen), 1))))


def facts(spec: dict, sizes: dict, executor: str, machine: dict) -> dict:
    """What a rate depends on.

    Args:
      machine: name of the device and version of PyTorch, as `machine` gives them.
    """
    modules = {
        name: [{k: one[k] for k in ("model", "params")} for one in _listed(module)]
        for name, module in spec["modules"].items()
    }
    return {
        "method": spec["method"],
        "model": [spec["model"], spec["model_params"]],
        "modules": modules,
        "precision": spec["precision"],
        "batch": 1 << (batch_size(spec, sizes) - 1).bit_length(),
        "executor": executor,
        **machine,
    }


def key(facts: dict) -> str:
    """In short -> digest in hexadecimal"""
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:16]


def measure(spec: dict, sizes: dict, rehearsed: Rehearsed, *, device: str, executor: str) -> dict:
    """Time a round and an evaluation -> {"fold": ..., "score": ..., "client": ...}

    Operations a second of local steps and of scoring, and seconds that a round takes besides for
    each client.

    Args:
      rehearsed: the same run, whose operations by example it has.
      device: "cpu" or "cuda"; on a CPU one thread computes.
      executor: as the configuration gives it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        simulation = _simulation(spec, sizes, rehearsed, device, executor)
        return _measured(simulation, rehearsed)
    finally:
        torch.set_num_threads(before)


def _simulation(spec: dict, sizes: dict, rehearsed: Rehearsed, device: str, executor: str):
    """A few clients with two batches of about the real size."""
    operations = by_example(rehearsed, "round", "fold") or 1.0
    kinds = [len(m) for m in spec["modules"].values() if isinstance(m, list | tuple)]
    clients = max([2, *kinds])
    afford = int(OPERATIONS[device] / (operations * clients * STEPS))
    size = max(SMALLEST, min(batch_size(spec, sizes), afford))
    local = spec["local"] | {"batch_size": size, "steps": STEPS, "epochs": 1}
    steps = {"train": (STEPS * size, STEPS * size), "scored": SCORED, "device": device}
    own = spec | {"local": local}
    try:
        simulation = small(own, sizes, None, clients=clients, **steps)
    except (ValueError, DataError):  # AFL does one step, L2SGD draws their number
        own["local"] = {k: v for k, v in local.items() if k != "steps"}
        simulation = small(own, sizes, None, clients=clients, **steps)
    inner = choose(executor, simulation.method.task)
    if inner.name not in ONE_BY_ONE and afford > size:
        # More clients together, as there is time for them.
        together = min(TOGETHER, BLOCK, max(clients, afford // size))
        simulation = small(own, sizes, None, clients=together, **steps)
    return replace(simulation, executor=Timed(inner, clock_of(simulation.data.device)))


def _measured(simulation, rehearsed: Rehearsed) -> dict:
    timed, clock = simulation.executor, clock_of(simulation.data.device)
    everyone = simulation.federation.ids("seen")
    state = simulation.method.round(simulation.init(), simulation.cohort(everyone, 0))  # sets up
    timed.restart()
    begun, done = clock(), 0
    while done < ROUNDS and (not done or clock() - begun < SECONDS):
        state = simulation.method.round(state, simulation.cohort(everyone, done))
        done += 1
    total = clock() - begun
    fold, score = timed.rate("fold", rehearsed, "round"), timed.rate("score", rehearsed, "round")
    client = max(0.0, total - sum(timed.seconds.values())) / (done * len(everyone))
    timed.restart()
    everybody = partial(simulation.everyone, round=1)
    begun, done = clock(), 0
    while done < ROUNDS and (not done or clock() - begun < SECONDS):
        evaluate.during_training(simulation.method, state, everybody)
        done += 1
    score = timed.rate("score", rehearsed, "evaluation") or score or fold
    return {"fold": fold or score, "score": score, "client": client}


def _listed(module: dict | list) -> list[dict]:
    return list(module) if isinstance(module, list | tuple) else [module]


def machine(device: str) -> dict:
    """What of this machine a rate depends on."""
    return {"device": calibration.device_name(torch.device(device)), "torch": torch.__version__}
