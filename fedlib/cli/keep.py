"""Copy a paper's tables and figures to docs/results/PAPER, with a report of their making.

Results of scale full go to docs/results/full/PAPER. Runs that are kept there already are taken
from the pack, and tables and figures show them with the new ones; with --replace, or if all kept
runs are here, only these results are kept. The command replaces numbers (csv), figures (pdf, png),
REPORT.md and the folder pack, from which `make figures-from` draws everything again and `make take`
takes the runs. REPORT.md shows every published cell, machines, versions and times.
README.md and other files stay unchanged. Comparisons with only one finished member are left out. If
anything is missing or damaged, nothing changes.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from fedlib import files, locks
from fedlib.cli import arguments, run, take
from fedlib.errors import ConfigError, DataError
from fedlib.forecast.estimates import run_name
from fedlib.report import frames, packs
from fedlib.report.metrics.runs import TUNING
from fedlib.report.pages import as_markdown, contents, kept
from fedlib.workflow import freshness
from fedlib.workflow.declarations import Training
from fedlib.workflow.plan import Plan

STAGES = ("table", "figure")
KEPT = ("table_csv", "figure_pdf", "figure_png")


def main(args: argparse.Namespace) -> None:
    """Add the results kept already, and copy."""
    args.config = [*args.config, f"papers={args.paper}"]
    plan = arguments.plan(args)
    out = args.out or kept.shelf(Path("docs/results"), plan.scale)
    folder = out / args.paper
    if not args.replace:
        _check_kept(folder / "REPORT.md", plan.folder)
        plan = _with_kept(plan, folder / packs.FOLDER, args)
    with files.folder_instead(folder) as new:
        number, size = _keep(plan, args.paper, new)
    print(f"{number} files, REPORT.md and a pack of {size / 1000:.0f} kB are in {folder}")


def _with_kept(plan: Plan, pack: Path, args: argparse.Namespace) -> Plan:
    """The plan with the kept runs added, after making its tables and figures.

    Raises:
      ConfigError: if runs cannot be added, or are not finished with all seeds.
      DataError: if a run is refused, see `fedlib.cli.take`.
    """
    there = trainings(pack) if pack.exists() else set()
    if not there.difference(plan.trainings()):
        return plan
    locks.hold_folder(command=args.said)
    if (pack / packs.ARCHIVE).exists():
        runs = [_text(one) for one in sorted(there)]
        others = dict.fromkeys(("seeds", "federations", "labels", "budget"))
        kept_there = Plan({**plan.config, **others, "runs": runs})
        file = Path(plan.path("kept"))
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(file, json.dumps(kept_there.config, indent=1) + "\n")
        take.bring(kept_there, pack, ["--configfile", str(file)])
        plan = arguments.plan(args)
    if lacking := sorted(there.difference(plan.trainings())):
        raise ConfigError(
            f"{pack} has runs that cannot be shown with these, such as {_text(lacking[0])}; select "
            "them, too, or give --replace (ARGS=--replace) to keep these results instead"
        )
    for stage, job in freshness.list_open_jobs(plan):
        name = f"{run_name(job)}/seed{job['seed']}" if "seed" in job else run_name(job)
        raise ConfigError(f"{stage} {name} is not done: run the workflow with it first")
    run.tell(_fewer_seeds(plan))
    run.start([*run.SNAKEMAKE, *map(str, _sources(plan)), *run.configured(args, plan)])
    return plan


def _text(training: Training) -> str:
    """The name of a training in configurations."""
    return f"{'/'.join(training[:3])}/seed{training.seed}"


def _fewer_seeds(plan: Plan) -> Iterator[str]:
    """A line for each table and figure that shows fewer seeds than one of its runs has."""
    for stage, job in _shown(plan):
        spec, paper = json.loads(plan.spec(stage, **job)), plan.paper(job["paper"])
        runs = [plan.run(paper.name, one["federation"], one["label"]) for one in spec["runs"]]
        if any(len(paper.seeds_of(one)) > len(spec["seeds"]) for one in runs):
            seeds = ", ".join(map(str, spec["seeds"]))
            yield f"{stage} {spec['name']} shows the seeds that all of its runs have: {seeds}"


def trainings(pack: Path) -> set[Training]:
    """The trainings of a pack; its tunings, which have rows and a seed, too, are none."""
    found = frames.read_parquet(pack / packs.METRICS)
    rows = found.loc[found["at"] != TUNING, list(Training._fields)]
    return {Training(*row) for row in rows.itertuples(index=False)}


def _sources(plan: Plan) -> list[Path]:
    """The files of tables and figures to keep."""
    return [
        Path(plan.path(file, **job))
        for stage, job in _shown(plan)
        for file in KEPT
        if file.startswith(stage)
    ]


def _keep(plan: Plan, paper: str, folder: Path) -> tuple[int, int]:
    """Put the results of a paper into a folder -> (number of files, bytes of the pack)

    Raises:
      DataError: for a missing or damaged file.
    """
    shown, sources = _shown(plan), _sources(plan)
    missing = [path for path in sources if not path.exists()]
    if missing:
        raise DataError(f"{missing[0]} does not exist; run the workflow with this configuration")
    spec = json.loads(plan.spec("report"))
    spec["papers"] = [chapter for chapter in spec["papers"] if chapter["name"] == paper]
    for chapter, stage in ((x, y) for x in spec["papers"] for y in STAGES):
        names = {job[stage] for of, job in shown if of == stage}
        chapter[f"{stage}s"] = [x for x in chapter[f"{stage}s"] if x["name"] in names]
    contents.check_pictures(spec, Path(plan.path("figures")))
    for old in (old for kind in ("csv", "pdf", "png") for old in folder.glob(f"*.{kind}")):
        old.unlink()
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    # Figures are beside the page, in the folder with the paper's name.
    results, page = Path(plan.path("results")), folder / "REPORT.md"
    text = as_markdown.page(contents.gather(spec, results, folder.parent), page)
    files.write_text(page, text)
    pack = folder / packs.FOLDER
    pack.mkdir(exist_ok=True)
    made = [path for one in take.results(plan, pack) for path in one.ours.values()]
    packs.shut(pack, results, made)
    return len(sources), packs.write(pack, *_frames(plan, paper), _exhibits(plan, shown))


def _frames(plan: Plan, paper: str) -> list[Path]:
    return [Path(plan.path(name, paper=paper)) for name in ("metrics", "clients")]


def _shown(plan: Plan) -> list[tuple[str, dict]]:
    """The jobs of the tables and figures that are worth keeping -> [(stage, wildcards)]"""
    return [
        (stage, job)
        for stage, job in plan.jobs()
        if stage in STAGES and kept.is_worth_keeping(stage, json.loads(plan.spec(stage, **job)))
    ]


def _exhibits(plan: Plan, shown: list[tuple[str, dict]]) -> list[packs.Packed]:
    """Tables and figures with the specifications of their jobs."""
    return [
        packs.Packed(
            stage,
            json.loads(plan.spec(stage, **job)),
            bool(plan.published(stage, job["paper"], job[stage])),
        )
        for stage, job in shown
    ]


def _check_kept(page: Path, folder: str) -> None:
    """Raise ConfigError if `page` is of another folder than `folder`, such as the demo's."""
    title = page.read_text(encoding="utf-8").partition("\n")[0] if page.exists() else ""
    kept = title.removeprefix(as_markdown.TITLE)
    if title and kept != folder:
        raise ConfigError(
            f"{page} keeps the results of {kept}, and these are of {folder}: name the "
            "run (SCALE=reduced), or give --replace (ARGS=--replace) to keep these instead"
        )
