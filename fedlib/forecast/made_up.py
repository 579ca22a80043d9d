"""Runs on made-up examples: as declared, but with a handful of clients and few examples each.

Rehearsals and rates use them, before there are data.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from torch import nn

from fedlib.data.sizes import Sizes
from fedlib.engine.task import Params, Task
from fedlib.federation import CLIENTS, GROUPS, SPLITS, Federation, Split, Tokens
from fedlib.files import canonical_json
from fedlib.run import build
from fedlib.run.simulate import Simulation

SLOW = 1e-6  # learning rate


def simulation(
    spec: dict,
    sizes: Sizes,
    executor: Any,
    *,
    train: tuple[int, int],
    scored: int,
    clients: int,
    device: str = "cpu",
) -> Simulation:
    """The run on made-up examples, with all clients in every round.

    Args:
      spec: from `fedlib.spec.Run.spec`.
      sizes: of its federation; only shapes and groups are used.
      train: numbers of training examples, which clients have in turn.
      scored: number of examples in every other split that the federation has.
      clients: least number of seen clients, and of unseen ones if there are any.
    """
    federation = made_up(sizes, max(clients, most_architectures(spec)), train, scored)
    course = {k: v for k, v in spec["participation"].items() if k not in ("rate", "selection")}
    if course.get("aggregation") == "gossip":
        course |= {"edge_probability": 1.0, "mixing": "metropolis"}
    spec = unpretrained(spec) | {name: _slow(spec[name]) for name in ("local", "params")}
    built = build.build_simulation(
        spec | {"participation": {"rate": 1.0, **course}},
        federation,
        device=device,
        executor="loop",
    )
    return replace(built, executor=executor)


@contextmanager
def built_once(known: dict[str, Any]) -> Iterator[None]:
    """In this block, architectures are built once for all runs, and their models drawn once.

    Args:
      known: architectures that were built in earlier blocks; gets the new ones.
    """

    def shared(make: Callable, *entries: str) -> Callable:
        def found(spec: dict, *others: Any) -> Any:
            key = canonical_json([spec[name] for name in ("precision", *entries)])
            if key not in known:
                known[key] = make(spec, *others)
                for task in _tasks(known[key]):
                    object.__setattr__(task, "build", _built_once(task))
                    object.__setattr__(task, "init", _drawn_once(task))
            return known[key]

        return found

    # Replaced here and not changed there: all that `build` does is part of every training's digest.
    before = build.build_task, build.build_modules
    build.build_task = shared(before[0], "model", "model_params", "class_weights")
    build.build_modules = shared(before[1], "modules")
    try:
        yield
    finally:
        build.build_task, build.build_modules = before


def _tasks(built: Any) -> Iterator[Task]:
    """All tasks in what `build_task` or `build_modules` returned."""
    if isinstance(built, Task):
        yield built
    for value in built.values() if isinstance(built, dict) else ():
        yield from value if isinstance(value, tuple) else (value,)


def _built_once(task: Task) -> Callable[[], nn.Module]:
    """`task.build` as copies of one module, which take a third of the time.

    That one is built now: some callers want none with values (`torch.device("meta")`).
    """
    built = task.build()
    return lambda: copy.deepcopy(built)


def _drawn_once(task: Task) -> Callable[[int], Params]:
    """`task.init` with the same numbers for all seeds."""
    draw = cache(partial(task.init, 0))
    return lambda seed: {name: value.detach() for name, value in draw().items()}


def most_architectures(spec: dict) -> int:
    """Least number of clients for which every architecture of a run has one."""
    return max([1, *(len(m) for m in spec["modules"].values() if isinstance(m, list | tuple))])


def _slow(settings: dict) -> dict:
    """Settings with learning rates that are too small to diverge on any examples.

    They change neither the operations nor the speed of a run.
    """

    def slowed(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return _slow(value)
        rate = "lr" in name.split("_") and type(value) in (int, float)
        return min(value, SLOW) if rate else value

    return {name: slowed(name, value) for name, value in settings.items()}


def unpretrained(spec: dict) -> dict:
    """The run with random weights, which need no file; the operations are the same."""
    modules = {
        name: [{**one, "weights": None} for one in module]
        if isinstance(module, list | tuple)
        else {**module, "weights": None}
        for name, module in spec["modules"].items()
    }
    return {**spec, "modules": modules, "weights": None}


def made_up(sizes: Sizes, clients: int, train: tuple[int, int], scored: int) -> Federation:
    """A federation of the same kind: shapes, groups and splits of `sizes`, but few owners."""
    groups = [group for group in GROUPS if group in sizes.group]
    owners = [group for group in groups for _ in range(clients if group in CLIENTS else 1)]
    counts = _counts(sizes, owners, train, scored)
    splits, start = {}, 0
    for split in SPLITS:
        ends = start + np.cumsum(counts[split])
        rows = [np.arange(e - n, e) for e, n in zip(ends, counts[split], strict=True)]
        splits[split], start = Split.from_lists(rows), int(ends[-1])
    draw = np.random.default_rng(0)
    channels = sizes.shape[0] if sizes.dtype == "uint8" and not sizes.labels else 0
    return Federation(
        x=_inputs(sizes, start, draw),
        y=draw.integers(0, sizes.num_classes, (start, *sizes.labels)),
        num_classes=sizes.num_classes,
        group=np.array([GROUPS.index(group) for group in owners], np.uint8),
        client_id=np.arange(len(owners)),
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
        side=np.arange(start) % sizes.side if sizes.side else None,
        cluster=np.arange(len(owners)) % sizes.clusters if sizes.clusters else None,
        tokens=Tokens(*sizes.tokens) if sizes.tokens else None,
        **splits,
    )


def _counts(
    sizes: Sizes, owners: list[str], train: tuple[int, int], scored: int
) -> dict[str, list[int]]:
    """Examples of each owner by split; none if the owner's group has none in that split."""
    counts = {}
    for split in SPLITS:
        having = {g for n, g in zip(getattr(sizes, split), sizes.group, strict=True) if n}
        each = [train[i % 2] if split == "train" else scored for i in range(len(owners))]
        counts[split] = [n if g in having else 0 for n, g in zip(each, owners, strict=True)]
    return counts


def _inputs(sizes: Sizes, number: int, draw: np.random.Generator) -> np.ndarray:
    """Noise with the shape and type of the inputs -> [number, *shape]"""
    shape, dtype = (number, *sizes.shape), np.dtype(sizes.dtype)
    if sizes.tokens:
        return draw.integers(0, max(sizes.tokens[0], 1), shape).astype(dtype)
    if dtype == np.uint8:
        return draw.integers(0, sizes.num_classes if sizes.labels else 256, shape, np.uint8)
    return draw.standard_normal(shape).astype(dtype)
