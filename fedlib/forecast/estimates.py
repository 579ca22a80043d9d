"""Estimates of time and memory, in results/FOLDER/estimates.json, and requests to a scheduler.

`fedlib.forecast.speed` measures and writes that file. The plan reads seconds from it, the rules
megabytes and minutes, so this module imports nothing large.
"""

import contextlib
import csv
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.environment import memory
from fedlib.run_spec import RunSpec, Tuning

TIMED = ("train", "evaluate")  # stages that are estimated
FACTORS = Path(__file__).with_name("factors.csv")
START = 0.25  # seconds of a job besides its work, if it is a fork (`fedlib.workflow.warm`)
SCORED = 1 / 3  # of the time of an example in training: a forward pass of three
# Memory.
BASE_MB = 500  # of a process with PyTorch
COPIES = 3  # of all models of a server or a client in training: before, between, after
ROOM_SHARE = 0.125  # as `fedlib.engine.scratch`: what clients keep beyond it is in a file
FLOAT_BYTES = 4
# Requests to a scheduler, which sends a job again with twice as much if it exceeds them.
UNKNOWN_MB = 4000  # for a job without an estimate
SPARE = 1.25  # times the estimated memory
LEAST_MB = 1000
NODE_MB = 700  # further memory on a cluster's node, where Snakemake starts twice for each job
UNKNOWN_MINUTES = {"train": 480, "evaluate": 60}  # for a job without an estimate
SLOWER = 3.0  # times the estimated time, because nodes may be slower than this machine


class Request(NamedTuple):
    """A run that is to be estimated.

    Attributes:
      name: "paper/federation/label".
      spec: of its training.
      data: specification of its federation.
      manifest: of its federation, if it has been cut.
      executor: from the configuration.
      finished: by stage, the result of the run with another seed.
    """

    name: str
    spec: RunSpec
    data: dict
    manifest: Path
    executor: str
    finished: Mapping[str, Path]


class DataSize(NamedTuple):
    """The size of a federation.

    Attributes:
      shape, labels, dtype, num_classes, tokens, bounds: of examples, see `fedlib.data.sizes.Sizes`.
      owners: number of clients and others; clients: of those that train.
      trained: examples of the clients that train; scored: validation and test examples.
      size: bytes of all examples.
    """

    shape: list[int]
    labels: list[int]
    dtype: str
    num_classes: int
    tokens: list[int] | None
    bounds: list[list[float]] | None
    owners: int
    clients: int
    trained: int
    scored: int
    size: int


class Speed(NamedTuple):
    """FedAvg's speed with a model, and the size of the model.

    Attributes:
      seconds: for an example in training.
      numbers: parameters of the model.
    """

    seconds: float
    numbers: int


class Factor(NamedTuple):
    """Times of a method divided by FedAvg's, as kept trainings took them.

    Attributes:
      train, evaluate: medians over federations.
      experts: number of experts of these trainings; 0 for methods without.
    """

    train: float
    evaluate: float
    experts: int

    def of(self, stage: str, spec: RunSpec) -> float:
        """The factor of a run: a mixture of one expert is FedAvg, and each further one adds."""
        kept, experts = getattr(self, stage), spec.params.get("num_experts", self.experts)
        if self.experts < 2 or type(experts) is not int:
            return kept
        return max(1.0, 1 + (kept - 1) * (experts - 1) / (self.experts - 1))


class Estimate(NamedTuple):
    """The cost of one job.

    Attributes:
      seconds: of one core, or of a GPU.
      mb: megabytes of host memory.
    """

    seconds: float
    mb: float


@cache
def factors() -> dict[str, Factor]:
    """The factors of methods, by name."""
    with FACTORS.open(encoding="utf-8", newline="") as file:
        return {
            row["method"]: Factor(*(float(row[x]) for x in TIMED), int(row["experts"]))
            for row in csv.DictReader(file)
        }


