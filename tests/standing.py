"""Where each paper stands: how many published cells were run, how near, and its main claim.

All of it is read from what is kept below docs/results, so that a page which says so can be checked.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from tabulate import tabulate

from fedlib.report import packs
from fedlib.report.pages import kept
from fedlib.report.pages.contents import NEAR
from fedlib.report.tables.criteria import VERDICTS
from fedlib.report.tables.render import ABSENT
from fedlib.report.wall import cells

HEAD = ("paper", "published", "run", "within two points", "main claim")
ORDERS = {"descending": min, "highest": min, "ascending": max, "lowest": max}  # the wrong end


class Paper(NamedTuple):
    """A paper as the table names it.

    Attributes:
      title: what its row is called; numbers: file of its published numbers.
      claims: titles of the criteria that are its main claim.
    """

    title: str
    numbers: Path
    claims: tuple[str, ...]


def counts(numbers: Path, folder: Path) -> list[int]:
    """Published cells, those with ours beside them in a folder, and those within two points."""
    every = cells.of_packs(numbers, sorted(folder.rglob(packs.FOLDER)))
    run = every[every["seeds"] > 0]
    return [len(every), len(run), int((run["difference"].abs() <= NEAR).sum())]


def table(papers: Mapping[str, Paper], folder: Path) -> str:
    """A row for each paper, and one for all, as Markdown.

    Published cells are accuracies and the like, in percent; run are those of scale full. The main
    claim is judged at scale full where it was tested there, else at scale reduced.

    Args:
      papers: by name.
      folder: docs/results.
    """
    rows, totals = [], [0, 0, 0]
    lost = [*pd.read_csv(kept.shelf(folder, "full") / "lost.csv")["paper"]]  # none is within two
    for name, paper in papers.items():
        found = counts(paper.numbers, kept.shelf(folder, "full") / name)
        found[1] += lost.count(name)
        totals = [a + b for a, b in zip(totals, found, strict=True)]
        rows.append([paper.title, *found, claim(name, paper.claims, folder)])
    rows.append(["all", *totals, ""])
    align = ["left", "right", "right", "right", "left"]
    return tabulate(rows, HEAD, tablefmt="pipe", disable_numparse=True, colalign=align)


def claim(name: str, titles: Iterable[str], folder: Path) -> str:
    """What became of the criteria of these titles: "shown", "opposite", "not shown", "in part".

    Opposite is an order of which every one is reversed: what was to be highest is lowest.
    """
    for scale in ("full", "reduced"):
        files = sorted((kept.shelf(folder, scale) / name).rglob("criteria.csv"))
        found = pd.concat([pd.read_csv(file) for file in files]) if files else pd.DataFrame()
        if len(found):
            mine = found[found["criterion"].isin(list(titles))]
            judged = mine[mine["reached"].isin([VERDICTS[True], VERDICTS[False]])]
            if len(judged):
                return f"{_verdict(judged)}, at scale {scale}"
    return ABSENT


def _verdict(judged: pd.DataFrame) -> str:
    reached = int((judged["reached"] == VERDICTS[True]).sum())
    if reached == len(judged):
        return "shown"
    if reached:
        return f"in part ({reached} of {len(judged)})"
    return "opposite" if all(map(_is_reversed, judged.to_dict("records"))) else "not shown"


def _is_reversed(row: dict) -> bool:
    """Whether the first of the values of an order is at the wrong end."""
    values = [float(text.replace("−", "-")) for text in row["value"].split(", ")]
    return row["kind"] in ORDERS and values[0] == ORDERS[row["kind"]](values)
