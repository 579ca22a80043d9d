"""One page that shows everything: scale, differences, tables, figures, machines.

It is Markdown, made from the files of the tables and figures alone, so it can be read where they
are kept, without Snakemake and without the runs.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from fedlib.errors import DataError
from fedlib.exhibits.selection import METRIC_TITLES, PAPER_SCALE, federation_text, scale_text
from fedlib.results import opened
from fedlib.tables.render import ABSENT, markdown, points

TITLE = "# Reproduction report: "
MACHINE = ("device", "gpu", "cpu", "platform", "executor", "python", "torch", "numpy", "commit")
NEVER_COMPARED = f"No table here has a published number for its data sets ({ABSENT})."


def build(spec: dict, results: Path, figures: Path, out: Path) -> str:
    """The report of one folder, as Markdown.

    Args:
      spec: {"folder", "scale", "folder_note", "papers": [{"name", "title", "citation",
        "scale_note", "seeds", "federations": [{"name", "title", "notes"}], "tables": [{"name",
        "title", "caption"}], "figures": likewise}]}.
      results: folder with tables/PAPER/TABLE.{md,csv} and, if they are kept, runs/.
      figures: folder with PAPER/FIGURE.{pdf,png}.
      out: where the page will be; links are relative to its folder.

    Raises:
      DataError: naming the table or figure that is missing.
    """
    parts = [TITLE + markdown(spec["folder"]), _front(spec)]
    parts += ["## Published and reproduced", _comparison(spec, results)]
    for paper in spec["papers"]:
        parts += [f"## {markdown(paper['title'])}", _about(spec, paper)]
        parts += [_table(results, paper["name"], table["name"]) for table in paper["tables"]]
        links = os.path.relpath(figures / paper["name"], out.parent)
        for figure in paper["figures"]:
            parts.append(_figure(figures / paper["name"], Path(links), figure))
    machines = _machines(spec, results / "runs")
    if machines:
        parts += ["## Machines and versions", machines]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front(spec: dict) -> str:
    lines = [f"Papers: {', '.join(markdown(paper['title']) for paper in spec['papers'])}."]
    if spec["scale"] != PAPER_SCALE:
        lines.append(
            f"**This is scale {spec['scale']}, not the papers' own.** Published numbers are shown "
            "for orientation; a difference from them is no test of a paper."
        )
    return "\n\n".join(lines)


def _about(spec: dict, paper: dict) -> str:
    seeds = ", ".join(map(str, paper["seeds"]))
    shared = {name: spec[name] for name in ("scale", "folder_note")}
    facts = [
        f"- {markdown(scale_text({**shared, 'scale_note': paper['scale_note']}))}",
        f"- Seeds: {seeds}.",
    ]
    for federation in paper["federations"]:
        notes = federation_text(federation) or "as in the paper."
        facts.append(f"- {markdown(federation['title'])}: {markdown(notes)}")
    return f"{markdown(paper['citation'])}\n\n" + "\n".join(facts)


def _table(results: Path, paper: str, name: str) -> str:
    """The table's own Markdown: it brings its title, caption and notes along."""
    return _read(results / "tables" / paper / f"{name}.md").rstrip()


def _figure(folder: Path, link: Path, figure: dict) -> str:
    if not (folder / f"{figure['name']}.png").exists():
        raise DataError(f"{folder / figure['name']}.png does not exist; run the figure stage first")
    title, target = markdown(figure["title"]), (link / figure["name"]).as_posix()
    return (
        f"### {title}\n\n{markdown(figure['caption'])}\n\n"
        f"![{title}]({target}.png)\n\n[As PDF]({target}.pdf)"
    )


# Differences from the published numbers


def _comparison(spec: dict, results: Path) -> str:
    """One line per table and metric that has published numbers."""
    rows = [
        row
        for paper in spec["papers"]
        for table in paper["tables"]
        for row in _differences(paper, table, results / "tables" / paper["name"])
    ]
    if not rows:
        return NEVER_COMPARED
    head = ["Paper", "Table", "Metric", "Cells", "Mean", "Mean size", "Largest", "where"]
    align = ["left"] * 3 + ["right"] * 4 + ["left"]
    grid = tabulate(rows, head, tablefmt="pipe", disable_numparse=True, colalign=align)
    return (
        "Reproduced minus published, in percentage points, over the cells that have both. At the "
        "round that the table compares, as its notes say: the last one, or the best one, which is "
        f"chosen on the test set.\n\n{grid}"
    )


def _differences(paper: dict, table: dict, folder: Path) -> Iterator[list[str]]:
    path = folder / f"{table['name']}.csv"
    if not path.exists():
        raise DataError(f"{path} does not exist; run the table stage first")
    numbers = pd.read_csv(path)
    if not {"published", "difference"} <= {*numbers}:  # a difference may be from something else
        return
    for metric, cells in numbers.dropna(subset="difference").groupby("metric", sort=False):
        difference = cells["difference"]
        largest = cells.loc[difference.abs().idxmax()]
        yield [
            markdown(paper["title"]),
            markdown(table["title"]),
            METRIC_TITLES.get(metric, metric),
            str(len(cells)),
            points(difference.mean()),
            points(difference.abs().mean()).lstrip("+"),
            points(largest["difference"]),
            markdown(f"{largest['title']}, {largest['federation']}"),
        ]


# Machines


def _machines(spec: dict, runs: Path) -> str:
    """What the histories of the runs say about where they were made; "" without histories."""
    found: dict[str, dict[str, int]] = {}
    total = 0
    for paper in spec["papers"]:
        for path in sorted((runs / paper["name"]).glob("*/*/seed*/history.h5")):
            total += 1
            for name, value in _provenance(path).items():
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
    lines = []
    for name in MACHINE:
        values = {value: n for value, n in found.get(name, {}).items() if value != "None"}
        several = len(values) > 1
        texts = [markdown(value) + f" ({n} runs)" * several for value, n in values.items()]
        if texts:
            lines.append(f"- {name}: {', '.join(texts)}")
    return f"As recorded by {total} training runs.\n\n" + "\n".join(lines) if lines else ""


def _provenance(history: Path) -> dict:
    """The provenance in a history file, without reading its arrays."""
    with opened(history) as file:
        return json.loads(file.attrs["provenance"])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; run the table stage first") from None
