"""The specifications of the jobs that show results: metrics, tables, figures, report.

They contain digests of the specifications of other jobs, from the plan's `digest`.
"""

from collections.abc import Callable, Mapping

from fedlib import papers
from fedlib.spec import Data, Paper
from fedlib.spec.exhibits import Exhibit, ExhibitSpec
from fedlib.workflow.declarations import common_seeds
from fedlib.workflow.selection import Selection

Digest = Callable[..., str]  # of a job, by its stage and wildcards


def of_metrics(selection: Selection, digest: Digest, paper: Paper) -> dict:
    """The runs of the metrics, and the specifications of their two results."""
    runs = []
    for name, run in paper.runs_by_name().items():
        data, names = selection.data(paper.name, run.federation), name._asdict()
        tunings = (x for seed in paper.seeds_of(run) for x in selection.tunings_of(*name, seed))
        tuned = {one.get("for_seed", ""): digest("tune", **one) for one in tunings}
        runs.append(
            {
                **({"tuned": tuned} if tuned else {}),
                **{entry: getattr(run, entry) for entry in ("federation", "label", "method")},
                "dataset": data.dataset,
                "partition": data.partition_label,
                "seeds": list(paper.seeds_of(run)),
                "specs": [
                    [digest(stage, **names, seed=seed) for stage in ("train", "evaluate")]
                    for seed in paper.seeds_of(run)
                ],
            }
        )
    return {"paper": paper.name, "runs": runs}


def of_exhibit(
    selection: Selection, digest: Digest, stage: str, paper: Paper, name: str
) -> ExhibitSpec:
    """The contents and the runs of a table or figure (`stage`)."""
    exhibit = selection.exhibit(stage, paper.name, name)
    federations = [selection.data(paper.name, federation) for federation in exhibit.federations]
    runs = [
        run
        for label in exhibit.labels
        for federation in exhibit.federations
        if (run := selection.runs.get((paper.name, federation, label)))
    ]
    about = ("kind", "title", "caption", "params", "published")
    return ExhibitSpec(
        **{entry: getattr(exhibit, entry) for entry in about},
        paper=paper.name,
        name=name,
        scale=selection.scale,
        scale_note=paper.scale_note,
        folder_note=selection.folder_note,
        seeds=common_seeds(paper, runs),
        federations=federations,
        runs=runs,
        metrics=digest("metrics", paper=paper.name),
    )


def of_report(selection: Selection, digest: Digest) -> dict:
    """The contents of the report, in order; see `fedlib.report.pages.contents`."""
    return {
        "scale": selection.scale,
        "folder": selection.folder,
        "folder_note": selection.folder_note,
        "papers": [_of_paper(digest, paper) for paper in selection.papers.values()],
    }


def _of_paper(digest: Digest, paper: Paper) -> dict:
    """The report's content about a paper, and the paper's runs."""
    runs: dict[str, dict[str, list[int]]] = {}
    for run in paper.runs:
        runs.setdefault(run.federation, {})[run.label] = list(paper.seeds_of(run))
    return {
        **{entry: getattr(paper, entry) for entry in ("name", "title", "citation", "scale_note")},
        "bibtex": papers.bibtex(paper.name),
        "printed": papers.count_printed(paper.name),
        "seeds": sorted({seed for run in paper.runs for seed in paper.seeds_of(run)}),
        "federations": [
            {"name": data.name, "title": data.title, "notes": data.notes}
            for data in families(paper)
        ],
        "data": {data.name: [data.title, data.describe()["family"]] for data in paper.data},
        "runs": runs,
        **{f"{stage}s": _headings(digest, paper, stage) for stage in ("table", "figure")},
    }


def _headings(digest: Digest, paper: Paper, stage: str) -> list[dict]:
    """Headings of tables or figures, with the digests of their specifications."""
    exhibits: Mapping[str, Exhibit] = getattr(paper, f"{stage}s")
    return [
        {
            "name": name,
            "title": exhibit.title,
            "caption": exhibit.caption,
            "spec": digest(stage, paper=paper.name, **{stage: name}),
        }
        for name, exhibit in exhibits.items()
    ]


def families(paper: Paper) -> list[Data]:
    """The federations without those that differ from an earlier one in one parameter alone."""
    first: dict[str, Data] = {}
    for data in paper.data:
        first.setdefault(data.describe()["family"], data)
    return list(first.values())
