"""What a kind of table or figure makes of the files that a job is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlib.exhibits import frames, published


def made(kind: Callable, exhibit: dict, metrics: Path, clients: Path, printed: Path | None) -> Any:
    """The sheet or figure of an exhibit.

    Args:
      kind: its `build` or `draw`.
      exhibit: as `fedlib.exhibits.selection` knows it.
      metrics, clients: frames, see `fedlib.exhibits.metrics`.
      printed: the paper's own numbers, if it has any.

    Raises:
      DataError: if a file is missing or damaged, or lacks what the exhibit shows.
    """
    return kind(
        exhibit,
        frames.read_parquet(metrics),
        frames.read_parquet(clients),
        published.read(printed) if printed else None,
        **exhibit["params"],
    )
