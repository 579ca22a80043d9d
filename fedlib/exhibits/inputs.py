"""What a kind of table or figure makes of the files that a job is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlib.exhibits import frames, published


def made(kind: Callable, exhibit: dict, metrics: Path, clients: Path, printed: Path | None) -> Any:
    """The sheet or figure of an exhibit.

    Args:
      kind: its `build` or `draw`.
      exhibit: as `fedlib.exhibits.selection` knows it; "metrics" is the digest of the
        specification of both frames, which those packed by earlier versions do not have.
      metrics, clients: frames, see `fedlib.exhibits.metrics`.
      printed: the paper's own numbers, if it has any.

    Raises:
      DataError: if a file is missing, damaged or of something else, or lacks what the exhibit
        shows.
    """
    return kind(
        exhibit,
        frames.read_of(metrics, exhibit.get("metrics"), ("metric", "value")),
        frames.read_of(clients, exhibit.get("metrics"), ("client",)),
        published.read(printed) if printed else None,
        **exhibit["params"],
    )
