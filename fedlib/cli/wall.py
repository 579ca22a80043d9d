"""Write docs/results/published/README.md: every published number, with ours beside it.

Costs of runs whose packs have no runs come from costs.csv beside it; lost.csv there has numbers of
runs that were not kept, for the picture.
"""

import argparse
import os
from pathlib import Path

import pandas as pd

from fedlib import files
from fedlib.cli import arguments
from fedlib.errors import ConfigError
from fedlib.report import packs
from fedlib.report.exhibits import PAPER_SCALE
from fedlib.report.pages import kept
from fedlib.report.wall import page, pairs
from fedlib.workflow.plan import Plan

FOLDER = kept.KEPT / "published"
COSTS, LOST, RUN = "costs.csv", "lost.csv", ["paper", "federation", "label"]


def main(args: argparse.Namespace) -> None:
    """Write the page and its picture.

    Raises:
      ConfigError: if the scale is another than full.
    """
    plan = arguments.plan(args)
    if plan.scale != PAPER_SCALE:
        raise ConfigError(f"the wall has numbers of scale full alone, got scale={plan.scale}")
    names = [name for name in plan.papers if Path(plan.path("published", paper=name)).exists()]
    costs = pd.read_csv(FOLDER / COSTS)
    every = [of_paper(plan, name, costs) for name in names]
    table = pd.concat(every, ignore_index=True)
    run = table[table["seeds"] > 0]
    lost = pd.read_csv(FOLDER / LOST)
    page.draw(run, lost, *(FOLDER / f"{page.PICTURE}.{form}" for form in ("svg", "png")))
    unpacked = [
        f"[{pack.parent.relative_to(kept.KEPT)}]({_report(pack)})"
        for name in names
        for pack in places(name)
        if not (pack / packs.ARCHIVE).exists()
    ]
    text = page.text(table, unpacked)
    files.write_text(FOLDER / "README.md", text)
    print(f"{len(table)} published numbers, {len(run)} of them reproduced: {FOLDER}/README.md")


def places(name: str) -> list[Path]:
    """The packs of a paper at scale full."""
    return sorted((kept.KEPT / name / PAPER_SCALE).rglob(packs.FOLDER))


def _report(pack: Path) -> str:
    """The address of a pack's report on the wall."""
    return os.path.relpath(pack.with_name("REPORT.md"), FOLDER)


def of_paper(plan: Plan, name: str, costs: pd.DataFrame) -> pd.DataFrame:
    """The published numbers of a paper, with ours where its results are kept."""
    paper, published = plan.papers[name], Path(plan.path("published", paper=name))
    titles = {run.label: run.title for run in paper.runs}
    found = pairs.of_packs(published, places(name)).assign(paper=name, paper_title=paper.title)
    found = found.assign(row=[titles.get(label, label) for label in found["label"]])
    known = costs.set_index(RUN)[["machine", "hours"]].T.to_dict("list")
    packed = {str(pack): known | pairs.made(pack) for pack in places(name)}
    unknown = float("nan")

    def of(row: dict) -> tuple:
        if not row["seeds"]:
            return "", unknown, ""
        run = name, row["federation"], row["run"]
        about = packed[row["pack"]].get(run, ("", unknown))
        return (*about, _report(Path(row["pack"])))

    more = [of(row) for row in found.to_dict("records")]
    found[["machine", "hours", "page"]] = pd.DataFrame(more, found.index)
    return found