def estimate(spec: RunSpec, size: DataSize, speed: Speed) -> dict[str, Estimate]:
    """The costs of the jobs of a run -> {"train": Estimate, "evaluate": Estimate}

    A method without kept trainings, such as a user's own, counts as FedAvg.
    """
    factor = factors().get(spec.method, Factor(1.0, 1.0, 0))
    evaluations = 1 + -(-spec.rounds // spec.evaluate_every)
    work = {
        "train": spec.rounds * examples_of_round(spec, size) + SCORED * evaluations * size.scored,
        "evaluate": size.trained + SCORED * size.scored,
    }
    memory = megabytes(spec, size, speed)
    return {
        stage: Estimate(START + speed.seconds * work[stage] * factor.of(stage, spec), memory)
        for stage in TIMED
    }


def examples_of_round(spec: RunSpec, size: DataSize) -> float:
    """Examples of FedAvg's clients in a round, with repeats."""
    local, each = spec.local, size.trained / max(size.clients, 1)
    if local.get("steps"):
        each = local["steps"] * min(local["batch_size"], each)
    if spec.method == "local_experts":  # a few clients after the other, each until it stops
        return spec.params.get("at_once", 10) * each * spec.params.get("max_epochs", 200)
    return size.clients * spec.participation.get("rate", 1.0) * each * local.get("epochs", 1)


def megabytes(spec: RunSpec, size: DataSize, speed: Speed) -> float:
    """Memory of a job: data, models of the server and of a client, and one for each client."""
    experts = spec.params.get("num_experts", 1)
    models = FLOAT_BYTES * speed.numbers * (experts if type(experts) is int else 1)
    room = ROOM_SHARE * memory() / (os.cpu_count() or 1)
    kept = min(room, 2 * FLOAT_BYTES * speed.numbers * size.owners)
    return round(BASE_MB + (size.size + 2 * COPIES * models + kept) / 1e6, 1)


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
        kept, costs = seals.recall(path), {}
        for name, run in kept.get("runs", {}).items():
            with contextlib.suppress(KeyError, TypeError):  # another version has other fields
                costs |= {(name, stage): Estimate(**run[stage]) for stage in TIMED}
        return cls(kept.get("unit", "core"), kept.get("machine", ""), costs)

    def cost(self, stage: str, wildcards: Mapping) -> Estimate | None:
        """The cost of a job; None without an estimate."""
        return self.costs.get((run_name(wildcards), stage)) if stage in TIMED else None

    def seconds(self, stage: str, wildcards: Mapping, tuning: Mapping | None) -> float:
        """Seconds of a training, an evaluation or a tuning; infinity without an estimate.

        Args:
          tuning: of the run, see `fedlib.spec.Run.tuning`.
        """
        if stage != "tune":
            cost = self.cost(stage, wildcards)
            return cost.seconds if cost else math.inf
        train, evaluate = (self.cost(timed, wildcards) for timed in TIMED)
        if train is None or evaluate is None:
            return math.inf
        # Trials that are chosen by a further protocol are evaluated with it.
        how = Tuning(**(tuning or {}))
        evaluations = how.trials * (how.protocol != "default")
        return train.seconds * how.trainings + evaluate.seconds * evaluations

    def megabytes(self, stage: str, wildcards: Mapping) -> int:
        """Megabytes to request from a scheduler."""
        cost = self.cost(stage, wildcards)
        return max(LEAST_MB, round(SPARE * cost.mb / 100) * 100) if cost else UNKNOWN_MB

    def minutes(self, stage: str, wildcards: Mapping, times: float = 1) -> int:
        """Minutes to request from a scheduler, for `times` trainings or evaluations in one job."""
        cost = self.cost(stage, wildcards)
        return math.ceil(times * (SLOWER * cost.seconds / 60 if cost else UNKNOWN_MINUTES[stage]))


def run_name(wildcards: Mapping) -> str:
    """Name of the run of a training or an evaluation, as in configurations."""
    return "/".join(str(wildcards[name]) for name in ("paper", "federation", "label"))
