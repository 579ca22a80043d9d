"""Write docs/results/full/README.md: every published number beside ours, or its cost.

Costs come from docs/results/full/costs.csv, to which estimates of this folder are added.
"""

import argparse
from pathlib import Path

import pandas as pd

from fedlib import files
from fedlib.cli import arguments
from fedlib.forecast.estimates import TIMED, Estimates
from fedlib.report import packs
from fedlib.report.pages import kept
from fedlib.report.wall import cells, page
from fedlib.workflow import specs
from fedlib.workflow.plan import Plan

COSTS, RUN = "costs.csv", ["paper", "federation", "label"]
MEASURED = "measured"  # a column: whether a run without packed runs was timed


def main(args: argparse.Namespace) -> None:
    """Write the page and its picture."""
    plan = arguments.plan(args)
    folder = kept.shelf(Path("docs/results"), plan.scale)
    names = [name for name in plan.papers if Path(plan.path("published", paper=name)).exists()]
    found = pd.concat([of_paper(plan, name, folder) for name in names], ignore_index=True)
    costs = costs_of(plan, folder / COSTS, found)
    files.write_text(folder / COSTS, costs.to_csv(index=False))
    table = with_costs(found, costs, folder)
    run = table[table["seeds"] > 0]
    page.draw(run, *(folder / f"{page.PICTURE}.{form}" for form in ("svg", "png")))
    estimated = costs[~costs[MEASURED]]["machine"]
    unpacked = [
        f"[{pack.parent.relative_to(folder)}]({pack.parent.relative_to(folder)}/README.md)"
        for pack in sorted(folder.rglob(packs.FOLDER))
        if not (pack / packs.ARCHIVE).exists()
    ]
    text = page.text(table, ", ".join(estimated.unique()), unpacked)
    files.write_text(folder / "README.md", text)
    print(f"{len(table)} cells, of which {len(run)} were run: {folder}/README.md")


def of_paper(plan: Plan, name: str, folder: Path) -> pd.DataFrame:
    """The cells of a paper, with our numbers where its results are kept in a folder."""
    paper, published = plan.papers[name], Path(plan.path("published", paper=name))
    exhibits = [
        specs.of_exhibit(plan, lambda *_, **__: "", "table", paper, table)
        for table, declared in paper.tables.items()
        if declared.published and declared.kind != "criteria"
    ]
    every = cells.declared(exhibits, published)
    ours = [
        cells.reproduced(pack, published).assign(pack=str(pack))
        for pack in sorted((folder / name).rglob(packs.FOLDER))
    ]
    key = [*cells.KEY, "published"]
    none = pd.DataFrame(columns=[*cells.KEY, *cells.OURS, "pack"])
    found = pd.concat(ours).drop_duplicates(key) if ours else none.astype(every[key].dtypes)
    merged = every.merge(found, "left", key).assign(paper=name, paper_title=paper.title)
    return merged.assign(seeds=merged["seeds"].fillna(0).astype(int))


def costs_of(plan: Plan, file: Path, found: pd.DataFrame) -> pd.DataFrame:
    """The costs in a file, with estimates of the plan's folder of results.

    Returns:
      DataFrame with `RUN`, hours (of a core, for one seed), gb, machine, and `MEASURED`.
    """
    estimates = Estimates.read(plan.path("estimates"))
    rows = []
    for run in dict.fromkeys(found[RUN].itertuples(index=False, name=None)):
        stages = [estimates.costs.get(("/".join(run), stage)) for stage in TIMED]
        if all(stages):
            hours = round(sum(cost.seconds for cost in stages) / 3600, 2)
            gb = round(max(cost.mb for cost in stages) / 1000, 1)
            rows.append((*run, hours, gb, estimates.machine, False))
    new = pd.DataFrame(rows, columns=[*RUN, "hours", "gb", "machine", MEASURED])
    every = pd.concat([new, pd.read_csv(file)]) if file.exists() else new
    every = every.astype({MEASURED: bool})  # without estimates the column has another type
    return every.drop_duplicates([*RUN, MEASURED]).sort_values([*RUN, MEASURED])


def with_costs(table: pd.DataFrame, costs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The cells with machine, core-hours and page: measured for finished runs, else estimated."""
    known = costs.set_index([*RUN, MEASURED])[["machine", "hours"]].T.to_dict("list")
    packed = {pack: cells.made(Path(pack)) for pack in table["pack"].dropna().unique()}

    def of(row: pd.Series) -> list:
        run, is_run = tuple(row[RUN]), row["seeds"] > 0
        cost = known.get((*run, is_run), ["", float("nan")])
        if not is_run:
            return ["", cost[1], ""]
        where = Path(row["pack"]).parent.relative_to(folder) / "REPORT.md"
        return [*packed[row["pack"]].get(run, cost), str(where)]

    more = table.apply(of, axis="columns", result_type="expand")
    return table.assign(**dict(zip(("machine", "hours", "page"), more.T.values, strict=True)))
