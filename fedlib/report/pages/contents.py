"""The content of the report, before it is written as Markdown or HTML.

It comes from the files of tables and figures alone, and from existing histories of runs; it needs
neither Snakemake nor the metrics. Statements in the head of a paper's chapter are not repeated
under its tables.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.report import exhibits, notes, pictures
from fedlib.report.pages.origin import Origin, origin
from fedlib.report.printed import difference
from fedlib.report.tables import render
from fedlib.report.tables.render import Sheet

NEAR = 0.02  # a number is reproduced if it is within two points of the published one
METRICS = exhibits.METRIC_TITLES | {"accuracy_client_mean": "Mean of clients"}
COMPARED_BY = ("federation", "title", "metric", "published", "difference")
# Verdicts of criteria in words, for use outside the table's column.
VERDICTS = {
    "yes": "reached",
    "no": "not reached",
    "not testable": "not testable at this scale",
    "not run": "not run",
}


@dataclass(frozen=True, eq=False)  # compared by identity: a sheet has no hash
class Entry:
    """A table or figure in the report.

    Attributes:
      kind: "Table" or "Figure".
      number: from 1 on, of its kind in its paper, in reading order.
      name: as the paper declares it.
      anchor: identifier of its place on the page.
      sheet: of a table; None for a figure.
      notes: below it.
      picture: path of a figure without its suffix; None for a table.
    """

    kind: str
    name: str
    anchor: str
    title: str
    caption: str
    sheet: Sheet | None = None
    notes: tuple[str, ...] = ()
    picture: Path | None = None
    number: int = 0

    @property
    def heading(self) -> str:
        """Kind, number and title, "Table 2. Claims"."""
        return f"{self.kind} {self.number}. {self.title}"

    @property
    def verdicts(self) -> Counter:
        """Number of its criteria by verdict."""
        numbers = self.sheet.numbers if self.sheet else {}
        return Counter(numbers["reached"]) if "reached" in numbers else Counter()


@dataclass(frozen=True)
class Chapter:
    """A paper.

    Attributes:
      bibtex: "" if the paper has none.
      facts: scale, seeds and data, a sentence or two each.
      exhibits: tables and figures in reading order.
      printed: number of percentages that the paper prints, at any scale.
      federations: titles by name.
      pairs: every published number with the reproduced one -> DataFrame exhibit (its anchor),
        table, federation, title, metric, published, reproduced, and their difference as printed.
    """

    name: str
    title: str
    citation: str
    bibtex: str
    facts: tuple[str, ...]
    exhibits: tuple[Entry, ...]
    printed: int
    federations: Mapping[str, str]
    pairs: pd.DataFrame
    origin: Origin

    @property
    def tables(self) -> tuple[Entry, ...]:
        """The exhibits that are tables."""
        return tuple(exhibit for exhibit in self.exhibits if exhibit.sheet)

    @property
    def verdicts(self) -> Counter:
        """Number of the paper's criteria by verdict."""
        return sum((table.verdicts for table in self.tables), Counter())

    @property
    def near(self) -> int:
        """Number of published numbers that are reproduced."""
        return int((self.pairs["difference"].abs() <= NEAR).sum())


@dataclass(frozen=True)
class Report:
    """The whole report."""

    scale: str
    folder: str
    chapters: tuple[Chapter, ...]

    @property
    def is_paper_scale(self) -> bool:
        """Whether the scale is the papers' own, at which published numbers are a test."""
        return self.scale == exhibits.PAPER_SCALE

    @property
    def counts_verdicts(self) -> bool:
        """Whether it says how many criteria are reached: nobody should count those of a demo."""
        return self.scale != exhibits.DEMO_SCALE

    @property
    def num_pairs(self) -> int:
        """Number of published numbers with a reproduced one beside them."""
        return sum(len(chapter.pairs) for chapter in self.chapters)


def gather(spec: dict, results: Path, figures: Path) -> Report:
    """The report of one folder.

    Args:
      spec: `fedlib.workflow.specs.of_report`.
      results: folder with tables/PAPER/TABLE.{csv,json} and, if kept, runs/.
      figures: folder with PAPER/FIGURE.*.

    Raises:
      DataError: if a table or figure is missing.
    """
    chapters = tuple(_chapter(spec, paper, results, figures) for paper in spec["papers"])
    return Report(spec["scale"], spec["folder"], chapters)


def check_pictures(spec: dict, figures: Path) -> None:
    """Check that all figures of a report are unchanged and of the expected specification.

    Raises:
      DataError: for the first file that is not.
    """
    for paper in spec["papers"]:
        for figure in paper["figures"]:
            pictures.check(figures / paper["name"] / f"{figure['name']}.json", figure["spec"])


