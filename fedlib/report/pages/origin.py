"""How training runs were made: machines, versions, commits and specifications, from histories."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedlib.results import opened

# Of a history's provenance, what differs between machines rather than between runs.
FACTS = (
    *("device", "gpu", "cpu", "platform", "executor", "python", "torch", "numpy"),
    *("commit", "clean"),
)
FACT_TITLES = {"gpu": "GPU", "cpu": "CPU", "clean": "working tree as committed"}
WALL, CPU, MEMORY = "wall_seconds", "cpu_seconds", "memory_bytes"  # as `fedlib.run.spent` has them


@dataclass(frozen=True)
class MadeRun:
    """A run with all its seeds.

    Attributes:
      name: FEDERATION/LABEL.
      seeds: of which there is a history.
      spec: what determines it, without the seed.
      spent: by all its seeds.
      facts: as those of `Origin`.
    """

    name: str
    seeds: tuple[int, ...]
    spec: dict
    spent: "Resources"
    facts: Mapping[str, Mapping[str, int]]


class Resources(NamedTuple):
    """What jobs took: how many recorded it, their seconds together, and the most memory of one."""

    jobs: int
    wall: float
    cpu: float
    memory: int

    @property
    def texts(self) -> tuple[str, str, str]:
        """Wall time, CPU time and memory for people."""
        return _time(self.wall), _time(self.cpu), f"{self.memory / 1e9:.1f} GB"

    @property
    def text(self) -> str:
        """The same in a sentence without its end."""
        wall, cpu, memory = self.texts
        return f"{wall}, {cpu} of CPU time, at most {memory} ({self.jobs} recorded it)"


@dataclass(frozen=True)
class Origin:
    """How the runs of a paper were made.

    Attributes:
      trainings: how many histories there are; 0 if none is kept.
      facts: what they say, by the names of `FACTS`: each value, and of how many trainings.
      spent: by all of them.
    """

    trainings: int
    facts: Mapping[str, Mapping[str, int]]
    runs: tuple[MadeRun, ...]
    spent: "Resources"

    @property
    def names(self) -> set[str]:
        """Of the runs of which there is a history."""
        return {run.name for run in self.runs}


def origin(folder: Path, runs: Mapping[str, Mapping[str, list[int]]]) -> Origin:
    """What histories below `folder` say of `runs`, the seeds by federation and label.

    Raises:
      DataError: if a history is damaged.
    """
    made, all_found = [], []
    for federation, labels in runs.items():
        for label, seeds in labels.items():
            files = {n: folder / federation / label / f"seed{n}/history.h5" for n in seeds}
            found = {seed: attributes(path) for seed, path in files.items() if path.exists()}
            provenances = [provenance for provenance, _ in found.values()]
            all_found += provenances
            if found:
                _, spec = next(iter(found.values()))
                spec = {name: spec[name] for name in spec if name not in ("seed", "data")}
                about = spent(provenances), facts(provenances)
                made.append(MadeRun(f"{federation}/{label}", tuple(found), spec, *about))
    return Origin(len(all_found), facts(all_found), tuple(made), spent(all_found))


def facts(provenances: Iterable[Mapping]) -> dict[str, dict[str, int]]:
    """What results say of where they were made: each value of `FACTS`, and how many say so."""
    known = [{name: found.get(name) for name in FACTS} for found in provenances]
    counts = {
        name: Counter(_text(one[name]) for one in known if one[name] is not None) for name in FACTS
    }
    return {name: dict(values) for name, values in counts.items() if values}


def spent(provenances: Iterable[Mapping]) -> Resources:
    """What jobs took, by the provenance of their results."""
    known = [found["spent"] for found in provenances if found.get("spent")]
    wall, cpu = (sum(one[name] for one in known) for name in (WALL, CPU))
    return Resources(len(known), wall, cpu, max((one[MEMORY] for one in known), default=0))


def attributes(history: Path) -> tuple[dict, dict]:
    """Provenance and specification in a history file, without reading its arrays."""
    with opened(history) as file:
        return json.loads(file.attrs["provenance"]), json.loads(file.attrs["spec"])


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
