"""Origin of training runs: machines, versions, commits and specifications, from histories."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedlib.results import open_result

# Entries of a history's provenance that differ between machines rather than between runs.
FACTS = (
    *("device", "gpu", "cpu", "platform", "executor", "python", "torch", "numpy"),
    *("commit", "clean"),
)
FACT_TITLES = {"gpu": "GPU", "cpu": "CPU", "clean": "working tree as committed"}
WALL, CPU, MEMORY = "wall_seconds", "cpu_seconds", "memory_bytes"  # names in `fedlib.run.usage`


class Resources(NamedTuple):
    """Resources of jobs: number of records, total seconds, and the most memory of one job."""

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
        """The same as the beginning of a sentence."""
        wall, cpu, memory = self.texts
        return f"{wall}, {cpu} of CPU time, at most {memory} ({self.jobs} recorded it)"


@dataclass(frozen=True)
class Origin:
    """Origin of the runs of a paper.

    Attributes:
      trainings: number of histories; 0 if none are kept.
      facts: values of `FACTS` by title, each with its number of trainings.
      spent: resources of all trainings.
      runs: FEDERATION/LABEL of the runs with a history, each with its seeds' provenance.
    """

    trainings: int
    facts: Mapping[str, Mapping[str, int]]
    spent: Resources
    runs: Mapping[str, Mapping[int, Mapping]]

    @property
    def by_run(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of a table of what differs between runs; no rows if nothing does."""
        differing = [name for name, values in self.facts.items() if len(values) > 1]
        heads = ["run", "seeds", *differing, "CPU time"]
        rows = []
        for name, seeds in self.runs.items() if differing else ():
            known, cost = facts(seeds.values()), resources(seeds.values())
            told = ["; ".join(known.get(x, {})) for x in differing]
            rows.append([name, ", ".join(map(str, seeds)), *told, cost.texts[1] * bool(cost.jobs)])
        return heads, rows


def origin(folder: Path, runs: Mapping[str, Mapping[str, list[int]]]) -> Origin:
    """Origin of `runs`, seeds by federation and label, from histories below `folder`.

    Raises:
      DataError: if a history is damaged.
    """
    made: dict[str, dict[int, dict]] = {}
    for federation, labels in runs.items():
        for label, seeds in labels.items():
            for seed in seeds:
                history = folder / federation / label / f"seed{seed}/history.h5"
                if history.exists():
                    made.setdefault(f"{federation}/{label}", {})[seed] = attributes(history)[0]
    every = [provenance for seeds in made.values() for provenance in seeds.values()]
    return Origin(len(every), facts(every), resources(every), made)


def facts(provenances: Collection[Mapping]) -> dict[str, dict[str, int]]:
    """Values of `FACTS` in the provenance of results by title, each with its number of results."""
    found = {}
    for name in FACTS:
        values = (one[name] for one in provenances if one.get(name) is not None)
        found[FACT_TITLES.get(name, name)] = dict(Counter(map(_text, values)))
    return {title: values for title, values in found.items() if values}


def resources(provenances: Iterable[Mapping]) -> Resources:
    """Resources of jobs, from the provenance of their results."""
    known = [found["spent"] for found in provenances if found.get("spent")]
    wall, cpu = (sum(one[name] for one in known) for name in (WALL, CPU))
    return Resources(len(known), wall, cpu, max((one[MEMORY] for one in known), default=0))


def attributes(history: Path) -> tuple[dict, dict]:
    """Provenance and specification of a history file, read without its arrays."""
    with open_result(history) as file:
        return json.loads(file.attrs["provenance"]), json.loads(file.attrs["spec"])


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
