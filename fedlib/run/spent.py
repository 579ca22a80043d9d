"""What a job takes of its machine, for the record of a run."""

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

WALL, CPU, MEMORY = "wall_seconds", "cpu_seconds", "memory_bytes"
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of what the system calls ru_maxrss


@dataclass(frozen=True)
class Spent:
    """Counts from when it is made; CPU time is all that the process has used.

    Attributes:
      before: what jobs had used from which this one goes on, as it is called; {} for none.
    """

    before: Mapping[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def __call__(self) -> dict[str, float]:
        """{wall_seconds, cpu_seconds, memory_bytes} so far; memory is the most at any time."""
        peak = UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        now = {WALL: time.monotonic() - self._began, CPU: time.process_time()}
        times = {name: round(self.before.get(name, 0) + value, 2) for name, value in now.items()}
        return times | {MEMORY: max(self.before.get(MEMORY, 0), peak)}
