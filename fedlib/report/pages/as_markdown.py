"""The report as Markdown: one page with all results, beside their files."""

import os
from pathlib import Path

from tabulate import tabulate

from fedlib.errors import DataError
from fedlib.report.pages.contents import (
    COMPARED,
    METRICS,
    NEVER_COMPARED,
    ORIENTATION,
    VERDICTS,
    Chapter,
    Entry,
    Report,
)
from fedlib.report.pages.origin import FACT_TITLES
from fedlib.report.tables.render import markdown, markdown_blocks, percent, points

TITLE = "# Reproduction report: "


def page(content: Report, out: Path) -> str:
    """The report; `out` is its future path, because links are relative to its folder.

    Raises:
      DataError: if a figure is missing.
    """
    parts = [TITLE + markdown(content.folder)]
    if not content.is_paper_scale:
        parts.append(f"**This is scale {content.scale}, not the papers' own.** {ORIENTATION}")
    parts += ["## Contents", _contents(content)]
    parts += [_head(2, "published", "Published and reproduced"), _criteria(content)]
    parts.append("" if content.num_pairs else NEVER_COMPARED)
    for chapter in content.chapters:
        parts += [_head(2, chapter.name, chapter.title), markdown(chapter.citation)]
        parts.append(_list(chapter.facts))
        parts += [_exhibit(shown, out.parent) for shown in chapter.exhibits]
        parts.append(_machines(chapter))
    parts += _pairs(content)
    return "\n\n".join(part for part in parts if part) + "\n"


def _contents(content: Report) -> str:
    lines = ["- [Published and reproduced](#published)"]
    for chapter in content.chapters:
        lines.append(f"- [{markdown(chapter.title)}](#{chapter.name})")
        lines += [f"  - [{markdown(x.heading)}](#{x.anchor})" for x in chapter.exhibits]
    lines += ["- [Every published number beside ours](#numbers)"] * bool(content.num_pairs)
    return "\n".join(lines)


def _head(level: int, anchor: str, text: str) -> str:
    return f'{"#" * level} <a id="{anchor}"></a>{markdown(text)}'


def _list(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {markdown(text)}" for text in texts)


def _exhibit(shown: Entry, folder: Path) -> str:
    parts = [
        _head(3, shown.anchor, shown.heading),
        f"*{markdown(shown.question)}*",
        markdown(shown.caption),
        markdown_blocks(shown.sheet) if shown.sheet else _figure(shown, folder),
        _list(shown.notes),
    ]
    return "\n\n".join(part for part in parts if part)


def _figure(figure: Entry, folder: Path) -> str:
    if not figure.picture.with_name(f"{figure.picture.name}.png").exists():
        raise DataError(f"{figure.picture}.png does not exist; run the figure stage first")
    link = Path(os.path.relpath(figure.picture, folder)).as_posix()
    return f"![{markdown(figure.title)}]({link}.png)\n\n[As PDF]({link}.pdf)"


def _criteria(content: Report) -> str:
    """Numbers of criteria reached, not reached and not run, for each paper; "" at scale demo."""
    lines = []
    for chapter in content.chapters if content.counts_verdicts else ():
        found = chapter.verdicts
        count = [f"{found[name]} {said}" for name, said in VERDICTS.items() if name in found]
        if count:
            lines.append(f"- Criteria of {markdown(chapter.title)}: {', '.join(count)}.")
    return "\n".join(lines)


def _pairs(content: Report) -> list[str]:
    """Every published number beside ours, and the number of near ones."""
    rows = [
        [
            markdown(chapter.title),
            f"[{row['table']}](#{row['exhibit']})",
            *(markdown(row[name]) for name in ("federation", "title")),
            METRICS.get(row["metric"], row["metric"]),
            *(percent(row[name]) for name in ("published", "reproduced")),
            points(row["difference"]),
        ]
        for chapter in content.chapters
        for row in chapter.pairs.to_dict("records")
    ]
    if not rows:
        return []
    near = sum(chapter.near for chapter in content.chapters)
    head = ["Paper", "Table", "Data set", "Method", "Metric", "Published", "Ours", "Difference"]
    align = ["left"] * 5 + ["right"] * 3
    grid = tabulate(rows, head, tablefmt="pipe", disable_numparse=True, colalign=align)
    count = f"{near} of {len(rows)} within two percentage points. {COMPARED}"
    return [_head(2, "numbers", "Every published number beside ours"), count, grid]


def _machines(chapter: Chapter) -> str:
    """Machines and versions of the runs, from their histories; "" without histories."""
    lines = []
    for name, values in chapter.origin.facts.items():
        several = len(values) > 1
        texts = [markdown(value) + f" (runs: {n})" * several for value, n in values.items()]
        lines.append(f"- {FACT_TITLES.get(name, name)}: {', '.join(texts)}")
    if not lines:
        return ""
    lines += [f"- time and memory: {chapter.origin.spent.text}"] * bool(chapter.origin.spent.jobs)
    head = _head(3, f"{chapter.name}-machines", "Machines and versions")
    told = f"As recorded by {chapter.origin.trainings} training runs."
    parts = [head, told, "\n".join(lines), _by_run(chapter)]
    return "\n\n".join(part for part in parts if part)


def _by_run(chapter: Chapter) -> str:
    """Differences between runs, and their times, run by run; "" if there are no differences."""
    differing = [name for name, values in chapter.origin.facts.items() if len(values) > 1]
    rows = [
        [
            markdown(run.name),
            ", ".join(map(str, run.seeds)),
            *(markdown("; ".join(run.facts.get(name, {}))) for name in differing),
            run.spent.texts[1] if run.spent.jobs else "",
        ]
        for run in chapter.origin.runs
    ]
    heads = ["run", "seeds", *(FACT_TITLES.get(name, name) for name in differing), "CPU time"]
    return tabulate(rows, heads, tablefmt="pipe", disable_numparse=True) if differing else ""
