"""Copy a paper's tables and figures to docs/results/PAPER, with a report of their making.

Results of scale full go to docs/results/full/PAPER. Kept results of another scale or tag are
replaced only with --replace. It replaces numbers (csv), figures (pdf, png), REPORT.md and the
folder pack, from which `make figures-from` draws everything again. REPORT.md shows all of them with
every published cell, machines, versions and times. README.md and other files stay unchanged.
Comparisons with only one finished member are left out. If anything is missing or damaged, nothing
changes.
"""

import argparse
import json
import shutil
from pathlib import Path

from fedlib import files
from fedlib.cli import arguments
from fedlib.errors import ConfigError, DataError
from fedlib.report import packs
from fedlib.report.pages import as_markdown, kept
from fedlib.report.pages.contents import check_pictures, gather
from fedlib.workflow.plan import Plan

STAGES = ("table", "figure")
KEPT = ("table_csv", "figure_pdf", "figure_png")


def main(args: argparse.Namespace) -> None:
    """Copy."""
    args.config.append(f"papers={args.paper}")
    plan = arguments.plan(args)
    out = args.out or kept.shelf(Path("docs/results"), plan.scale)
    folder = out / args.paper
    if not args.replace:
        _check_kept(folder / "REPORT.md", plan.folder)
    with files.folder_instead(folder) as new:
        number, size = _keep(plan, args.paper, new)
    print(f"{number} files, REPORT.md and a pack of {size / 1000:.0f} kB are in {folder}")


def _keep(plan: Plan, paper: str, folder: Path) -> tuple[int, int]:
    """Put what is kept of a paper into a folder -> (number of files, bytes of the pack)

    Raises:
      DataError: for what is missing or damaged.
    """
    shown = _shown(plan)
    sources = [
        Path(plan.path(file, **job))
        for stage, job in shown
        for file in KEPT
        if file.startswith(stage)
    ]
    missing = [path for path in sources if not path.exists()]
    if missing:
        raise DataError(f"{missing[0]} does not exist; run the workflow with this configuration")
    spec = json.loads(plan.spec("report"))
    spec["papers"] = [chapter for chapter in spec["papers"] if chapter["name"] == paper]
    for chapter, stage in ((x, y) for x in spec["papers"] for y in STAGES):
        names = {job[stage] for of, job in shown if of == stage}
        chapter[f"{stage}s"] = [x for x in chapter[f"{stage}s"] if x["name"] in names]
    check_pictures(spec, Path(plan.path("figures")))
    for old in (old for kind in ("csv", "pdf", "png") for old in folder.glob(f"*.{kind}")):
        old.unlink()
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    # Figures are beside the page, in the folder that has the paper's name.
    results, page = Path(plan.path("results")), folder / "REPORT.md"
    text = as_markdown.page(gather(spec, results, folder.parent), page)
    files.write_text(page, text)
    return len(sources), packs.write(
        folder / packs.FOLDER, *_frames(plan, paper), _exhibits(plan, shown)
    )


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
    """Tables and figures, as their jobs are given them."""
    return [
        packs.Packed(
            stage,
            json.loads(plan.spec(stage, **job)),
            bool(plan.published(stage, job["paper"], job[stage])),
        )
        for stage, job in shown
    ]


def _check_kept(page: Path, folder: str) -> None:
    """Raises ConfigError if `page` is of another folder than `folder`, such as the demo's."""
    title = page.read_text(encoding="utf-8").partition("\n")[0] if page.exists() else ""
    kept = title.removeprefix(as_markdown.TITLE)
    if title and kept != folder:
        raise ConfigError(
            f"{page} keeps the results of {kept}, and these are of {folder}: name the "
            "run (SCALE=reduced), or give --replace (ARGS=--replace) to keep these instead"
        )
