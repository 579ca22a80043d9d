"""Write docs/results/published/README.md: every published number, with ours beside it.

Costs of runs come from costs.csv beside it. Runs without an estimate there get that of this folder;
the others stay, as a plan that was made beside other work measures too much.
"""

import argparse
import os
from pathlib import Path

import pandas as pd

from fedlib import files
from fedlib.cli import arguments, estimate
from fedlib.errors import ConfigError
from fedlib.forecast.estimates import TIMED, Estimates
from fedlib.report import packs
from fedlib.report.exhibits import PAPER_SCALE
from fedlib.report.pages import kept
from fedlib.report.wall import page, pairs
from fedlib.workflow.plan import Plan

FOLDER = kept.KEPT / "published"
COSTS, RUN = "costs.csv", ["paper", "federation", "label"]
MEASURED = "measured"  # a column: whether a run without packed runs was timed
COLUMNS = [*RUN, "hours", "gb", "machine", MEASURED]


def main(args: argparse.Namespace) -> None:
    """Write the page and its picture.

    Raises:
      ConfigError: if the scale is another than full.
    """
    plan = arguments.plan(args)
    if plan.scale != PAPER_SCALE:
        raise ConfigError(f"the wall shows scale full only, got scale={plan.scale}")
    for key in ("papers", "federations", "labels", "runs"):
        if plan.config[key]:
            raise ConfigError(f"the wall shows all runs, got {key}={plan.config[key]}")
    names = [name for name in plan.papers if Path(plan.path("published", paper=name)).exists()]
    costs = costs_of(plan, FOLDER / COSTS)
    files.write_text(FOLDER / COSTS, costs.to_csv(index=False))
    table = pd.concat([of_paper(plan, name, costs) for name in names], ignore_index=True)
    run = table[table["seeds"] > 0]
    page.draw(run, *(FOLDER / f"{page.PICTURE}.{form}" for form in ("svg", "png")))
    machine = ", ".join(map(str, costs.loc[~costs[MEASURED], "machine"].unique()))
    files.write_text(FOLDER / "README.md", page.text(table, machine))
    print(f"{len(table)} published numbers, {len(run)} of them reproduced: {FOLDER}/README.md")


def places(name: str) -> list[Path]:
    """The packs of a paper at scale full."""
    return packs.below(kept.KEPT / name / PAPER_SCALE, packs.FOLDER)


def of_paper(plan: Plan, name: str, costs: pd.DataFrame) -> pd.DataFrame:
    """The published numbers of a paper, with ours where its results are kept."""
    paper, published = plan.papers[name], Path(plan.path("published", paper=name))
    titles = {run.label: run.title for run in paper.runs}
    found = pairs.of_packs(published, places(name)).assign(paper=name, paper_title=paper.title)
    found = found.assign(row=[titles.get(label, label) for label in found["label"]])
    known = costs[costs[MEASURED]].set_index(RUN)[["machine", "hours"]].T.to_dict("list")
    packed = {str(pack): known | pairs.read_costs(pack) for pack in places(name)}
    guessed = costs[~costs[MEASURED]].set_index(RUN)["hours"].to_dict()
    unknown = float("nan")

    def of(row: dict) -> tuple:
        if not row["seeds"]:
            return "", unknown, unknown, ""
        run = name, row["federation"], row["run"]
        about = packed[row["pack"]].get(run, ("", unknown))
        report = os.path.relpath(Path(row["pack"]).with_name("REPORT.md"), FOLDER)
        return (*about, guessed.get(run, unknown), report)

    more = [of(row) for row in found.to_dict("records")]
    found[["machine", "hours", "estimate", "page"]] = pd.DataFrame(more, found.index)
    return found


def costs_of(plan: Plan, file: Path) -> pd.DataFrame:
    """The costs in a file, and of runs that it lacks the estimates of the plan's folder of results.

    Returns:
      DataFrame with `RUN`, hours (of a core, for one seed), gb, machine, and `MEASURED`.
    """
    estimates = Estimates.read(plan.path("estimates"))
    rows = []
    for name, paper in plan.papers.items():
        for run in sorted(estimate.count_numbers(paper, Path(plan.path("published", paper=name)))):
            if all(stages := [estimates.costs.get((run, stage)) for stage in TIMED]):
                hours = round(sum(cost.seconds for cost in stages) / 3600, 2)
                gb = round(max(cost.mb for cost in stages) / 1000, 1)
                rows.append((*run.split("/"), hours, gb, estimates.machine, False))
    new = pd.DataFrame(rows, columns=COLUMNS)
    every = pd.concat([pd.read_csv(file)[COLUMNS], new]) if file.exists() else new
    every = every.astype({MEASURED: bool})  # without estimates the column has another type
    return every.drop_duplicates([*RUN, MEASURED]).sort_values([*RUN, MEASURED])
