"""How a run tells that it is getting on: a line of text now and then. No result depends on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedlib.run.simulate import Record

TRAINING_SECONDS = 2.0  # between two lines
EVALUATION_SECONDS = 10.0


@dataclass
class TrainingProgress:
    """A line after rounds now and then, readable in a terminal and in a log file alike."""

    rounds: int
    start: int
    report: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0

    def tell(self, done: int, record: "Record") -> None:
        """Report after `done` rounds, unless the last line is only moments old."""
        now = time.monotonic()
        if now - self.told < TRAINING_SECONDS and done < self.rounds:
            return
        self.told = now
        elapsed = max(now - self.began, 1e-9)
        pace = (done - self.start) / elapsed
        parts = [f"round {done}/{self.rounds}"]
        parts += [f"loss {record.train_loss[-1]:.4f}"] if record.train_loss else []
        parts += [f"{group} {accuracy:.1%}" for group, accuracy in record.accuracies().items()]
        parts += [f"{record.trained / elapsed:,.0f} clients/s"]
        parts += [f"left {_clock((self.rounds - done) / pace)}"]
        self.report("  ".join(parts))


@dataclass
class EvaluationProgress:
    """A line of progress, unless the last one is only moments old."""

    report: Callable[[str], None]
    told: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Report `line`."""
        now = time.monotonic()
        if now - self.told >= EVALUATION_SECONDS:
            self.told = now
            self.report(line)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
