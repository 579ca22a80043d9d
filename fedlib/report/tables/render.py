"""A table as data, and as csv (numbers), Markdown and LaTeX (text for people), and JSON (both).

A kind of table builds a `Sheet`; this module alone decides how it looks in each format.
"""

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import compress, groupby
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from fedlib import seals
from fedlib.errors import DataError
from fedlib.files import write_text
from fedlib.report.metrics.seeds import INTERVAL_SEEDS
from fedlib.report.printed import ROW, to_percent
from fedlib.report.tables import tex

DIGEST = "csv_sha256"  # of the numbers, in the JSON
REMEDY = "run the table stage"
WIDE = 12  # most columns of a table that fits on a page of LaTeX without scaling
ABSENT = "–"  # nothing is published, or there is no such run
NOT_APPLICABLE = "N/A"  # the method has no such number
SPREADS = {"ci95": "(± 95 % CI)", "std": "(± s.d.)"}  # meaning of the number after ±
# Start of a formula, but not of a number or a list of numbers.
FORMULA = re.compile(r"\s*(?:[=@]|[+-](?![\d.]+(?:, [+-]?[\d.]+)*$))")


@dataclass(frozen=True)
class Cell:
    """Text of one cell.

    Attributes:
      bold: whether it is the best of its column.
      verdict: of a criterion, one of `fedlib.report.tables.criteria.VERDICTS`; "" elsewhere.
    """

    text: str
    bold: bool = False
    verdict: str = ""


@dataclass(frozen=True)
class Column:
    """Head of a column.

    Attributes:
      group: head above neighbouring columns of the same group; "" for none.
      spread: meaning of the number after ± in its cells, "ci95" or "std".
    """

    title: str
    group: str = ""
    spread: str = "ci95"

    @property
    def whole(self) -> str:
        """The title with that of its group, "Purity: mean"."""
        return f"{self.group}: {self.title}" if self.group else self.title

    def over(self, texts: list[str]) -> "Column":
        """The head, with the kind of spread between seeds that these cells show, if any."""
        found = SPREADS[self.spread] if any("±" in text for text in texts) else ""
        # Of two seeds `with_spread` writes both values.
        if not found and any(re.search(r"\(\S+ to \S+\)$", text) for text in texts):
            found = "(min to max)"
        return replace(self, title=f"{self.title} {found}".strip())


@dataclass(frozen=True)
class Block:
    """One grid of cells under a heading; the first `num_keys` columns are text, not numbers."""

    heading: str
    columns: list[Column]
    rows: list[list[Cell]]
    num_keys: int = 1

    def drop_empty(self) -> "Block":
        """The block for people: without empty columns, and with kinds of spread in the heads."""
        keys = range(self.num_keys)
        kept = [
            number in keys or any(row[number].text != ABSENT for row in self.rows)
            for number in range(len(self.columns))
        ]
        if sum(kept) == self.num_keys:  # keep all columns if all are empty
            return self
        heads = [
            column if number in keys else column.over([row[number].text for row in self.rows])
            for number, column in enumerate(self.columns)
        ]
        return replace(self, columns=heads).only(kept)

    def only(self, kept: list[bool]) -> "Block":
        """The block with some of its columns."""
        return replace(
            self,
            columns=[*compress(self.columns, kept)],
            rows=[[*compress(row, kept)] for row in self.rows],
        )


@dataclass(frozen=True)
class Sheet:
    """A table: numbers for machines, blocks for people, and texts for both.

    Attributes:
      label: path-safe name, which is also the LaTeX label.
      numbers: one value per column, fractions in [0, 1].
      claims: titles of criteria that are main claims of a paper, whose runs are done.
    """

    label: str
    title: str
    caption: str
    blocks: list[Block]
    notes: list[str]
    numbers: pd.DataFrame = field(repr=False)
    claims: list[str] = field(default_factory=list)


def percent(fraction: float, spread: float = np.nan, decimals: int = 1) -> str:
    """A fraction as percent, "84.2 ± 0.3"; without ± if the spread is unknown."""
    if np.isnan(fraction):
        return ABSENT
    text, width = (f"{to_percent(x, decimals):.{decimals}f}" for x in (fraction, spread))
    return text if np.isnan(spread) else f"{text} ± {width}"


