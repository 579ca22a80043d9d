"""What is asked of a GPU, in the order of what it is worth, and one answer at a time.

Run by `benchmarks.gpu` as a process of its own, because an error of a kernel ends everything that a
process has on the device: it reads a list of probes from standard input, as JSON, and prints a line
of JSON when it begins one and another when it has the answer.
"""

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch

from benchmarks.clock import Clock
from benchmarks.contenders import ours
from benchmarks.items import ITEMS, Item
from fedlib import tree

BATCHING = ("batched", "graphs")
DISTINCT = ("loop", *BATCHING)  # traced steps have the bits of the loop, which answers for them
EXECUTORS = ("loop", "traced", *BATCHING)
CHUNKS = (16, 64)  # clients that are batched together, instead of as many as fit
FLOAT64 = "float64"
PRECISIONS = ("float32", "tf32", "bfloat16")
CAPTURED = 4  # rounds, after which what can be captured is; the first two of a shape warm up
# pFedMM on EMNIST as its scripts have it: every client in each of 101 rounds, batches of 128, and
# 0.8 of the 81,425 images for training.
CELL = dataclasses.replace(
    ITEMS["W1b"], name="cell", title="pFedMM on EMNIST, 3 experts, 101 rounds", examples=65_140,
    cohort=100,
)  # fmt: skip
CELL_ROUNDS = 101


class Probe(NamedTuple):
    """One question.

    Attributes:
      kind: "agreement" with the loop on a CPU in float64, "rate", or "cell" of a paper.
      item: name of a work item, or of the cell.
      executor: see `fedlib.engine.choice.choose`.
      precision: of a rate or cell.
    """

    kind: str
    item: str
    executor: str
    precision: str = "float32"

    @property
    def key(self) -> str:
        """The probe as one word."""
        return "/".join(self)


def probes(items: list[str], device: str) -> list[Probe]:
    """All questions about these items, those first whose answer decides most."""
    first = [Probe("agreement", item, how, FLOAT64) for item in items for how in EXECUTORS]
    rates = [Probe("rate", item, how) for item in items for how in EXECUTORS]
    # A CPU does not finish a round of the cell in the time that an answer may take.
    cell = [Probe("cell", CELL.name, how) for how in DISTINCT if device == "cuda"]
    rounded = [
        Probe("rate", item, how, precision)
        for precision in PRECISIONS[1:]
        if precision != "tf32" or device == "cuda"
        for item in items
        for how in DISTINCT
    ]
    chunks = [
        Probe("rate", item, f"{how}:{size}")
        for item in items
        for how in BATCHING
        for size in CHUNKS
        if size < ITEMS[item].cohort
    ]
    return first + rates + cell + rounded + chunks


def main() -> None:
    """Answer the probes of standard input: `python -m benchmarks.probes DEVICE SECONDS CORES`."""
    device, seconds, cores = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(cores)
    for fields in json.load(sys.stdin):
        probe = Probe(*fields)
        print(json.dumps({"begin": probe.key}), flush=True)
        try:
            found = answer(probe, device, seconds)
        except Exception as error:
            found = {"error": ": ".join([type(error).__name__, *str(error).splitlines()[:1]])}
        print(json.dumps({"done": probe.key, **found}), flush=True)
        if "error" in found and device == "cuda":
            torch.cuda.synchronize()  # raises after what broke the device: a new process goes on


def answer(probe: Probe, device: str, seconds: float) -> dict:
    """The differences of an agreement; "rate" in samples/s, "round" in s and "memory" in bytes.

    Memory is what PyTorch had allocated on a GPU at most, and None on a CPU.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    item = CELL if probe.item == CELL.name else ITEMS[probe.item]
    if probe.kind == "agreement":
        return {
            "difference": difference(item, probe.executor, device),
            "rounding": rounding(item.name),
        }
    of_task = {"device": torch.device(device), "precision": probe.precision}
    simulation = ours.build(item, probe.executor, probe.kind == "cell", **of_task)
    memory = torch.cuda.max_memory_allocated if device == "cuda" else lambda: None
    return timed(simulation, item, seconds) | {"memory": memory()}


def timed(simulation, item: Item, seconds: float) -> dict:
    """Samples/s and seconds of a round, once what can be recorded or captured is."""
    ours.record(simulation, item)
    state, sizes = simulation.init(), item.sizes()
    for number in range(CAPTURED):
        state, _ = ours.one_round(simulation, state, number)
    clock, number, more = Clock(seconds), CAPTURED, True
    while more:
        state, clients = ours.one_round(simulation, state, number)
        number, more = number + 1, clock.tick(int(sizes[clients].sum()))
    found = clock.result()
    return {"rate": found["rate"], "round": found["seconds"] / found["rounds"]}


def difference(item: Item, executor: str, device: str) -> float:
    """Largest difference of an entry from the loop's on a CPU, by the largest of its tensor."""
    here = after_rounds(few(item), executor, device)
    return _apart(here, on_cpu(item.name))


@cache
def rounding(item: str) -> float:
    """What becomes of rounding: `difference` of a loop whose first state is off by 1e-15 of itself.

    Batch normalisation by few examples magnifies it from step to step.
    """
    return _apart(after_rounds(few(ITEMS[item]), "loop", "cpu", 1e-15), on_cpu(item))


def _apart(one, other) -> float:
    """Largest difference; of tensors that are 0 but for rounding, by 1e-6."""
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return max(float((a.cpu() - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in pairs)


@cache
def on_cpu(item: str):
    """The state of the loop on a CPU."""
    return after_rounds(few(ITEMS[item]), "loop", "cpu")


def after_rounds(item: Item, executor: str, device: str, off: float = 0.0):
    """The state after some rounds in float64, from a first state whose numbers are so much off."""
    simulation = ours.build(item, executor, dtype=torch.float64, device=torch.device(device))
    state = simulation.init()
    for x in _tensors(state) if off else ():
        x.mul_(1 + off)
    for number in range(CAPTURED):
        state, _ = ours.one_round(simulation, state, number)
    return state


def few(item: Item) -> Item:
    """The item with few clients and batches, all of which a CPU has in a moment."""
    return dataclasses.replace(item, num_clients=4, examples=4 * 12, cohort=4, batch_size=8)


def _tensors(state) -> Iterator[torch.Tensor]:
    """What a state has in numbers that are not counted."""
    for leaf in tree.leaves(state):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            yield leaf


if __name__ == "__main__":
    main()