def _chapter(spec: dict, paper: dict, results: Path, figures: Path) -> Chapter:
    facts, known = _facts(spec, paper)
    tables = []
    for heading in paper["tables"]:
        sheet = _sheet(results / "tables" / paper["name"], heading)
        notes = tuple(note for note in sheet.notes if note not in known)
        tables.append(_exhibit(paper, "Table", heading, sheet=sheet, notes=notes))
    folder = figures / paper["name"]
    drawn = [_exhibit(paper, "Figure", x, picture=folder / x["name"]) for x in paper["figures"]]
    shown = in_order(tables, drawn)
    federations = {name: title for name, (title, _) in paper["data"].items()}
    about = {x: paper[x] for x in ("name", "title", "citation", "bibtex", "printed")}
    return Chapter(
        **about,
        facts=facts,
        exhibits=shown,
        federations=federations,
        pairs=_pairs(shown, federations),
        origin=origin(results / "runs" / paper["name"], paper["runs"]),
    )


def in_order(tables: list[Entry], figures: list[Entry]) -> tuple[Entry, ...]:
    """The first figure, the tables, and then the other figures; criteria last."""
    last = [table for table in tables if table.verdicts]
    others = [table for table in tables if not table.verdicts]
    numbers: Counter[str] = Counter()
    ordered = []
    for shown in (*figures[:1], *others, *figures[1:], *last):
        numbers[shown.kind] += 1
        ordered.append(replace(shown, number=numbers[shown.kind]))
    return tuple(ordered)


def _facts(spec: dict, paper: dict) -> tuple[tuple[str, ...], frozenset[str]]:
    """Sentences about scale, seeds and data, and notes of tables that repeat them."""
    scale = notes.scale(spec["scale"], paper["scale_note"], spec["folder_note"])
    seeds = f"Seeds: {', '.join(map(str, paper['seeds']))}."
    families = dict(paper["data"].values())
    texts = {x["title"]: notes.of_federation(x["notes"], x["title"]) for x in paper["federations"]}
    told = {title: text for title, text in texts.items() if text}
    known, alike = {scale}, {}
    for title, text in told.items():
        known |= {f"{families[title]}: {text}", f"{title}: {text}"}
        alike.setdefault(text, []).append(families[title])
    of_data = [f"{'; '.join(names)}: {text}" for text, names in alike.items()]
    return (scale, seeds, *of_data), frozenset(known)


def _exhibit(paper: dict, kind: str, heading: dict, **content: Any) -> Entry:
    """A table or figure with its heading."""
    about = {name: heading[name] for name in ("name", "title", "caption")}
    anchor = f"{paper['name']}-{kind.lower()}-{heading['name']}"
    return Entry(kind=kind, anchor=anchor, **about, **content)


def _sheet(folder: Path, table: dict) -> Sheet:
    paths = (folder / f"{table['name']}.{form}" for form in ("csv", "json"))
    return render.read(*[pictures.require(path, "table") for path in paths], table["spec"])


def pick_published(numbers: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table with a published number, with the column "reproduced"; possibly none.

    "difference" is the difference of the numbers as printed.
    """
    if not {*COMPARED_BY} <= {*numbers}:  # their differences are from something else
        return pd.DataFrame(columns=[*COMPARED_BY, "reproduced"])
    rows = numbers.dropna(subset=["published", "difference"])
    ours = rows["published"] + rows["difference"]
    off = [difference(*pair) for pair in zip(ours, rows["published"], strict=True)]
    # Some titles are numbers.
    return rows.assign(title=rows["title"].astype(str), difference=off, reproduced=ours)


def _pairs(shown: Iterable[Entry], titles: Mapping[str, str]) -> pd.DataFrame:
    """The rows of all tables with a published number and a difference from it.

    Args:
      titles: of federations.
    """
    columns = ["exhibit", "table", *COMPARED_BY, "reproduced"]
    found = []
    for table in (x for x in shown if x.sheet):
        place = {"exhibit": table.anchor, "table": f"{table.kind} {table.number}"}
        rows = pick_published(table.sheet.numbers)
        place["metric"] = rows.get("column", rows["metric"])
        found.append(rows.assign(**place)[columns])
    full = [frame for frame in found if len(frame)]
    pairs = pd.concat(full, ignore_index=True) if full else pd.DataFrame(columns=columns)
    return pairs.assign(federation=pairs["federation"].map(titles))
