"""Which executor runs a model: the one that a setting names, or by a rule."""

import importlib

import torch

from fedlib.engine.executors import Batched, Executor, Loop
from fedlib.engine.rewriting import WAYS, available
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced

ONE_BY_ONE = ("loop", "traced")  # client by client; the others put clients together
NAMES = (*ONE_BY_ONE, "batched", "graphs")
BLOCK = 160  # clients that are batched together on a CPU: some loss for one worker, work for two


def choose(wanted: str, task: Task, workers: int | None = None) -> Executor:
    """The executor that `wanted` names, with a worker for each thread of PyTorch on a CPU.

    Args:
      wanted: "loop", "traced", "batched" or "graphs"; "traced" with the name of other kernels
        ("traced:fused", see `fedlib.engine.rewriting`) and the latter two with a number of clients
        per block if need be ("batched:64"); or "auto" for `rule`.
      workers: threads that share out clients on a CPU; None for as many as PyTorch has. Only the
        first executor of a process can take that, which leaves PyTorch one.

    Raises:
      ValueError: for anything else.
    """
    name, colon, detail = (rule(task) if wanted == "auto" else wanted).partition(":")
    sized = name not in ONE_BY_ONE and detail.isdecimal() and int(detail) > 0
    if name not in NAMES or (colon and not sized and (name != "traced" or detail not in WAYS)):
        known = f"auto, {', '.join(NAMES[:-1])} or {NAMES[-1]}"
        raise ValueError(f"executor must be {known}, got {wanted!r}")
    if detail in WAYS and detail not in available():
        raise ValueError(f"executor {wanted!r} needs oneDNN, which this PyTorch has not")
    on_cpu = task.device.type == "cpu"
    workers = (workers or torch.get_num_threads()) if on_cpu else 1
    if name in ONE_BY_ONE:
        return Loop(workers) if name == "loop" else Traced(workers, detail)
    block = int(detail) if detail else BLOCK if on_cpu else None
    if name == "batched":
        return Batched(block, workers)
    # Loaded by name, as what hardly any run takes is no part of the code of all of them.
    return importlib.import_module("fedlib.engine.graphs").Graphs(block, workers)


def goes_one_by_one(setting: str) -> bool:
    """Whether an executor goes client by client."""
    return setting.partition(":")[0] in ONE_BY_ONE


def rule(task: Task) -> str:
    """What suits a model and a device in general; `fedlib.run.calibrate` measures one machine.

    Batching pays where launching a step costs more than computing it: on a GPU but for the largest
    models, and for small models without convolutions on a CPU. Elsewhere on a CPU, steps that are
    recorded cost what the loop's do or less, with the same bits (benchmarks/README.md).
    """
    if task.device.type == "cuda":
        return "loop" if task.is_heavy else "batched"
    if task.is_light:
        return "batched"
    return "loop" if task.is_heavy else "traced"