def with_spreads(
    numbers: pd.DataFrame,
    text: Callable[[float], str] = percent,
    prefix: str = "",
    spread: str = "ci95",
) -> list[str]:
    """A column of means over seeds, each with its spread, see `with_spread`.

    Args:
      numbers: with the columns "seeds" and, with prefixed names, "mean", "low", "high" and
        `spread`, see `fedlib.report.metrics.seeds.over_seeds`.
      text: formats a number.
      prefix: of these names.
      spread: meaning of the number after ±, "ci95" or "std".
    """
    names = {prefix + name: name for name in ("mean", "low", "high", spread)}
    rows = numbers[["seeds", *names]].rename(columns=names).to_dict("records")
    return [with_spread(row, spread, text) for row in rows]


def with_spread(found: dict, spread: str, text: Callable[[float], str]) -> str:
    """A mean: of three seeds or more "84.2 ± 0.3", of two "84.2 (83.9 to 84.5)", of one "84.2".

    Where so few of the seeds have the number that its spread is unknown, it is as of two.

    Args:
      found: a row of `fedlib.report.metrics.seeds.over_seeds`.
      spread: its column with the number after ±.
      text: formats a number.
    """
    if np.isnan(found["mean"]):
        return ABSENT
    # One of all seeds together, such as a ratio of spreads, has no spread.
    seeds = 1 if np.isnan(found["low"]) else found["seeds"]
    if seeds >= INTERVAL_SEEDS and not np.isnan(found[spread]):
        return f"{text(found['mean'])} ± {text(found[spread]).removeprefix('+')}"
    if seeds > 1:
        return f"{text(found['mean'])} ({text(found['low'])} to {text(found['high'])})"
    return text(found["mean"])


def points(difference: float, decimals: int = 1) -> str:
    """A difference of two fractions in percentage points, signed, "+1.2"."""
    if np.isnan(difference):
        return ABSENT
    rounded = to_percent(difference, decimals)
    if not rounded:
        return f"{0:.{decimals}f}"
    return f"{rounded:+.{decimals}f}".replace("-", "−")


def best_cells(means: list[float], texts: list[str], decimals: int = 1) -> list[Cell]:
    """A column of cells; the highest mean, at the decimals shown, is bold (ties included)."""
    shown = [to_percent(mean, decimals) for mean in means]
    known = [value for value in shown if not np.isnan(value)]
    top = max(known) if len(known) > 1 else None
    return [Cell(text, value == top) for text, value in zip(texts, shown, strict=True)]


def write(sheet: Sheet, *files: Path, made: Callable[[str], seals.Made] | None = None) -> None:
    """Write the four forms of a table, each atomically; the JSON has a digest of the csv.

    Args:
      files: of csv, Markdown, LaTeX and JSON.
      made: from the `contents` of the first three files, a record of their origin for the JSON.
    """
    *texts, json = files
    forms = [to_csv(sheet), to_markdown(sheet), to_latex(sheet)]
    for path, text in zip(texts, forms, strict=True):
        write_text(path, text)
    note = {seals.MADE: str(made(seals.contents(*texts)))} if made else {}
    seals.write_json(json, to_json(sheet, forms[0]) | note)


def read(csv: str | Path, json: str | Path, spec: str | None = None) -> Sheet:
    """The table that `write` wrote to these two files, with numbers as precise as the csv.

    Args:
      spec: digest of the specification expected of the table; None if unknown.

    Raises:
      DataError: if a file is missing or changed, or has another specification.
    """
    text = seals.read_json(json, REMEDY, has=(DIGEST, "blocks"))
    noted = text.pop(seals.MADE, None)
    if spec is not None:
        seals.check_spec(json, noted and seals.origin(json).spec, spec)
    try:
        numbers = Path(csv).read_bytes()
    except OSError as error:
        raise DataError(f"{csv} cannot be read ({error.strerror}); {REMEDY}") from None
    if text.pop(DIGEST, None) != hashlib.sha256(numbers).hexdigest():
        raise DataError(f"{csv} is not the one that {json} was written with; {REMEDY}")
    blocks = [_block(block) for block in text.pop("blocks")]
    return Sheet(**text, blocks=blocks, numbers=pd.read_csv(io.BytesIO(numbers)))


def to_csv(sheet: Sheet) -> str:
    """The numbers of a table as csv, without `printed.ROW`; a missing number is an empty field.

    A text that a spreadsheet would take for a formula gets a leading '.
    """
    numbers = sheet.numbers.drop(columns=ROW, errors="ignore").rename(columns=_no_formula)
    texts = numbers.select_dtypes(exclude=["number", "bool"])
    numbers = numbers.assign(**{str(name): texts[name].map(_no_formula) for name in texts})
    return numbers.to_csv(index=False, lineterminator="\n", float_format="%.8g")


