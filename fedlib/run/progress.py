"""Lines of progress, for terminals and log files.

This module affects no result, so it is not part of the code of a job.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

SECONDS = 2.0  # between two lines


@dataclass
class Rounds:
    """Lines about a training, now and then.

    Attributes:
      rounds: of the run.
      start: rounds done before this process.
      report: called with each line.
      began: time of the start.
      last_line: time of the last line; the first line comes after the first round.
    """

    rounds: int
    start: int
    report: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    last_line: float = 0.0

    def due(self, done: int) -> bool:
        """Whether a line is due after `done` rounds; always after the last round."""
        return done == self.rounds or time.monotonic() - self.last_line >= SECONDS

    def tell(self, done: int, loss: float | None, accuracies: Mapping[str, float]) -> None:
        """Report after `done` rounds.

        Args:
          loss: of the last round in which a client trained; None before.
          accuracies: at the last evaluation, by group.
        """
        self.last_line = time.monotonic()
        pace = (done - self.start) / max(self.last_line - self.began, 1e-9)
        parts = [f"round {done}/{self.rounds}"]
        parts += [] if loss is None else [f"loss {loss:.4f}"]
        parts += [f"{group} {accuracy:.1%}" for group, accuracy in accuracies.items()]
        parts += [f"left {timedelta(seconds=int((self.rounds - done) / pace))}"]
        self.report("  ".join(parts))
