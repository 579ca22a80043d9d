"""Experts' representations of the same examples as rows of metrics: recorded vectors, reduced.

An evaluation may record the diagnostics `representations` [num_clients, n, K, d], vectors of K
experts (or mixtures of experts) for n test examples of some clients, NaN for the others, and
`representation_labels` [num_clients, n], the classes of these examples. A table of metrics keeps
the leading principal components of all vectors of a run together, with which t-SNE also begins.
"""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import DataError

VECTORS, LABELS = "representations", "representation_labels"  # diagnostics
COMPONENTS = 16
NAME = re.compile(r"representation_(\d+)_(\d+)_(\d+)_(\d+)")  # client, example, kind, component
LABEL = re.compile(r"representation_label_(\d+)_(\d+)")  # client, example


class Points(NamedTuple):
    """Reduced vectors of P examples by each of K experts."""

    vectors: np.ndarray  # [P, K, components]
    client: np.ndarray  # [P]
    label: np.ndarray  # [P]


def as_metrics(diagnostics: dict[str, np.ndarray]) -> dict[str, float]:
    """Components and labels of recorded representations, by metric; {} if none are recorded.

    Raises:
      DataError: if the shapes do not match.
    """
    if VECTORS not in diagnostics:
        return {}
    vectors, labels = diagnostics[VECTORS], diagnostics.get(LABELS)
    if vectors.ndim != 4 or labels is None or labels.shape != vectors.shape[:2]:
        raise DataError(
            f"{VECTORS} must be [clients, examples, kinds, features] and {LABELS} [clients, "
            f"examples], got shapes {vectors.shape} and "
            f"{'none' if labels is None else labels.shape}"
        )
    has = ~np.isnan(vectors).any(axis=(2, 3))
    if not has.any():
        return {}
    short = leading(vectors[has].reshape(-1, vectors.shape[-1])).reshape(
        has.sum(), vectors.shape[2], -1
    )
    found = {}
    for (client, example), kinds in zip(np.argwhere(has).tolist(), short, strict=True):
        found[f"representation_label_{client}_{example}"] = float(labels[client, example])
        for (kind, component), value in np.ndenumerate(kinds):
            found[f"representation_{client}_{example}_{kind}_{component}"] = float(value)
    return found


def leading(vectors: np.ndarray) -> np.ndarray:
    """The leading principal components of vectors [P, d] -> [P, at most `COMPONENTS`]

    The largest entry of each direction is positive, which makes them unique.
    """
    centred = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:COMPONENTS]
    largest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return centred @ (directions * signs[:, None]).T


def of_metrics(metrics: pd.DataFrame) -> Points:
    """The points of `as_metrics`, from the rows of one run and seed.

    Raises:
      DataError: if the run recorded no representations.
    """
    values = dict(zip(metrics["metric"], metrics["value"], strict=True))
    cells, labels = _numbered(values, NAME), _numbered(values, LABEL)
    if not cells:
        raise DataError("the run recorded no representations of experts; evaluate it again")
    examples = sorted(labels)
    kinds, components = (max(cell[i] for cell in cells) + 1 for i in (2, 3))
    vectors = np.empty((len(examples), kinds, components))
    for place, example in enumerate(examples):
        for kind, component in np.ndindex(kinds, components):
            vectors[place, kind, component] = cells[*example, kind, component]
    client = np.array([client for client, _ in examples])
    return Points(vectors, client, np.array([labels[e] for e in examples]).astype(np.int64))


def _numbered(values: dict[str, float], pattern: re.Pattern) -> dict[tuple[int, ...], float]:
    """The values whose names match a pattern, by the numbers in their names."""
    matches = ((pattern.fullmatch(name), value) for name, value in values.items())
    return {tuple(map(int, match.groups())): value for match, value in matches if match}