def _no_formula(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def to_json(sheet: Sheet, numbers: str) -> dict:
    """The text of a table and its structure: columns, groups, best cells and verdicts.

    Args:
      numbers: its csv, whose digest is recorded.
    """
    text = asdict(replace(sheet, numbers=pd.DataFrame()))
    del text["numbers"]
    if not sheet.claims:
        del text["claims"]
    return text | {DIGEST: hashlib.sha256(numbers.encode()).hexdigest()}


def to_markdown(sheet: Sheet) -> str:
    """Title, caption, blocks and notes of a table, in GitHub's dialect."""
    parts = [f"### {markdown(sheet.title)}", markdown(sheet.caption), markdown_blocks(sheet)]
    parts.append("\n".join(f"- {markdown(note)}" for note in sheet.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_blocks(sheet: Sheet) -> str:
    """The blocks of a table in Markdown, each under its heading."""
    parts = []
    for block in sheet.blocks:
        if block.heading:
            parts.append(f"**{markdown(block.heading)}**")
        parts.append(_markdown_grid(block.drop_empty()))
    return "\n\n".join(parts)


def markdown_table(rows: list[list[str]], heads: list[str], num_keys: int = 1) -> str:
    """A table in Markdown; the first `num_keys` columns are text, and the others numbers."""
    align = ["left"] * num_keys + ["right"] * (len(heads) - num_keys)
    return tabulate(rows, heads, "pipe", disable_numparse=True, colalign=align)


def to_latex(sheet: Sheet) -> str:
    """A LaTeX `table` with rules of the package booktabs."""
    blocks = [block.drop_empty() for block in sheet.blocks]
    wide = any(len(block.columns) > WIDE for block in blocks)
    lines = [
        "% needs \\usepackage{booktabs}" + (" and \\usepackage{graphicx}" if wide else ""),
        r"\begin{table}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{\textbf{{{tex.escape(sheet.title)}.}} {tex.escape(sheet.caption)}}}",
        rf"\label{{tab:{sheet.label}}}",
    ]
    for block in blocks:
        lines += _latex_grid(block)
    lines += [r"\begin{minipage}{\linewidth}\footnotesize\raggedright"]
    lines += [rf"{tex.escape(note)}\par" for note in sheet.notes]
    return "\n".join([*lines, r"\end{minipage}", r"\end{table}"]) + "\n"


def spans(columns: list[Column]) -> list[tuple[str, int]]:
    """The groups over the columns, each with its number of columns; empty without groups."""
    groups = groupby(columns, key=lambda column: column.group)
    found = [(group, len([*members])) for group, members in groups]
    return found if any(group for group, _ in found) else []


def markdown(text: str) -> str:
    """`text` with the characters of Markdown's markup escaped."""
    text = re.sub(r"([\\`*|<\[\]])", r"\\\1", text)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def _block(block: dict) -> Block:
    """A block from the JSON of `to_json`."""
    columns = [Column(**column) for column in block["columns"]]
    rows = [[Cell(**cell) for cell in row] for row in block["rows"]]
    return Block(block["heading"], columns, rows, block["num_keys"])


def _markdown_grid(block: Block) -> str:
    cells = [
        [f"**{markdown(c.text)}**" if c.bold else markdown(c.text) for c in row]
        for row in block.rows
    ]
    heads = [markdown(column.whole) for column in block.columns]
    return markdown_table(cells, heads, block.num_keys)


def _latex_grid(block: Block) -> list[str]:
    align = "l" * block.num_keys + "r" * (len(block.columns) - block.num_keys)
    heading = rf"\par\smallskip\textbf{{{tex.escape(block.heading)}}}\par"
    titles = " & ".join(tex.escape(column.title) for column in block.columns)
    wide = len(block.columns) > WIDE
    return [
        *([heading] if block.heading else []),
        *([r"\resizebox{\linewidth}{!}{%"] if wide else []),
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        *_latex_groups(block.columns),
        rf"{titles} \\",
        r"\midrule",
        *(rf"{' & '.join(map(_latex_cell, row))} \\" for row in block.rows),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if wide else ""),
    ]


def _latex_groups(columns: list[Column]) -> list[str]:
    """The line of spanning heads and the rules below them; empty if no column has a group."""
    heads, rules, first = [], [], 1
    for group, number in spans(columns):
        heads.append(rf"\multicolumn{{{number}}}{{c}}{{{tex.escape(group)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + number - 1}}}"] if group else []
        first += number
    return [rf"{' & '.join(heads)} \\", "".join(rules)] if heads else []


def _latex_cell(cell: Cell) -> str:
    text = tex.escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.bold else text
