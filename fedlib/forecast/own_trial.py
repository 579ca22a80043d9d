"""The rehearsal of a run (`fedlib.run.rehearsal`) without data, on made-up examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedlib.data.sizes import Sizes, sizes
from fedlib.engine.choice import ONE_BY_ONE
from fedlib.environment import ROOT
from fedlib.errors import ConfigError, DataError
from fedlib.federation import CLIENTS, GROUPS, SPLITS, Federation, Split, Tokens
from fedlib.run import build, rehearsal
from fedlib.run_spec import RunSpec, is_file

# Training examples of the clients, in turn, and examples of each client in another split.
TRAIN, SCORED = (rehearsal.EXAMPLES, rehearsal.FEWER), 4
FEWEST = 3  # clients of a group; a client for each architecture, if there are more


def check(spec: RunSpec, built: Any, data: dict, raw: str, executor: str = "auto") -> None:
    """Try a run of a user's method, or of a model with frozen weights.

    Args:
      spec: of the run.
      built: the method, without values. A very large model is not tried before its job.
      data: specification of its federation.
      raw: the folder data/raw, see `fedlib.data.sizes.sizes`.
      executor: as configured; what "auto" takes on a GPU computes like "batched". Methods of fedlib
        are tried by "loop" alone, as tests compare their executors.

    Raises:
      ConfigError: for what `fedlib.run.rehearsal.check` refuses, and for errors in the user's file.
    """
    tasks, file = build.tasks_of(built), str(ROOT / spec.method) if is_file(spec.method) else None
    if any(x.is_heavy for x in tasks) or not (file or any(x.is_frozen_in_part for x in tasks)):
        return
    try:
        owned = sizes(data, raw)
    except (ConfigError, DataError):  # told by the check of the federation, or by its job
        return
    course = {k: v for k, v in spec.participation.items() if k not in ("rate", "selection")}
    precision = spec.precision.replace("tf32", "float32")  # TF32 is of GPUs alone
    few, data = replace(spec, precision=precision, participation=course), _few_owners(spec, owned)
    how = "loop" if executor in ONE_BY_ONE or not file else "batched"
    with rehearsal.refuse(spec.method, file):
        rehearsal.check(build.build_simulation(few, data, executor=how, weights=None))


def _few_owners(spec: RunSpec, sizes: Sizes) -> Federation:
    """A federation with shapes, groups and splits of `sizes`, but few owners."""
    clients = max([FEWEST, *(len(x) for x in spec.modules.values() if isinstance(x, list | tuple))])
    groups = [group for group in GROUPS if group in sizes.group]
    owners = [group for group in groups for _ in range(clients if group in CLIENTS else 1)]
    counts = {}
    for split in SPLITS:
        having = {g for n, g in zip(getattr(sizes, split), sizes.group, strict=True) if n}
        each = [TRAIN[i % 2] if split == "train" else SCORED for i in range(len(owners))]
        counts[split] = [n if g in having else 0 for n, g in zip(each, owners, strict=True)]
    return make_up(sizes, owners, counts)


def make_up(like: Any, owners: Sequence[str], counts: Mapping[str, Sequence[int]]) -> Federation:
    """A federation of noise with the shapes of another one.

    Args:
      like: has the fields of `fedlib.data.sizes.Sizes` that are about single examples.
      owners: the group of each.
      counts: how many examples each has, by split.
    """
    draw, splits, number = np.random.default_rng(0), {}, 0
    for split in SPLITS:
        each = counts.get(split, [0] * len(owners))
        rows = [np.arange(e - n, e) for e, n in zip(number + np.cumsum(each), each, strict=True)]
        splits[split], number = Split.from_lists(rows), number + sum(each)
    shape, dtype = (number, *like.shape), np.dtype(like.dtype)
    most = max(1, (like.tokens or [like.num_classes if like.labels else 256])[0])
    # A model may look up the categories in a column, so its numbers are from this column's range.
    ends = [[0], [most]] if dtype.kind in "iu" else like.bounds or [[-2], [2]]
    low, high = np.reshape(ends, (2, -1, *[1] * (len(like.shape) - 1)))
    channels = like.shape[0] if dtype == np.uint8 and not like.labels else 0
    return Federation(
        x=draw.uniform(low, high, shape).astype(dtype),  # whole numbers are rounded down
        y=draw.integers(0, like.num_classes, (number, *like.labels)),
        num_classes=like.num_classes,
        group=np.array([GROUPS.index(group) for group in owners], np.uint8),
        client_id=np.arange(len(owners)),
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
        side=np.zeros(number, np.int64),  # some methods read it, and clusters; 0 is always one
        cluster=np.zeros(len(owners), np.int64),
        tokens=Tokens(*like.tokens) if like.tokens else None,
        **splits,
    )
