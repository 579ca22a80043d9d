"""The cells of tables that fit into a budget, and their distribution over several machines."""

import heapq
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fedlib.forecast.cells import RunCost
from fedlib.spec import Paper


def affordable(
    cells: Iterable[RunCost], budget: float, with_published: Collection[str] = ()
) -> list[RunCost]:
    """The cells of tables that fit into `budget` seconds; finished jobs cost nothing.

    Cells with finished jobs come first, at any cost, so that tables lose no results. Then come the
    cells with a published number, then all others, in both cases the cheapest first.

    Args:
      with_published: names of the cells with a published number.
    """

    def order(cell: RunCost) -> tuple:
        return not cell.begun, cell.name not in with_published, cell.seconds

    bought, spent = [], 0.0
    for cell in sorted(cells, key=order):
        if cell.begun or (cell.tables and spent + cell.seconds <= budget):
            bought.append(cell)
            spent += cell.seconds
    return bought


def parts(weights: Mapping[str, float], number: int) -> dict[str, int]:
    """The part of each cell, 1 to `number`; parts have about the same weight.

    Cells are placed in the order of falling weight. Each goes to the lightest part; among equals,
    to that with the fewest cells.
    """
    loads, found = [(0.0, 0, part) for part in range(1, number + 1)], {}
    for name in sorted(weights, key=lambda name: (-weights[name], name)):
        load, cells, part = heapq.heappop(loads)
        heapq.heappush(loads, (load + weights[name], cells + 1, part))
        found[name] = part
    return found


def configuration(bought: Iterable[RunCost]) -> str:
    """Text of a configuration file that selects only these cells."""
    runs = {"runs": sorted(cell.name for cell in bought)}
    return json.dumps({**runs, "budget": None, "share": None}, indent=1)


def with_published(paper: Paper, file: str | Path) -> set[str]:
    """Names of the cells that a table shows beside a published number.

    Args:
      file: of the paper's own numbers; not read if no table shows any.

    Raises:
      DataError: for an invalid file.
    """
    from fedlib.report import printed  # takes a second to import

    tables = [x for x in paper.tables.values() if x.published and x.kind != "criteria"]
    numbers = printed.read(file) if tables else None
    datasets = {data.name: data.dataset for data in paper.data}
    return {
        f"{paper.name}/{run.federation}/{run.label}"
        for run in paper.runs
        for table in tables
        if table.shows(run.federation, run.label)
        and printed.has(numbers, table.published, datasets[run.federation], run.label)
    }
