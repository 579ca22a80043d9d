"""Notes below a traceback: where in a round an error happened, and how to repeat it.

Two errors get none: a full device, for which smaller blocks may help, and a loss that is not
finite, whose message says it all.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fedlib.engine.task import Batch
from fedlib.engine.waves import Work
from fedlib.errors import DivergedError, quote


@dataclass(slots=True)
class Place:
    """The current position of the work.

    Attributes:
      batch: of the clients, stacked if they are several; None if it is not known.
    """

    batch: Batch | None = None


@contextlib.contextmanager
def note_errors(work: Work) -> Iterator[Place]:
    """Errors inside this block get a note: stage, round, clients and shapes, from the `Place`.

    Args:
      work: of the clients that are visited inside.
    """
    place = Place()
    try:
        yield place
    except (torch.OutOfMemoryError, DivergedError):
        raise
    except Exception as error:
        error.add_note(_note(work, place.batch))
        raise


def _note(work: Work, batch: Batch | None) -> str:
    ids = work.ids.tolist()
    who = f"client {ids[0]}" if len(ids) == 1 else f"clients {quote(ids)} together"
    if batch is not None:
        who += f", on a batch of x {[*batch.x.shape]} {batch.x.dtype} and y {[*batch.y.shape]}"
    return (
        f"This happened in {work.stage} of round {work.round + 1}, {who}.\n"
        "To repeat it client by client, choose the executor loop: CONFIG=executor=loop of make."
    )
