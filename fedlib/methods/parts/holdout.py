"""Training examples that every client holds out, to tune something on them.

They are a function of the run's seed and the client, so they are the same in every round, and
models trained on the rest never see them.
"""

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from fedlib import streams
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.federation import Split

# Made once, as captured steps (`fedlib.engine.graphs`) are identified by the data that they read.
_made: WeakKeyDictionary[DeviceData, dict[tuple, list[DeviceData]]] = WeakKeyDictionary()


def apart(cohort: Cohort, fraction: float) -> tuple[Cohort, Cohort]:
    """(the cohort on the examples that are left, the cohort on the examples held out).

    Example indices count within these reduced shards.

    Args:
      fraction: share of each client's training examples to hold out; see `holdout_size`.
    """
    made = _made.setdefault(cohort.data, {})
    key = cohort.seed, fraction
    if key not in made:
        splits = cut(cohort.data.federation.train, *key)
        made[key] = [cohort.data.with_fields(train=split) for split in splits]
    rest, held = (replace(cohort, data=data) for data in made[key])
    return rest, held


def cut(train: Split, seed: int, fraction: float) -> tuple[Split, Split]:
    """(examples left, examples held out) of every client, in shard order."""
    rest, held = [], []
    for client, size in enumerate(train.sizes.tolist()):
        order = streams.generator(seed, "holdout", client).permutation(size)
        out = np.isin(np.arange(size), order[: holdout_size(size, fraction)])
        rest.append(train.of(client)[~out])
        held.append(train.of(client)[out])
    return Split.from_lists(rest), Split.from_lists(held)


def holdout_size(size: int, fraction: float) -> int:
    """How many of `size` examples are held out: at least one, if another is left for training."""
    return max(min(max(round(fraction * size), 1), size - 1), 0)
