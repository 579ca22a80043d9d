"""Texts with a class each: read from CSV files, drawn, tokenised.

Published files are sorted, or in an order of the publisher. Here texts are drawn in random order,
so the first examples of a class are random ones.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.raw import RawFile
from fedlib.data.tokenisers import Tokeniser
from fedlib.errors import ConfigError, DataError


class Layout(NamedTuple):
    """Of a CSV file without a header.

    Attributes:
      encoding: of its characters.
      num_fields: in every row.
      label, text: which fields these are.
      classes: by published label; None for texts that are left out.
    """

    encoding: str
    num_fields: int
    label: int
    text: int
    classes: Mapping[str, int | None]


class Texts(NamedTuple):
    """In the order of their file."""

    text: list[str]
    y: np.ndarray  # [M] int64


def read(file: RawFile, raw: Path, layout: Layout) -> Texts:
    """The texts of a file that have a class.

    Raises:
      DataError: if the file is missing, not the official one or has another layout; names the line.
    """
    path, texts, labels = file.locate(raw), [], []
    with path.open(encoding=layout.encoding, newline="") as content:
        rows = csv.reader(content)
        try:
            for row in rows:
                label = _label(row, layout)
                if label is not None:
                    texts.append(row[layout.text])
                    labels.append(label)
        except (csv.Error, UnicodeDecodeError, _BadRow) as error:
            # What cannot be decoded is beyond the last line that was read.
            beyond = "after " if isinstance(error, UnicodeDecodeError) else ""
            raise DataError(f"{path}, {beyond}line {rows.line_num}: {error}") from None
    return Texts(texts, np.array(labels, np.int64))


class _BadRow(Exception):
    """Says what is wrong with it."""


def _label(row: list[str], layout: Layout) -> int | None:
    if len(row) != layout.num_fields:
        raise _BadRow(f"{len(row)} fields, expected {layout.num_fields}")
    label = row[layout.label]
    if label not in layout.classes:
        raise _BadRow(f"label {label!r}, expected one of {', '.join(layout.classes)}")
    return layout.classes[label]


def draw_rows(
    y: np.ndarray, num_classes: int, sizes: Sequence[int | None], draw: np.random.Generator
) -> list[np.ndarray]:
    """Disjoint random rows, as many of each class: one array of int64 for each size.

    Args:
      y: [M] labels.
      num_classes: L.
      sizes: rows of each class; None for all that are left.
      draw: of the rows and their order.

    Raises:
      ConfigError: if a class has too few.
    """
    asked = sum(size for size in sizes if size is not None)
    pieces = []
    for label in range(num_classes):
        rows = draw.permutation(np.flatnonzero(y == label))
        if asked > len(rows):
            raise ConfigError(f"class {label} has {len(rows)} texts, but {asked} are asked for")
        counts = [len(rows) - asked if size is None else size for size in sizes]
        pieces.append(np.split(rows, np.cumsum(counts))[:-1])
    return [draw.permutation(np.concatenate(own)) for own in zip(*pieces, strict=True)]


def examples(
    num_classes: int,
    tokeniser: Tokeniser,
    train: tuple[Texts, np.ndarray],
    test: tuple[Texts, np.ndarray],
) -> Examples:
    """The training and then the test part, each as texts and which rows of them, tokenised."""
    parts = (train, test)
    return Examples(
        np.concatenate([tokeniser.rows((t.text[r] for r in rows), len(rows)) for t, rows in parts]),
        np.concatenate([texts.y[rows] for texts, rows in parts]),
        num_classes,
        part=np.repeat(np.array([TRAIN, TEST], np.uint8), [len(rows) for _, rows in parts]),
        tokens=tokeniser.tokens,
    )
