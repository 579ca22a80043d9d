"""What a plan has to run, and what it costs by cell: a run with all of its seeds.

Times are estimates, see `fedlib.forecast`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fedlib.forecast.estimates import TIMED, Estimates, run_name
from fedlib.spec import Paper, Run, RunName
from fedlib.workflow.freshness import OF_RUNS, OpenJob
from fedlib.workflow.layout import STAGES
from fedlib.workflow.plan import Plan

SHOWN = 24  # most cells that are listed, cheapest first


class RunCost(NamedTuple):
    """A cell of tables: a run with all of its seeds.

    Attributes:
      name: "paper/federation/label".
      seconds: of its open jobs, including tuning; infinity if one of them is unknown.
      mb: largest memory of one job, in megabytes.
      jobs: number of open trainings and evaluations.
      tables: names of the paper's tables that show it.
    """

    name: str
    seconds: float
    mb: float
    jobs: int
    tables: tuple[str, ...]


def cells(plan: Plan, todo: Iterable[OpenJob], estimates: Estimates) -> list[RunCost]:
    """Every run that a table or figure shows, cheapest first; `todo` are open jobs of runs."""
    left: dict[str, list[tuple[str, float]]] = {}
    for stage, job, _ in todo:
        left.setdefault(run_name(job), []).append((stage, seconds(plan, stage, job, estimates)))
    every = [
        _cell(paper, str(name), run, left.get(str(name), []), estimates)
        for paper in plan.papers.values()
        for name, run in paper.runs_by_name().items()
    ]
    return sorted(every, key=lambda cell: (cell.seconds, cell.name))


def seconds(plan: Plan, stage: str, job: Mapping, estimates: Estimates) -> float:
    """Estimated seconds of a tuning, a training or an evaluation; infinity if unknown."""
    return estimates.seconds(stage, job, plan.run(*(job[key] for key in RunName._fields)).tuning)


def _cell(paper: Paper, name: str, run: Run, left: list, estimates: Estimates) -> RunCost:
    jobs = sum(stage in TIMED for stage, _ in left)
    costs = [estimates.costs.get((name, stage)) for stage in TIMED]
    mb = max((cost.mb for cost in costs if cost), default=0.0)
    tables = [key for key, x in paper.tables.items() if x.shows(run.federation, run.label)]
    return RunCost(name, sum(s for _, s in left), mb, jobs, tuple(tables))


def summary(plan: Plan, todo: Sequence[OpenJob], estimates: Estimates) -> Iterator[str]:
    """Lines for a reader: open jobs of each stage, causes, estimated times, and cells by cost."""
    if not todo:
        yield f"results/{plan.folder} is up to date: nothing to do"
        return
    yield f"results/{plan.folder}: {len(todo)} job{'s' * (len(todo) > 1)} to run"
    of_runs = [one for one in todo if one.stage in OF_RUNS]
    for stage in STAGES:
        if not (mine := [one for one in todo if one.stage == stage]):
            continue
        causes = Counter(one.cause for one in mine).most_common()
        why = ", ".join(c if n == len(mine) else f"{n} {c}" for c, n in causes)
        took = [seconds(plan, stage, x.job, estimates) for x in of_runs if x.stage == stage]
        spent = duration(took) if took else ""
        yield f"  {stage:<10}{len(mine):>6}  {spent:<14} {why}"
    if of_runs:
        yield ""
        yield from _costs(plan, cells(plan, of_runs, estimates), estimates)


def _costs(plan: Plan, every: Sequence[RunCost], estimates: Estimates) -> Iterator[str]:
    """Lines about the costs of papers or, if there is one alone, of its cells, cheapest first."""
    todo = [cell for cell in every if cell.jobs]
    most = max((cell.mb for cell in todo), default=0) / 1000
    unit = f"{estimates.unit} time on {estimates.machine}"
    yield f"Estimated {unit}: {duration([x.seconds for x in todo])}, up to {most:.1f} GB a job"
    if len(plan.papers) > 1:
        for name in plan.papers:
            mine = [cell.seconds for cell in todo if cell.name.startswith(f"{name}/")]
            yield f"  {name:<32} {duration(mine):>9}  {len(mine)} cell{'s' * (len(mine) != 1)}"
        yield "To see cells, name one paper: CONFIG=papers=[...]"
        return
    yield (
        "Cells, cheapest first; CONFIG=budget=10h makes as many as that buys, "
        "starting with those that cost least per published number:"
    )
    for cell in todo[:SHOWN]:
        shown = f" ({', '.join(cell.tables)})" if cell.tables else " (figures only)"
        yield f"  {duration([cell.seconds]):>9}  {cell.mb / 1000:5.1f} GB  {cell.name}{shown}"
    if len(todo) > SHOWN:
        yield f"  and {len(todo) - SHOWN} more: see {plan.path('estimates')}"


def duration(seconds: Sequence[float]) -> str:
    """The sum of durations in the largest unit in which it is at least 2; infinity is unknown."""
    known = [value for value in seconds if value < math.inf]
    unknown = len(known) < len(seconds)
    if unknown and not known:
        return "unknown"
    total, more = sum(known), " + unknown" * unknown
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if total >= 2 * size:
            return f"{float(f'{total / size:.3g}'):,g} {unit}{more}"
    return f"{total:.0f} s{more}"


def affordable(
    cells: Iterable[RunCost], budget: float, numbers: Mapping[str, int]
) -> list[RunCost]:
    """The cells of tables that fit into `budget` seconds; finished jobs cost nothing.

    First come the cells with published numbers, those first that cost least for each number, then
    all others, the cheapest first.

    Args:
      numbers: of published numbers of a cell, by its name.
    """

    def order(cell: RunCost) -> tuple:
        shown = numbers.get(cell.name, 0)
        return not shown, cell.seconds / max(shown, 1)

    bought, spent = [], 0.0
    for cell in sorted(cells, key=order):
        if cell.tables and spent + cell.seconds <= budget:
            bought.append(cell)
            spent += cell.seconds
    return bought
