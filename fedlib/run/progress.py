"""Lines of progress, readable in a terminal and in a log file alike.

Nothing here computes anything, so that how progress is told is no part of the code of a job.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SECONDS = 10.0  # between two lines of an evaluation
ROUND_SECONDS = 2.0  # and of a training


@dataclass
class Progress:
    """A line now and then, of an evaluation.

    Attributes:
      report: gets the lines.
      told: when the last one was; the first comes a while after the start.
    """

    report: Callable[[str], None]
    told: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Report `line`, unless the last one is only moments old."""
        now = time.monotonic()
        if now - self.told >= SECONDS:
            self.told = now
            self.report(line)


@dataclass
class Rounds:
    """A line now and then, of a training.

    Attributes:
      rounds: of the run.
      start: rounds that had been done before.
      report: gets the lines.
      began: when.
      told: when the last line was; the first comes after the first round.
    """

    rounds: int
    start: int
    report: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0

    def due(self, done: int) -> bool:
        """Whether a line is to come after `done` rounds: always after the last."""
        return done == self.rounds or time.monotonic() - self.told >= ROUND_SECONDS

    def tell(
        self, done: int, trained: int, loss: float | None, accuracies: Mapping[str, float]
    ) -> None:
        """Report after `done` rounds.

        Args:
          trained: clients so far, counting repeats, since `start`.
          loss: of the last round in which anybody trained, None before.
          accuracies: at the last evaluation, by group.
        """
        self.told = time.monotonic()
        elapsed = max(self.told - self.began, 1e-9)
        pace = (done - self.start) / elapsed
        parts = [f"round {done}/{self.rounds}"]
        parts += [] if loss is None else [f"loss {loss:.4f}"]
        parts += [f"{group} {accuracy:.1%}" for group, accuracy in accuracies.items()]
        parts += [f"{trained / elapsed:,.0f} clients/s"]
        parts += [f"left {_clock((self.rounds - done) / pace)}"]
        self.report("  ".join(parts))


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
