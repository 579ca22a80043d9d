"""What a kind of table or figure makes of the files that a job is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlib.report import frames, printed


def made(
    kind: Callable, exhibit: dict, metrics: Path, clients: Path, published: Path | None
) -> Any:
    """The sheet or figure of an exhibit.

    Args:
      kind: its `build` or `draw`.
      exhibit: as `fedlib.report.exhibits` knows it; "metrics" is the digest of the
        specification of both frames, which those packed by earlier versions do not have.
      metrics, clients: frames, see `fedlib.report.metrics`.
      published: the paper's own numbers, if it has any.

    Raises:
      DataError: if a file is missing, damaged or of something else, or lacks what the exhibit
        shows.
    """
    return kind(
        exhibit,
        frames.read_of(metrics, exhibit.get("metrics"), ("metric", "value")),
        frames.read_of(clients, exhibit.get("metrics"), ("client",)),
        printed.read(published) if published else None,
        **exhibit["params"],
    )
