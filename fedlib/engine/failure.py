"""Notes below a traceback: where in a round an error happened, and how to repeat it.

Two errors get none: a full device, for which smaller blocks may help, and a loss that is not
finite, whose message says it all.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fedlib.engine.task import Batch
from fedlib.engine.waves import Work
from fedlib.errors import DivergedError

SHOWN = 8  # clients, at most


@dataclass(slots=True)
class Place:
    """The current position of the work.

    Attributes:
      ids: clients that are computed together now.
      batch: their batch, stacked if they are several; None before the first.
      shape: [K, B] of the batch, if only its shape is known.
    """

    ids: np.ndarray
    batch: Batch | None = None
    shape: tuple[int, ...] = ()


@contextlib.contextmanager
def named(work: Work) -> Iterator[Place]:
    """Errors inside this block get a note: stage, round, clients and shapes, from the `Place`.

    Args:
      work: of the clients that are visited inside.
    """
    place = Place(work.ids)
    try:
        yield place
    except (torch.OutOfMemoryError, DivergedError):
        raise
    except Exception as error:
        error.add_note(_note(work, place))
        raise


def _note(work: Work, place: Place) -> str:
    ids = place.ids.tolist()
    names = ", ".join(map(str, ids[:SHOWN]))
    names += f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    who = f"client {names}" if len(ids) == 1 else f"clients {names} together"
    return (
        f"This happened in {work.stage} of round {work.round + 1}, {who}, {_batch(work, place)}.\n"
        "To repeat it client by client, add --executor loop to the command of the run."
    )


def _batch(work: Work, place: Place) -> str:
    if place.batch is not None:
        x, y = place.batch.x, place.batch.y
        return f"on a batch of x {list(x.shape)} {x.dtype} and y {list(y.shape)} {y.dtype}"
    if place.shape:
        return f"on a batch of x {[*place.shape, *work.data.x.shape[1:]]}"
    return "before the first batch"
