"""Labelled texts: read from CSV files, drawn at random, tokenised.

Published files are in an order of the publisher, often sorted. Here texts are in random order, so
the first examples of a class are random ones.
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
    """Layout of a CSV file without a header.

    Attributes:
      encoding: of its characters.
      label, text: numbers of these fields, from 0.
      classes: by published label; None for texts that are left out.
    """

    encoding: str
    label: int
    text: int
    classes: Mapping[str, int | None]


class Texts(NamedTuple):
    """Texts and their classes, in the order of the file."""

    text: list[str]
    y: np.ndarray  # [M] int64


def read(file: RawFile, raw: Path, layout: Layout) -> Texts:
    """The texts of a file that have a class.

    Raises:
      DataError: if the file is missing, not the official one or of another layout.
    """
    path, texts, labels = file.locate(raw), [], []
    with path.open(encoding=layout.encoding, newline="") as content:
        try:
            for row in csv.reader(content):
                if (label := layout.classes[row[layout.label]]) is not None:
                    texts.append(row[layout.text])
                    labels.append(label)
        except (csv.Error, IndexError, KeyError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not the published file: {error!r:.200}") from None
    return Texts(texts, np.array(labels, np.int64))


def draw_rows(
    y: np.ndarray, num_classes: int, sizes: Sequence[int | None], draw: np.random.Generator
) -> list[np.ndarray]:
    """Disjoint sets of random rows, with equally many of each class: int64, one array per size.

    Args:
      y: [M] labels.
      num_classes: L.
      sizes: rows of each class in each set; None for all other rows.
      draw: of the rows and their order.

    Raises:
      ConfigError: if a class has too few rows.
    """
    asked = sum(size for size in sizes if size is not None)
    pieces = []
    for label in range(num_classes):
        if asked > len(rows := draw.permutation(np.flatnonzero(y == label))):
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
    """The tokenised training part, then the test part; each is given as texts and chosen rows."""
    parts = (train, test)
    return Examples(
        np.concatenate([tokeniser.rows((t.text[r] for r in rows), len(rows)) for t, rows in parts]),
        np.concatenate([texts.y[rows] for texts, rows in parts]),
        num_classes,
        part=np.repeat(np.array([TRAIN, TEST], np.uint8), [len(rows) for _, rows in parts]),
        tokens=tokeniser.tokens,
    )
