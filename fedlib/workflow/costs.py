"""What a plan costs, told to a reader: by paper, by table and figure, and by cell."""

from collections.abc import Iterator, Sequence

from fedlib.workflow.estimates import Cell, Estimates
from fedlib.workflow.plan import Plan

SHOWN = 24  # cells that are listed, cheapest first


def told(plan: Plan, cells: Sequence[Cell], reckoned: Estimates) -> Iterator[str]:
    """Lines about the cells of a plan.

    Args:
      cells: as `fedlib.workflow.estimates.cells` gives them, cheapest first.
    """
    total = sum(cell.seconds for cell in cells)
    most = max((cell.mb for cell in cells if cell.jobs), default=0.0)
    yield (
        f"Estimated: {hours(total)} {reckoned.unit}-hours on {reckoned.machine}, up to "
        f"{most / 1000:.1f} GB a job. By {reckoned.unit}-hours:"
    )
    for paper in plan.papers:
        mine = [cell for cell in cells if cell.name.startswith(f"{paper}/")]
        yield _line("  ", paper, mine)
        if len(plan.papers) == 1:
            yield from _exhibits(plan, paper, mine)
    if len(plan.papers) > 1:
        yield "For tables, figures and cells name one paper: CONFIG=papers=[...]"
        return
    todo = [cell for cell in cells if cell.jobs]
    if todo:
        yield (
            "Cells, cheapest first; CONFIG=budget=10h makes as many as that buys, those with a "
            "published number before all others:"
        )
    for cell in todo[:SHOWN]:
        yield f"  {hours(cell.seconds):>9}  {cell.mb / 1000:5.1f} GB  {cell.name}{_where(cell)}"
    if len(todo) > SHOWN:
        yield f"  and {len(todo) - SHOWN} more: see {plan.path('estimates')}"


def hours(seconds: float) -> str:
    """A number of hours, to three digits."""
    return _digits(seconds / 3600) if seconds >= 36 else f"{seconds / 3600:.4f}"


def words(seconds: float) -> str:
    """A duration in the largest unit of which it has at least two."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{seconds:.0f} s"


def _digits(value: float) -> str:
    """Three digits without an exponent, "6,420"."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def _exhibits(plan: Plan, paper: str, cells: Sequence[Cell]) -> Iterator[str]:
    """A line for each table and figure; cells that several show count in each of them."""
    declared = plan.papers[paper]
    for kind, exhibits in (("table", declared.tables), ("figure", declared.figures)):
        for name, exhibit in exhibits.items():
            shown = {f"{paper}/{f}/{x}" for f in exhibit.federations for x in exhibit.labels}
            yield _line("    ", f"{kind} {name}", [c for c in cells if c.name in shown])


def _line(indent: str, name: str, cells: Sequence[Cell]) -> str:
    todo = [cell for cell in cells if cell.jobs]
    done = f", {len(cells) - len(todo)} done" if len(todo) < len(cells) else ""
    spent = hours(sum(cell.seconds for cell in todo))
    return f"{indent}{name:<{34 - len(indent)}} {spent:>9}  {len(cells)} cells{done}"


def _where(cell: Cell) -> str:
    return f" ({', '.join(cell.tables)})" if cell.tables else " (figures only)"
