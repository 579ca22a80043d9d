"""The time and memory that a job uses, for the record of a run."""

import re
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WALL, CPU, MEMORY = "wall_seconds", "cpu_seconds", "memory_bytes"
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss


@dataclass(frozen=True)
class Usage:
    """Counts wall time since its creation, CPU time of the whole process, and memory.

    Attributes:
      before: result of the earlier job that this one continues; {} for none.
    """

    before: Mapping[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def __call__(self) -> dict[str, float]:
        """{wall_seconds, cpu_seconds, memory_bytes} so far; memory is the peak."""
        now = {WALL: time.monotonic() - self._began, CPU: time.process_time()}
        times = {name: round(self.before.get(name, 0) + value, 2) for name, value in now.items()}
        return times | {MEMORY: max(self.before.get(MEMORY, 0), _peak())}


def _peak() -> int:
    """Bytes; on Linux `ru_maxrss` may be those of the process that started this one."""
    if (status := Path("/proc/self/status")).exists():
        if found := re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="utf-8")):
            return 1024 * int(found[1])
    return UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
