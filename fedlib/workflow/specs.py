"""The specifications of the jobs that show results: metrics, tables, figures, report."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedlib.run_spec import run_weights
from fedlib.spec import Paper, Run
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import config, overrides
from fedlib.workflow.declarations import common_seeds
from fedlib.workflow.selection import families

if TYPE_CHECKING:
    from fedlib.workflow.plan import Plan

# Keys of the configuration that choose among what papers declare, and those that name what only
# some papers have.
SELECTING = ("papers", "seeds", "federations", "labels", "runs", "methods", "budget", "sources")
NAMING = ("federations", "labels", "runs", "methods", "set", "sources")


def of_metrics(plan: "Plan", paper: Paper) -> dict:
    """Which run each row of the metrics is of."""
    runs = []
    for run in paper.runs:
        data = plan.data(paper.name, run.federation)
        runs.append(
            {
                "federation": run.federation,
                "dataset": data.dataset,
                "partition": data.partition_label,
                "label": run.label,
                "method": run.method,
                "seeds": list(paper.seeds_of(run)),
            }
        )
    return {"paper": paper.name, "runs": runs}


def of_exhibit(plan: "Plan", stage: str, paper: Paper, name: str) -> dict:
    """What a table or figure (`stage`) shows, and of which runs."""
    exhibit = plan.exhibit(stage, paper.name, name)
    federations = [plan.data(paper.name, federation) for federation in exhibit.federations]
    runs = [
        run
        for label in exhibit.labels
        for federation in exhibit.federations
        if (run := plan.runs.get((paper.name, federation, label)))
    ]
    return {
        "paper": paper.name,
        "name": name,
        "kind": exhibit.kind,
        "title": exhibit.title,
        "caption": exhibit.caption + _not_run(plan, stage, paper, name, runs),
        "params": exhibit.params,
        "scale": plan.scale,
        "scale_note": paper.scale_note,
        "folder_note": plan.folder_note,
        "seeds": common_seeds(paper, runs),
        "federations": [data.describe() for data in federations],
        "runs": [run.describe() for run in runs],
        "published": exhibit.published,
    }


def _not_run(plan: "Plan", stage: str, paper: Paper, name: str, runs: list[Run]) -> str:
    """A sentence on the cells that a selection of single runs leaves out of an exhibit."""
    if plan.config["runs"] is None or not runs:
        return ""
    whole = plan.declared[paper.name]
    exhibit = getattr(whole, f"{stage}s")[name]
    there = {(run.federation, run.label) for run in runs}
    used = {federation for federation, _ in there}
    missing = []
    for data in (data for data in whole.data if data.name in used):
        titles = [
            run.title
            for run in whole.runs
            if run.federation == data.name
            and exhibit.shows(data.name, run.label)
            and (data.name, run.label) not in there
        ]
        missing += [f"{', '.join(titles)} on {data.title}"] if titles else []
    return f" Not run: {'; '.join(missing)}." if missing else ""


def of_report(plan: "Plan", there: bool = False) -> dict:
    """What is in the report, in its order; see `fedlib.reporting.content`.

    Args:
      there: what is in the folder, and not what is planned.
    """
    return {
        "scale": plan.scale,
        "folder": plan.folder,
        "folder_note": plan.folder_note,
        "papers": [
            _of_paper(paper) | {"words": _words(plan, paper)} for paper in plan.reported(there)
        ],
    }


def _words(plan: "Plan", paper: Paper) -> list[str]:
    """The configuration, less the scale, that makes a paper of the report again.

    That is the plan's where the plan selects the paper, and the paper alone if no name of a run or
    federation speaks against it. Of another paper it is what the folder's configuration asks of all
    papers, and of this one by its names.
    """
    given = dict(plan.config)
    if paper.name not in plan.papers:
        given |= dict.fromkeys(SELECTING, None)
        given["set"] = overrides.about(paper, given["set"] or ()) or None
        given["papers"] = [paper.name]
    elif not any(given[key] for key in NAMING):
        given["papers"] = [paper.name]
    return config.words(given)


def _of_paper(paper: Paper) -> dict:
    """What the report tells and shows of a paper, and of which runs."""
    runs: dict[str, dict[str, list[int]]] = {}
    for run in paper.runs:
        runs.setdefault(run.federation, {})[run.label] = list(paper.seeds_of(run))
    return {
        "name": paper.name,
        "title": paper.title,
        "citation": paper.citation,
        "scale_note": paper.scale_note,
        "seeds": list(paper.seeds),
        "federations": [
            {"name": data.name, "title": data.title, "notes": data.notes}
            for data in families(paper)
        ],
        "data": {data.name: [data.title, data.describe()["family"]] for data in paper.data},
        "methods": {run.title: run.method for run in paper.runs},
        "runs": runs,
        "tables": _headings(paper, paper.tables),
        "figures": _headings(paper, paper.figures),
    }


def about(plan: "Plan") -> dict:
    """Scale, data and weights of every paper, for the front page of the report."""
    papers = [
        {
            "title": paper.title,
            "citation": paper.citation,
            "scale_note": paper.scale_note,
            "seeds": list(paper.seeds),
            "federations": [
                {"title": data.title, "notes": list(data.notes), "weights": weights}
                for data, weights in zip(paper.data, _weights_of(paper), strict=True)
                if data in families(paper)
            ],
        }
        for paper in plan.papers.values()
    ]
    return {"folder_note": plan.folder_note, "papers": papers}


def _weights_of(paper: Paper) -> list[str]:
    """What the models of each federation start from."""
    start: dict[str, str] = {}
    for run in paper.runs:
        start[run.federation] = " and ".join(run_weights(vars(run))) or "random weights"
    return [start[data.name].replace("_", " ") for data in paper.data]


def _headings(paper: Paper, exhibits: Mapping[str, Exhibit]) -> list[dict]:
    """What stands over tables or figures, and which methods and families of data they are about."""
    methods = {(run.federation, run.label): run.method for run in paper.runs}
    family = {data.name: data.describe()["family"] for data in paper.data}
    return [
        {
            "name": name,
            "title": exhibit.title,
            "caption": exhibit.caption,
            "methods": sorted(
                {
                    methods[federation, label]
                    for federation in exhibit.federations
                    for label in exhibit.labels
                    if (federation, label) in methods
                }
            ),
            "families": list(dict.fromkeys(family[name] for name in exhibit.federations)),
        }
        for name, exhibit in exhibits.items()
    ]
