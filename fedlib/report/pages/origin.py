"""How training runs were made: machines, versions, commits and specifications, from histories."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedlib.results import opened

# Of a history's provenance, what differs between machines rather than between runs.
FACTS = (
    *("device", "gpu", "cpu", "platform", "executor", "python", "torch", "numpy"),
    *("commit", "clean"),
)
FACT_TITLES = {"gpu": "GPU", "cpu": "CPU", "clean": "working tree as committed"}


@dataclass(frozen=True)
class MadeRun:
    """A run with all its seeds.

    Attributes:
      name: FEDERATION/LABEL.
      seeds: of which there is a history.
      spec: what determines it, without the seed.
    """

    name: str
    seeds: tuple[int, ...]
    spec: dict


@dataclass(frozen=True)
class Origin:
    """How the runs of a paper were made.

    Attributes:
      trainings: how many histories there are; 0 if none is kept.
      facts: what they say, by the names of `FACTS`: each value, and of how many trainings.
    """

    trainings: int
    facts: Mapping[str, Mapping[str, int]]
    runs: tuple[MadeRun, ...]


def origin(folder: Path, runs: Mapping[str, Mapping[str, list[int]]]) -> Origin:
    """What histories below `folder` say of `runs`, the seeds by federation and label.

    Raises:
      DataError: if a history is damaged.
    """
    counts: dict[str, Counter] = {name: Counter() for name in FACTS}
    made = []
    for federation, labels in runs.items():
        for label, seeds in labels.items():
            files = {n: folder / federation / label / f"seed{n}/history.h5" for n in seeds}
            found = {seed: attributes(path) for seed, path in files.items() if path.exists()}
            for provenance, _ in found.values():
                for name in FACTS:
                    if provenance.get(name) is not None:
                        counts[name][_text(provenance[name])] += 1
            if found:
                _, spec = next(iter(found.values()))
                spec = {name: spec[name] for name in spec if name not in ("seed", "data")}
                made.append(MadeRun(f"{federation}/{label}", tuple(found), spec))
    facts = {name: dict(values) for name, values in counts.items() if values}
    return Origin(sum(len(run.seeds) for run in made), facts, tuple(made))


def attributes(history: Path) -> tuple[dict, dict]:
    """Provenance and specification in a history file, without reading its arrays."""
    with opened(history) as file:
        return json.loads(file.attrs["provenance"]), json.loads(file.attrs["spec"])


def _text(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
