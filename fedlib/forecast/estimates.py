"""Requests for the costs of runs, and their estimates in results/FOLDER/estimates.json.

`fedlib.forecast.estimating` writes that file. The plan reads seconds from it, the rules megabytes.
"""

import contextlib
import importlib.metadata
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import files, seals
from fedlib.environment import ROOT, environment, memory
from fedlib.run_spec import is_file, run_roots, trainings_worth

TIMED = ("train", "evaluate")  # stages that are estimated
# Requests to a scheduler.
UNKNOWN_MB = 4000  # for a job without an estimate
SPARE = 1.25  # times the estimated memory
LEAST_MB = 1000
NODE_MB = 700  # further memory on a cluster's node, where Snakemake starts twice for each job
UNKNOWN_MINUTES = {"train": 480, "evaluate": 60}  # for a job without an estimate
SLOWER = 3.0  # times the estimated time, because nodes may be slower than this machine
# Cached values depend on the text of these modules: an edit may change their form or meaning.
SIZES = ROOT / "fedlib/data/sizes.py"
COSTS = ROOT / "fedlib/forecast/costs.py"
REHEARSAL = [COSTS.with_name(f"{name}.py") for name in ("counting", "rehearsal", "rehearsed")]

digest = cache(files.digest)  # each file of code is read once


class Request(NamedTuple):
    """A run, and settings for the estimate of its cost.

    Attributes:
      name: "paper/federation/label".
      spec: of its evaluation, see `fedlib.run_spec.of_training`.
      data: specification of its federation.
      manifest: of its federation, if it has been cut.
      device, executor: from the configuration.
    """

    name: str
    spec: dict
    data: dict
    manifest: Path
    device: str
    executor: str

    def key(self) -> str:
        """Digest of all facts on which the estimate depends.

        They include the code of the method and its models, but not of modules that these import: an
        edit of the engine hardly changes the operations.
        """
        facts = {
            "spec": {**self.spec, "seed": 0, "data": ""},
            "data": self.data,
            "cut": files.digest(self.manifest) if self.manifest.exists() else None,
            "code": [*code_of(self.spec), *map(digest, (SIZES, *REHEARSAL, COSTS))],
            "wanted": [self.device, self.executor],
            "machine": _machine(),
        }
        return seals.spec_digest(facts)[:16]


@cache
def _machine() -> list:
    return [environment()["cpu"], importlib.metadata.version("torch"), memory(), os.cpu_count()]


def code_of(spec: dict) -> list[str]:
    """Digests of the modules of a run's method and models."""
    names = run_roots("train", spec)[1:]
    return [digest(ROOT / (n if is_file(n) else f"{n.replace('.', '/')}.py")) for n in names]


class Estimate(NamedTuple):
    """The cost of one job.

    Attributes:
      seconds: of one core, or of a GPU.
      flops: counted operations.
      mb: megabytes of host memory.
    """

    seconds: float
    flops: float
    mb: float


@dataclass(frozen=True)
class Estimates:
    """The costs of jobs.

    Attributes:
      unit: "core" or "GPU", to which the seconds refer.
      machine: its name.
      costs: by run and stage.
    """

    unit: str = "core"
    machine: str = ""
    costs: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> "Estimates":
        """The estimates in a file without those of another version; none if it is missing."""
        kept, costs = seals.remembered(path), {}
        for name, run in kept.get("runs", {}).items():
            with contextlib.suppress(KeyError, TypeError):  # another version has other fields
                costs |= {(name, stage): Estimate(**run[stage]) for stage in TIMED}
        return cls(kept.get("unit", "core"), kept.get("machine", ""), costs)

    def cost(self, stage: str, wildcards: Mapping) -> Estimate | None:
        """The cost of a job; None without an estimate."""
        return self.costs.get((run_name(wildcards), stage)) if stage in TIMED else None

    def seconds(self, stage: str, wildcards: Mapping, tuning: Mapping | None) -> float | None:
        """Seconds of a training, an evaluation or a tuning; None without an estimate.

        Args:
          tuning: of the run, see `fedlib.spec.Run.tuning`.
        """
        if stage != "tune":
            cost = self.cost(stage, wildcards)
            return cost and cost.seconds
        train, evaluate = (self.cost(timed, wildcards) for timed in TIMED)
        if train is None or evaluate is None:
            return None
        # Trials that are chosen by a further protocol are evaluated with it.
        evaluations = tuning["trials"] * (tuning.get("protocol", "default") != "default")
        return train.seconds * trainings_worth(tuning) + evaluate.seconds * evaluations

    def megabytes(self, stage: str, wildcards: Mapping) -> int:
        """Megabytes to request from a scheduler."""
        cost = self.cost(stage, wildcards)
        if cost is None:
            return UNKNOWN_MB
        return max(LEAST_MB, round(SPARE * cost.mb / 100) * 100)

    def minutes(self, stage: str, wildcards: Mapping, times: float = 1) -> int:
        """Minutes to request from a scheduler, for `times` trainings or evaluations in one job."""
        cost = self.cost(stage, wildcards)
        return math.ceil(SLOWER * times * cost.seconds / 60) if cost else UNKNOWN_MINUTES[stage]


def run_name(wildcards: Mapping) -> str:
    """Name of the run of a training or an evaluation, as in configurations."""
    return "/".join(str(wildcards[name]) for name in ("paper", "federation", "label"))
