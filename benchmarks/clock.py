"""What a contender counts its work with: warm-up, throughput, memory. Standard library only."""

import os
import resource
import sys
import time
from pathlib import Path


class Clock:
    """Counts the samples of a contender's rounds, the first ones left out.

    Attributes:
      seconds: how long to measure, at least; a round that has begun is finished.
      warm_up: seconds of rounds that are not counted, at least one round.
    """

    def __init__(self, seconds: float):
        self.seconds, self.warm_up = seconds, min(1.0, seconds / 5)
        self.samples = self.rounds = 0
        self.begin()

    def begin(self) -> None:
        """Begin to warm up now: each contender says so when its data and models are there."""
        self._begin = self._end = time.perf_counter()
        self._warm = None  # when counting began

    def tick(self, samples: int) -> bool:
        """Note a round that has trained on `samples`; whether there should be another."""
        self._end = time.perf_counter()
        if self._warm is None:
            if self._end - self._begin >= self.warm_up:
                self._warm = self._end
            return True
        self.samples += samples
        self.rounds += 1
        more = self._end - self._warm < self.seconds
        if not more:
            self.memory = peak_memory()  # now, while all its processes are there
        return more

    def result(self) -> dict:
        """Rounds, samples, seconds and samples/s of what was counted, and peak memory in bytes."""
        seconds = self._end - self._warm
        return {
            "rounds": self.rounds,
            "samples": self.samples,
            "seconds": seconds,
            "rate": self.samples / seconds,
            "memory": self.memory,
        }


def peak_memory() -> int:
    """Bytes: the largest resident sets of this process and its descendants, added up.

    Where there is no /proc, only finished children count, and of them the largest.
    """
    if not Path("/proc/self/status").exists():
        unit = 1 if sys.platform == "darwin" else 1024
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return unit * sum(resource.getrusage(which).ru_maxrss for which in who)
    return sum(_peak(pid) for pid in _family(os.getpid()))


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
