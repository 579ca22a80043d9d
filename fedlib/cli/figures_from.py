"""Draw every table and figure of kept results again, without any run.

Several packs in a folder are drawn together: a table or figure has the runs of all.

The numbers come from the runs, see `fedlib.report.packs`; the published numbers come from this
checkout. It writes to the folder of figures/from that is called as the one of docs/results, and
leaves docs/results unchanged. What was drawn there before and is drawn no longer is removed; other
files stay.
"""

import argparse
import re
import shutil
from pathlib import Path

from fedlib.environment import ROOT
from fedlib.errors import DataError
from fedlib.report import packs
from fedlib.report.figures import FigureInputs, saving
from fedlib.report.pages.kept import KEPT
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs
from fedlib.workflow.layout import PATHS, WILDCARDS

FORMS = {"table": ("csv", "md", "tex", "json"), "figure": ("pdf", "png", "svg")}
DRAWING = {"table": (TableInputs.read, render.write), "figure": (FigureInputs.read, saving.save)}
DRAWN = ".exhibits.json"  # in a folder: what was drawn there


def main(args: argparse.Namespace) -> None:
    """Draw, and print the folder."""
    number, folder = draw(args.source, args.out)
    print(f"{number} tables and figures are in {folder}")


def draw(source: Path, out: Path | None = None) -> tuple[int, Path]:
    """Draw the kept results in `source` -> number of tables and figures, and their folder

    Raises:
      ConfigError, DataError: for a pack that was changed, or is of another version.
    """
    folder = out or Path("figures/from") / _name(source)
    with packs.join(source) as pack:
        metrics, clients, exhibits = packs.read(pack)
        checked = [(exhibit, _check_spec(exhibit)) for exhibit in exhibits]
        for exhibit, spec in checked:
            printed = ROOT / PATHS["published"].format(paper=spec["paper"])
            given = spec, metrics, clients, printed if exhibit.published else None
            files = [folder / f"{spec['name']}.{form}" for form in FORMS[exhibit.stage]]
            read, write = DRAWING[exhibit.stage]
            write(read(*given).make(), *files)
        listed, drawn = pack / packs.EXHIBITS, folder / DRAWN
        old = packs.file_names(drawn, FORMS) - packs.file_names(listed, FORMS)
        for path in [path for path in folder.iterdir() if path.name in old]:
            path.unlink()
        shutil.copyfile(listed, drawn)
    return len(exhibits), folder


def _name(source: Path) -> Path:
    """The path of a folder below docs/results; of any other folder its name."""
    source = source.resolve()
    folder = source.parent if source.name == packs.FOLDER else source
    for place in folder.parents:
        if place.parts[-2:] == KEPT.parts:
            return folder.relative_to(place)
    return Path(folder.name)


def _check_spec(exhibit: packs.Entry) -> dict:
    """The specification of an exhibit; its names become file names, and a pack may be anyone's.

    Raises:
      DataError: for a name that could lead out of its folder.
    """
    for entry, wildcard in (("paper", "paper"), ("name", exhibit.stage)):
        value, pattern = exhibit.spec.get(entry), WILDCARDS[wildcard]
        if not re.fullmatch(pattern, str(value)):
            raise DataError(
                f"the {entry} of a pack's {exhibit.stage} must be {pattern}, got {value!r}"
            )
    return exhibit.spec
