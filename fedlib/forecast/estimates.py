"""Estimated costs of jobs, read from results/FOLDER/estimates.json.

`fedlib.forecast.estimating` writes that file. The plan reads seconds from it, the rules megabytes.

Finished jobs correct the estimates, by the ratio of measured to estimated time: the median over
jobs of the same stage and method, or, without any, over all jobs of the stage.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.spec import Run

TIMED = ("train", "evaluate")  # stages that are estimated
# Requests to a scheduler.
UNKNOWN_MB = 4000  # for a job without an estimate
SPARE = 1.25  # times the estimated memory
LEAST_MB = 1000
NODE_MB = 700  # further memory on a cluster's node, where Snakemake starts twice for each job
UNKNOWN_MINUTES = {"train": 480, "evaluate": 60}  # for a job without an estimate
SLOWER = 3.0  # times the estimated time, because nodes may be slower than this machine


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


class Timing(NamedTuple):
    """Measured time of a job.

    Attributes:
      key: (stage, paper, federation, method).
      rounds: of the run; 1 for an evaluation.
      seconds: measured.
    """

    key: tuple
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Estimates:
    """The costs of jobs.

    Attributes:
      unit: "core" or "GPU", to which the seconds refer.
      machine: its name.
      costs: by run and stage.
      ratios: of measured to estimated time, by stage and method; None stands for all methods.
    """

    unit: str = "core"
    machine: str = ""
    costs: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    ratios: Mapping[tuple[str, str | None], float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> "Estimates":
        """The estimates in a file; none if the file is missing or damaged."""
        kept = seals.remembered(path)
        costs = {
            (name, stage): Estimate(**run[stage])
            for name, run in kept.get("runs", {}).items()
            for stage in TIMED
        }
        return cls(kept.get("unit", "core"), kept.get("machine", ""), costs)

    def cost(self, stage: str, wildcards: Mapping) -> Estimate | None:
        """The cost of a job; None without an estimate."""
        return self.costs.get((run_name(wildcards), stage)) if stage in TIMED else None

    def corrected(self, runs: Mapping[tuple, Run], records: Iterable[Timing]) -> "Estimates":
        """These estimates, with ratios from measured times.

        Args:
          runs: of the plan, by paper, federation and label.
          records: measured times of finished jobs.
        """
        by_round = defaultdict(list)  # estimated seconds
        for (paper, federation, label), run in runs.items():
            for stage in TIMED:
                if cost := self.costs.get((f"{paper}/{federation}/{label}", stage)):
                    rounds = run.rounds if stage == "train" else 1
                    by_round[stage, paper, federation, run.method].append(cost.seconds / rounds)
        ratios = defaultdict(list)
        for record in records:
            if estimated := by_round.get(record.key):
                ratio = record.seconds / record.rounds / statistics.mean(estimated)
                for method in (record.key[-1], None):
                    ratios[record.key[0], method].append(ratio)
        medians = {key: statistics.median(several) for key, several in ratios.items()}
        return replace(self, ratios=medians)

    def seconds(self, stage: str, wildcards: Mapping, method: str | None) -> float | None:
        """Seconds of a job, corrected; None without an estimate."""
        cost = self.cost(stage, wildcards)
        if cost is None:
            return None
        ratio = self.ratios.get((stage, method)) or self.ratios.get((stage, None)) or 1.0
        return cost.seconds * ratio

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
