"""Copy a paper's tables and figures to docs/results/PAPER/SCALE, with a report of their making.

With a tag the folder is SCALE-TAG. The command replaces REPORT.md, the folder pack, from which
`make figures-from` draws everything again and `make take` takes the runs, and the numbers (csv) and
figures (pdf, png) that the pack before names. Without --replace no kept run is lost, and no such
file of a folder without a pack. README.md and other files stay unchanged. REPORT.md shows every
published cell, machines, versions and times. Comparisons with only one finished member are left
out. If anything is missing or damaged, nothing changes.
"""

import argparse
import json
import shutil
from pathlib import Path

from fedlib import files, seals
from fedlib.cli import arguments, take
from fedlib.errors import ConfigError, DataError
from fedlib.report import packs
from fedlib.report.frames import read_parquet
from fedlib.report.metrics.runs import TUNING
from fedlib.report.pages import as_markdown, contents, kept
from fedlib.spec import RunName
from fedlib.workflow import freshness
from fedlib.workflow.declarations import Training
from fedlib.workflow.plan import Plan

FORMS = {"table": ("csv",), "figure": ("pdf", "png")}  # that are kept of each


def main(args: argparse.Namespace) -> None:
    """Check that nothing kept is lost, and copy."""
    given = arguments.settings(args)
    # A budget may have bought runs of several papers.
    mine = [x for x in given["runs"] or () if x.startswith(f"{args.paper}/")] or given["runs"]
    plan = freshness.make_plan(given | {"papers": [args.paper], "runs": mine})
    folder = args.out or kept.KEPT / args.paper / plan.folder
    if not args.replace:
        _check_kept(folder, plan)
    with files.folder_instead(folder) as new:
        number, size = _keep(plan, args.paper, new)
    print(f"{number} files, REPORT.md and a pack of {size / 1000:.0f} kB are in {folder}")


def _check_kept(folder: Path, plan: Plan) -> None:
    """Raise ConfigError if a folder keeps runs that are not here, or here with fewer rounds.

    Also if it cannot be read, or has no pack but files that would be deleted.
    """
    if not (pack := folder / packs.FOLDER).exists():
        if others := _old_files(folder):
            raise ConfigError(
                f"{folder} has {others[0].name}, which was not kept from runs; give another --out, "
                "or --replace (ARGS=--replace) to delete it"
            )
        return
    try:
        runs, found = seals.read_json(pack / packs.EXHIBITS, has=("runs",))["runs"], trainings(pack)
    except DataError as error:
        what = "restore the folder, or give --replace (ARGS=--replace)"
        raise ConfigError(f"{folder} is incomplete; {what}: {error}") from None
    for run in runs:
        name = RunName(*plan.papers, run["federation"], run["label"])
        if name in plan.runs and plan.runs[name].rounds < run["rounds"]:
            raise ConfigError(
                f"{folder} has {name} with {run['rounds']} rounds, and here it has fewer; give "
                "--replace (ARGS=--replace) to keep these instead"
            )
    if lacking := found.difference(plan.trainings()):
        *run, seed = min(lacking)
        raise ConfigError(
            f"{folder} has {len(lacking)} runs that these tables lack, such as {'/'.join(run)}/"
            f"seed{seed}: take them (make take SCALE={plan.scale} FROM={folder}), make the tables "
            "again, or give --replace (ARGS=--replace) to keep these instead"
        )


def trainings(pack: Path) -> set[Training]:
    """The trainings of a pack; its tunings, which have rows and a seed, too, are none."""
    found = read_parquet(pack / packs.METRICS)
    rows = found.loc[found["at"] != TUNING, list(Training._fields)]
    return {Training(*row) for row in rows.itertuples(index=False)}


def _keep(plan: Plan, paper: str, folder: Path) -> tuple[int, int]:
    """Put the results of a paper into a folder -> (number of files, bytes of the pack)

    Raises:
      DataError: for a file that is missing, damaged or not up to date.
    """
    shown, fresh = _exhibit_jobs(plan), freshness.check(plan)
    sources = [Path(plan.path(f"{of}_{x}", **job)) for of, job in shown for x in FORMS[of]]
    if todo := freshness.list_open_jobs(plan, fresh, (*freshness.OF_RUNS, "metrics", *FORMS)):
        path = plan.path(freshness.RESULTS[todo[0].stage][0][0], **todo[0].job)
        raise DataError(f"{path} is not up to date; run the workflow with this configuration")
    spec = json.loads(plan.spec("report"))
    for chapter, stage in ((x, y) for x in spec["papers"] for y in FORMS):
        names = {job[stage] for of, job in shown if of == stage}
        chapter[f"{stage}s"] = [x for x in chapter[f"{stage}s"] if x["name"] in names]
    results, figures = (Path(plan.path(name)) for name in ("results", "figures"))
    contents.check_pictures(spec, figures)
    for old in _old_files(folder):
        old.unlink()
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    report = contents.gather(spec, results, figures)
    files.write_text(folder / "REPORT.md", as_markdown.page(report))
    pack = folder / packs.FOLDER
    pack.mkdir(exist_ok=True)
    made = [path for one in take.results(plan, pack) for path in one.ours.values()]
    packs.write_archive(pack, results, made)
    frames = [Path(plan.path(name, paper=paper)) for name in ("metrics", "clients")]
    exhibits = []
    for stage, job in shown:
        has_published = bool(plan.published_files(stage, paper, job[stage]))
        exhibits.append(packs.Entry(stage, json.loads(plan.spec(stage, **job)), has_published))
    return len(sources), packs.write(pack, *frames, exhibits)


def _old_files(folder: Path) -> list[Path]:
    """The numbers and figures in a folder: those that its pack names, or all if it has none."""
    every = [old for kind in ("csv", "pdf", "png") for old in sorted(folder.glob(f"*.{kind}"))]
    named = packs.file_names(folder / packs.FOLDER / packs.EXHIBITS, FORMS)
    return [old for old in every if not named or old.name in named]


def _exhibit_jobs(plan: Plan) -> list[tuple[str, dict]]:
    """The jobs of the tables and figures that are worth keeping -> [(stage, wildcards)]"""
    return [
        (stage, job)
        for stage, job in plan.jobs()
        if stage in FORMS and kept.is_worth_keeping(stage, json.loads(plan.spec(stage, **job)))
    ]
