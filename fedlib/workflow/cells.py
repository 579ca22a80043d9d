"""The cost of a plan by cell: a run with all of its seeds. The cells of a budget."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fedlib.forecast.estimates import TIMED, Estimates, run_name
from fedlib.spec import Paper, Run, RunName
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


def cells(plan: Plan, jobs: Iterable[tuple[str, Mapping]], estimates: Estimates) -> list[RunCost]:
    """Every run that a table or figure shows, cheapest first.

    Args:
      jobs: the open ones, as (stage, wildcards).
    """
    left: dict[str, list[tuple[str, float]]] = {}
    for stage, job in jobs:
        left.setdefault(run_name(job), []).append((stage, seconds(plan, stage, job, estimates)))
    every = [
        _cell(paper, str(name), run, left.get(str(name), []), estimates)
        for paper in plan.papers.values()
        for name, run in paper.named().items()
    ]
    return sorted(every, key=lambda cell: (cell.seconds, cell.name))


def seconds(plan: Plan, stage: str, job: Mapping, estimates: Estimates) -> float:
    """Estimated seconds of a tuning, a training or an evaluation; infinity if unknown."""
    tuning = plan.run(*(job[key] for key in RunName._fields)).tuning
    found = estimates.seconds(stage, job, tuning)
    return math.inf if found is None else found


def _cell(paper: Paper, name: str, run: Run, left: list, estimates: Estimates) -> RunCost:
    jobs = sum(stage in TIMED for stage, _ in left)
    costs = [estimates.costs.get((name, stage)) for stage in TIMED]
    mb = max((cost.mb for cost in costs if cost), default=0.0)
    tables = [key for key, x in paper.tables.items() if x.shows(run.federation, run.label)]
    return RunCost(name, sum(s for _, s in left), mb, jobs, tuple(tables))


def lines(
    papers: Mapping[str, Paper], cells: Sequence[RunCost], estimates: Estimates, file: str
) -> Iterator[str]:
    """Lines of text about the costs of a plan.

    Args:
      cells: from the function of this name, cheapest first.
      file: of the estimates.
    """
    most = max((cell.mb for cell in cells if cell.jobs), default=0.0)
    yield (
        f"Estimated: {_hours_of(cells)} {estimates.unit}-hours on {estimates.machine}, up to "
        f"{most / 1000:.1f} GB a job. By {estimates.unit}-hours:"
    )
    for name, paper in papers.items():
        of_paper = [cell for cell in cells if cell.name.startswith(f"{name}/")]
        yield _line("  ", name, of_paper)
        if len(papers) == 1:
            yield from _exhibits(paper, of_paper)
    if len(papers) > 1:
        yield "For tables, figures and cells name one paper: CONFIG=papers=[...]"
        return
    todo = [cell for cell in cells if cell.jobs]
    if todo:
        yield (
            "Cells, cheapest first; CONFIG=budget=10h makes as many as that buys, "
            "those first that cost least for each published number:"
        )
    for cell in todo[:SHOWN]:
        shown = f" ({', '.join(cell.tables)})" if cell.tables else " (figures only)"
        yield f"  {hours(cell.seconds):>9}  {cell.mb / 1000:5.1f} GB  {cell.name}{shown}"
    if len(todo) > SHOWN:
        yield f"  and {len(todo) - SHOWN} more: see {file}"


def hours(seconds: float) -> str:
    """A number of hours, with three digits; infinity is an unknown one."""
    if seconds == math.inf:
        return "unknown"
    return _digits(seconds / 3600) if seconds >= 36 else f"{seconds / 3600:.4f}"


def duration(seconds: float) -> str:
    """A duration in the largest unit in which it is at least 2."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{seconds:.0f} s"


def _digits(value: float) -> str:
    """Three digits without an exponent, "6,420"."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _exhibits(paper: Paper, cells: Sequence[RunCost]) -> Iterator[str]:
    """A line for each table and figure; a cell of several counts in each of them."""
    for kind, exhibits in (("table", paper.tables), ("figure", paper.figures)):
        for name, exhibit in exhibits.items():
            shown = {f"{paper.name}/{f}/{x}" for f in exhibit.federations for x in exhibit.labels}
            yield _line("    ", f"{kind} {name}", [c for c in cells if c.name in shown])


def _line(indent: str, name: str, cells: Sequence[RunCost]) -> str:
    todo = [cell for cell in cells if cell.jobs]
    done = f", {len(cells) - len(todo)} done" if len(todo) < len(cells) else ""
    spent = _hours_of(todo)
    return f"{indent}{name:<{34 - len(indent)}} {spent:>9}  {len(cells)} cells{done}"


def _hours_of(cells: Sequence[RunCost]) -> str:
    known = [cell.seconds for cell in cells if cell.seconds < math.inf]
    if cells and not known:
        return hours(math.inf)
    return hours(sum(known)) + (" + unknown" if len(known) < len(cells) else "")


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


def configuration(bought: Iterable[RunCost]) -> str:
    """Text of a configuration file that selects only these cells."""
    runs = sorted(cell.name for cell in bought)
    return json.dumps({"runs": runs, "budget": None}, indent=1)
