"""What a configuration leaves out of what is declared, or of what its folder shows already.

The folder of a scale shows what that scale declares. A configuration that selects papers, runs or
seeds adds to it: what is trained stays, and papers that are not selected keep their tables and
their place in the report. Tables, however, are made of the runs that are selected. Where they would
lose runs that are done, the configuration is refused: it may select those too, or have a tag. The
folder of a tag shows its last configuration.
"""

from collections.abc import Iterator
from pathlib import Path

from fedlib import papers
from fedlib.errors import ConfigError
from fedlib.spec import Paper, Table
from fedlib.workflow.declarations import cells_of, declared
from fedlib.workflow.plan import Plan
from fedlib.workflow.selection import ends_too_early, missing

FILTERS = ("papers", "seeds", "federations", "labels", "runs")


def check(plan: Plan, root: Path = Path()) -> None:
    """Refuse a configuration by which tables in the folder of a scale would lose finished runs.

    Args:
      root: what the plan's paths are relative to.

    Raises:
      ConfigError: names the paper, one of its runs and what to do.
    """
    for name in () if plan.config["tag"] else plan.papers:
        if not (root / plan.path("metrics", paper=name)).exists():
            continue
        others = set(cells_of(declared(name, plan.scale))).difference(plan.cells(name))
        files = {cell: root / plan.path("evaluation", **cell._asdict()) for cell in sorted(others)}
        lost = ["/".join(cell[1:3]) + f"/seed{cell.seed}" for cell in files if files[cell].exists()]
        if lost:
            raise ConfigError(
                f"{_filters(plan)} would take {len(lost)} finished runs out of the tables of "
                f"{name} in results/{plan.folder}, such as {lost[0]}; add a tag, such as tag=part, "
                "for a folder of its own, or select those too"
            )


def remarks(plan: Plan) -> Iterator[str]:
    """What is left out, and what becomes of it, in lines for whoever starts the workflow."""
    if _filters(plan):
        declared_ones = [declared(name, plan.scale) for name in papers.names()]
        whole = sum(len(cells_of(paper)) for paper in declared_ones)
        stays = "" if plan.config["tag"] else "; what is there of other papers stays"
        yield (
            f"{_filters(plan)}: {len(plan.cells())} of the {whole} trainings that scale "
            f"{plan.scale} declares, added to results/{plan.folder}{stays}"
        )
    for name, paper in plan.papers.items():
        for stage in ("table", "figure"):
            for key, exhibit in getattr(declared(name, plan.scale), stage + "s").items():
                for reason in _reasons(paper, exhibit):
                    yield f"{stage} {name}/{key} is without {reason}"


def _reasons(paper: Paper, exhibit: Table) -> Iterator[str]:
    """What an exhibit does not show of the runs of a paper that are wanted, and why."""
    shown = [run for run in paper.runs if exhibit.shows(run.federation, run.label)]
    for run in shown:
        if ends_too_early(run, exhibit):
            yield (
                f"{run.federation}/{run.label}, which ends after {run.rounds} rounds, before it "
                "records what is shown there"
            )
    there = [(run.federation, run.label) for run in shown]
    for federation in dict.fromkeys(run.federation for run in shown):
        if needed := missing(exhibit, federation, there):
            yield f"{federation}, where it needs {' and '.join(needed)}, too"


def _filters(plan: Plan) -> str:
    """What the configuration selects, as it is given: "papers=[fedmix] seeds=[0]"."""
    given = [(key, plan.config[key]) for key in FILTERS if plan.config[key]]
    given = [(k, v if k != "runs" or len(v) == 1 else [f"{len(v)} of them"]) for k, v in given]
    return " ".join(f"{key}=[{','.join(map(str, values))}]" for key, values in given)
