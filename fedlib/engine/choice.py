"""The choice of the executor that runs a model: by a setting, or by a rule."""

from collections.abc import Sequence

import torch

from fedlib.engine import allocator
from fedlib.engine.executors import Batched, Executor, Loop
from fedlib.engine.graphs import Graphs
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced

ONE_BY_ONE = {"loop": Loop, "traced": Traced}  # one client after another
BATCHED = {"batched": Batched, "graphs": Graphs}  # all clients of a block in one call
BLOCK = 160  # clients per batch on a CPU: slightly slow for one worker, enough work for two


def choose(wanted: str, tasks: Sequence[Task], workers: int | None = None) -> Executor:
    """The executor called `wanted`, with a worker for each thread of PyTorch on a CPU.

    Its notes have its setting, and what chose it: "rule" or "request". On a CPU the process keeps
    the memory that it frees from now on (`fedlib.engine.allocator`).

    Args:
      wanted: "loop", "traced", "batched" or "graphs", or "auto" for `rule`. "batched" and "graphs"
        may have a number of clients per block ("batched:64"). Models with recurrent layers of
        PyTorch, which it cannot batch, take "loop" instead of these.
      tasks: of the run, one for each architecture.
      workers: threads that share the clients on a CPU; None for as many as PyTorch has. None works
        for the first executor of a process only, because that leaves PyTorch with one thread.

    Raises:
      ValueError: for anything else.
    """
    setting = rule(tasks) if wanted == "auto" else wanted
    name, colon, block = setting.partition(":")
    sized = name in BATCHED and (not colon or (block.isdecimal() and int(block) > 0))
    if setting not in ONE_BY_ONE and not sized:
        known = ", ".join(("auto", *ONE_BY_ONE, *BATCHED))
        raise ValueError(f"executor must be {known}, got {wanted!r}")
    if sized and any(task.recurs for task in tasks):
        name, sized = "loop", False
    if on_cpu := tasks[0].device.type == "cpu":
        allocator.keep()
    workers = (workers or torch.get_num_threads()) if on_cpu else 1
    size = int(block) if block else BLOCK if on_cpu else None
    executor: Executor = BATCHED[name](size, workers) if sized else ONE_BY_ONE[name](workers)
    chosen_by = "request" if wanted.startswith(name) else "rule"
    executor.notes |= {"setting": executor.setting, "chosen_by": chosen_by}
    return executor


def rule(tasks: Sequence[Task]) -> str:
    """Setting for a run, by its device and the layers of its models alone; nothing is timed.

    Batching pays if launching a step costs more than computing it: on a GPU except for the largest
    models, and on a CPU for small models without convolutions. On a GPU the steps of a block are
    captured, too: that is 1.4 to 5 times as fast again (benchmarks/README.md). For other models on
    a CPU, traced steps cost at most as much as those of the loop, with the same bits; for the
    largest, tracing gains nothing.
    """
    heavy = any(task.is_heavy for task in tasks)
    if tasks[0].device.type == "cuda":
        return "loop" if heavy else "graphs"
    if all(task.is_light for task in tasks):
        return "batched"
    return "loop" if heavy else "traced"
