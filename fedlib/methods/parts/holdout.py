"""Training examples that every client holds out of training, to tune something on them.

Which ones is a function of the run's seed and the client, the same in every round, so whatever is
trained on the rest never sees them.
"""

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from fedlib import streams
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData
from fedlib.federation import Split

# Made once: recorded steps (`fedlib.engine.graphs`) are told apart by the data that they read.
_made: WeakKeyDictionary[DeviceData, dict[tuple, list[DeviceData]]] = WeakKeyDictionary()


def apart(cohort: Cohort, fraction: float) -> tuple[Cohort, Cohort]:
    """The same clients twice, training on what is left and on what is held out.

    Args:
      cohort: their examples are positions in these shards, not in their whole ones.
      fraction: of each client's training examples, see `num_held`.
    """
    made = _made.setdefault(cohort.data, {})
    key = cohort.seed, fraction
    if key not in made:
        splits = cut(cohort.data.federation.train, *key)
        made[key] = [cohort.data.training_on(split) for split in splits]
    rest, held = (replace(cohort, data=data) for data in made[key])
    return rest, held


def cut(train: Split, seed: int, fraction: float) -> tuple[Split, Split]:
    """(what is left, what is held out) of every client's training examples, in shard order."""
    rest, held = [], []
    for client, size in enumerate(train.sizes.tolist()):
        order = streams.generator(seed, "holdout", client).permutation(size)
        out = np.isin(np.arange(size), order[: num_held(size, fraction)])
        rest.append(train.of(client)[~out])
        held.append(train.of(client)[out])
    return Split.from_lists(rest), Split.from_lists(held)


def num_held(size: int, fraction: float) -> int:
    """How many of `size` examples are held out: at least one, but one is left for training."""
    return max(min(max(round(fraction * size), 1), size - 1), 0)
