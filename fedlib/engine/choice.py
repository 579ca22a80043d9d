"""The choice of the executor that runs a model: by a setting, or by a rule."""

import importlib
from collections.abc import Sequence

import torch

from fedlib.engine.executors import Batched, Executor, Loop
from fedlib.engine.rewriting import WAYS, available
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced

ONE_BY_ONE = ("loop", "traced")  # client by client; the others batch clients
NAMES = (*ONE_BY_ONE, "batched", "graphs")
BLOCK = 160  # clients per batch on a CPU: slightly slow for one worker, enough work for two


def choose(wanted: str, task: Task, workers: int | None = None) -> Executor:
    """The executor called `wanted`, with a worker for each thread of PyTorch on a CPU.

    Args:
      wanted: "loop", "traced", "batched" or "graphs", or "auto" for `rule`. "traced" may have the
        name of other kernels ("traced:fused", see `fedlib.engine.rewriting`); "batched" and
        "graphs" may have a number of clients per block ("batched:64").
      workers: threads that share the clients on a CPU; None for as many as PyTorch has. None works
        for the first executor of a process only, because that leaves PyTorch with one thread.

    Raises:
      ValueError: for anything else.
    """
    name, colon, detail = (rule([task]) if wanted == "auto" else wanted).partition(":")
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
    # Loaded by name, so that this rare executor is not part of the code of all runs.
    return importlib.import_module("fedlib.engine.graphs").Graphs(block, workers)


def goes_one_by_one(setting: str) -> bool:
    """Whether an executor goes client by client."""
    return setting.partition(":")[0] in ONE_BY_ONE


def rule(tasks: Sequence[Task]) -> str:
    """Setting that suits a run's models and its device; `fedlib.run.calibrate` measures one.

    Batching pays if launching a step costs more than computing it: on a GPU except for the largest
    models, and on a CPU for small models without convolutions. For other models on a CPU, traced
    steps cost at most as much as those of the loop, with the same bits (benchmarks/README.md).
    """
    heavy = any(task.is_heavy for task in tasks)
    if tasks[0].device.type == "cuda":
        return "loop" if heavy else "batched"
    if all(task.is_light for task in tasks):
        return "batched"
    return "loop" if heavy else "traced"
