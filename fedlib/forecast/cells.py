"""The cost of a plan, by paper, by table and figure, and by cell: a run with all of its seeds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fedlib.forecast.estimates import TIMED, Estimates
from fedlib.spec import Paper, Run

SHOWN = 24  # most cells that are listed, cheapest first


class RunCost(NamedTuple):
    """A cell of tables: a run with all of its seeds.

    Attributes:
      name: "paper/federation/label".
      seconds: of its open jobs, including tuning.
      mb: largest memory of one job, in megabytes.
      jobs: number of open trainings and evaluations.
      begun: whether a job is done.
      tables: names of the paper's tables that show it.
    """

    name: str
    seconds: float
    mb: float
    jobs: int
    begun: bool
    tables: tuple[str, ...]


def cells(
    papers: Mapping[str, Paper],
    seconds: Mapping[tuple[str, str], Sequence[float]],
    estimates: Estimates,
) -> list[RunCost]:
    """Every run that a table or figure shows, cheapest first.

    Args:
      papers: of the plan, by name.
      seconds: of the open jobs, by run and stage.
    """
    every = [
        _cell(paper, run, seconds, estimates) for paper in papers.values() for run in paper.runs
    ]
    return sorted(every, key=lambda cell: (cell.seconds, cell.name))


def _cell(paper: Paper, run: Run, seconds: Mapping, estimates: Estimates) -> RunCost:
    name = f"{paper.name}/{run.federation}/{run.label}"
    left = [s for stage in TIMED for s in seconds.get((name, stage), ())]
    costs = [estimates.costs.get((name, stage)) for stage in TIMED]
    mb = max((cost.mb for cost in costs if cost), default=0.0)
    begun = len(left) < len(TIMED) * len(paper.seeds_of(run))
    tables = [key for key, x in paper.tables.items() if x.shows(run.federation, run.label)]
    left_to_tune = sum(seconds.get((name, "tune"), ()))
    return RunCost(name, sum(left) + left_to_tune, mb, len(left), begun, tuple(tables))


def lines(
    papers: Mapping[str, Paper], cells: Sequence[RunCost], estimates: Estimates, file: str
) -> Iterator[str]:
    """Lines of text about the costs of a plan.

    Args:
      cells: from the function of this name, cheapest first.
      file: of the estimates.
    """
    total = sum(cell.seconds for cell in cells)
    most = max((cell.mb for cell in cells if cell.jobs), default=0.0)
    yield (
        f"Estimated: {hours(total)} {estimates.unit}-hours on {estimates.machine}, up to "
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
            "Cells, cheapest first; CONFIG=budget=10h makes as many as that buys, those with a "
            "published number before all others:"
        )
    for cell in todo[:SHOWN]:
        shown = f" ({', '.join(cell.tables)})" if cell.tables else " (figures only)"
        yield f"  {hours(cell.seconds):>9}  {cell.mb / 1000:5.1f} GB  {cell.name}{shown}"
    if len(todo) > SHOWN:
        yield f"  and {len(todo) - SHOWN} more: see {file}"


def hours(seconds: float) -> str:
    """A number of hours, with three digits."""
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
    spent = hours(sum(cell.seconds for cell in todo))
    return f"{indent}{name:<{34 - len(indent)}} {spent:>9}  {len(cells)} cells{done}"
