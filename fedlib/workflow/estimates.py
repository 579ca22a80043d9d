"""What jobs are estimated to cost, and which cells of tables a budget buys.

`scripts/estimate.py` reckons what one training and one evaluation of every run takes on this
machine, and writes it to `results/<folder>/estimates.json`. Here that file is read, by the plan for
its times and by the rules for memory; like the plan, this needs the standard library only.

Estimates are corrected by jobs that were timed since: by the ratio of measured to estimated time,
the median over jobs of the same stage and method, or else over all of the stage.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

TIMED = ("train", "evaluate")  # stages that are estimated
UNKNOWN_MB = 4000  # of a job that nothing has reckoned yet
SPARE = 1.25  # times the estimated memory is asked for
LEAST_MB = 1000


class Cost(NamedTuple):
    """What one job takes: seconds of a core, or of a card, and megabytes of host memory."""

    seconds: float
    mb: float


class Cell(NamedTuple):
    """A cell of tables: a run with all of its seeds.

    Attributes:
      name: "paper/federation/label".
      seconds: of its jobs that are not done.
      mb: the most that one of them needs.
      jobs: that are not done.
      begun: whether a job is done.
      tables: names of the paper's tables that show it.
    """

    name: str
    seconds: float
    mb: float
    jobs: int
    begun: bool
    tables: tuple[str, ...]


class Estimates:
    """What `scripts/estimate.py` found.

    Attributes:
      unit: "core" or "GPU", of which hours are told.
      machine: in words.
      known: by run and stage.
    """

    def __init__(self, found: Mapping):
        self.unit: str = found.get("unit", "core")
        self.machine: str = found.get("machine", "")
        self.known: dict[tuple[str, str], Cost] = {
            (name, stage): Cost(run[stage]["seconds"], run[stage]["mb"])
            for name, run in found.get("runs", {}).items()
            for stage in TIMED
        }
        self._ratios: dict[tuple, float] = {}

    @classmethod
    def of(cls, plan: Plan, root: Path = Path()) -> "Estimates":
        """Those of a plan's folder; none if there is no file, or it is damaged."""
        return cls(seals.remembered(root / plan.path("estimates")))

    def cost(self, stage: str, wildcards: Mapping) -> Cost | None:
        """Of a job; None if it has not been reckoned."""
        return self.known.get((run_name(wildcards), stage)) if stage in TIMED else None

    def corrected(self, plan: Plan, timed: Iterable) -> "Estimates":
        """With what was measured since.

        Args:
          timed: `fedlib.workflow.dryrun.Record`s.
        """
        ratios = defaultdict(list)
        by_key = defaultdict(list)
        for (paper, federation, label), run in plan.runs.items():
            name = f"{paper}/{federation}/{label}"
            for stage in TIMED:
                if cost := self.known.get((name, stage)):
                    rounds = run.rounds if stage == "train" else 1
                    key = stage, paper, federation, run.method
                    by_key[key].append(cost.seconds / rounds)
        for record in timed:
            if expected := by_key.get(record.key):
                ratio = record.seconds / record.rounds / statistics.mean(expected)
                ratios[record.key[0], record.key[-1]].append(ratio)
                ratios[record.key[0], None].append(ratio)
        other = Estimates({"unit": self.unit, "machine": self.machine})
        other.known = self.known
        other._ratios = {key: statistics.median(found) for key, found in ratios.items()}
        return other

    def seconds(self, stage: str, wildcards: Mapping, method: str | None) -> float | None:
        """Of a job, corrected; None if it has not been reckoned."""
        cost = self.cost(stage, wildcards)
        if cost is None:
            return None
        ratio = self._ratios.get((stage, method)) or self._ratios.get((stage, None)) or 1.0
        return cost.seconds * ratio

    def megabytes(self, stage: str, wildcards: Mapping) -> int:
        """To ask a scheduler for, for a job."""
        cost = self.cost(stage, wildcards)
        if cost is None:
            return UNKNOWN_MB
        return max(LEAST_MB, round(SPARE * cost.mb / 100) * 100)


def run_name(wildcards: Mapping) -> str:
    """The run of a job, as configurations name it."""
    return "/".join(str(wildcards.get(name, "")) for name in STAGES["train"][:3])


def cells(plan: Plan, seconds: Mapping[tuple[str, str], list[float]], known: Estimates) -> list:
    """Every run that a table or figure shows, cheapest first -> [Cell]

    Args:
      seconds: of the jobs that are not done, by run and stage.
    """
    found = []
    for (paper, federation, label), run in plan.runs.items():
        name = f"{paper}/{federation}/{label}"
        jobs = [s for stage in TIMED for s in seconds.get((name, stage), ())]
        costs = [known.known[name, stage].mb for stage in TIMED if (name, stage) in known.known]
        tables = tuple(
            key
            for key, table in plan.papers[paper].tables.items()
            if table.shows(federation, label)
        )
        todo = len(jobs)
        begun = todo < len(TIMED) * len(plan.papers[paper].seeds_of(run))
        found.append(Cell(name, sum(jobs), max(costs, default=0.0), todo, begun, tables))
    return sorted(found, key=lambda cell: (cell.seconds, cell.name))


def affordable(
    all_cells: Iterable[Cell], budget: float, published: Collection[str] = ()
) -> list[Cell]:
    """The cells of tables that `budget` seconds buy; what is done costs nothing.

    What has been begun is finished first, whatever it costs: tables do not lose what is done. Then
    come the cells that have a published number, then all others, in both cases cheapest first.

    Args:
      published: names of the cells that have a published number beside them.
    """

    def order(cell: Cell) -> tuple:
        return not cell.begun, cell.name not in published, cell.seconds

    bought, spent = [], 0.0
    for cell in sorted(all_cells, key=order):
        if cell.begun or (cell.tables and spent + cell.seconds <= budget):
            bought.append(cell)
            spent += cell.seconds
    return bought


def remaining(plan: Plan, root: Path = Path()) -> list[tuple[str, dict]]:
    """The training and evaluation jobs whose result is not there -> [(stage, wildcards)]"""
    files = {"train": "history", "evaluate": "evaluation"}
    return [
        (stage, job)
        for stage, job in plan.jobs()
        if stage in TIMED and not (root / plan.path(files[stage], **job)).exists()
    ]


def selection(bought: Iterable[Cell]) -> str:
    """A configuration file that selects these cells, and no more."""
    return json.dumps({"runs": sorted(cell.name for cell in bought), "budget": None}, indent=1)
