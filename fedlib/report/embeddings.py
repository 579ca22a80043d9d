"""Experts' representations of the same examples as rows of metrics: recorded vectors, reduced.

An evaluation may record the diagnostics `representations` [num_clients, n, K, d], vectors of K
experts (or mixtures of experts) for n test examples of some clients, NaN for the others, and
`representation_labels` [num_clients, n], the classes of these examples. A table of metrics keeps
the leading principal components of all vectors of a run together, with which t-SNE also begins.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import DataError

VECTORS, LABELS = "representations", "representation_labels"  # diagnostics
COMPONENTS = 16
LABEL = r"^representation_label_(?P<client>\d+)_(?P<example>\d+)$"
NAME = r"^representation_(?P<client>\d+)_(?P<example>\d+)_(?P<kind>\d+)_(?P<component>\d+)$"


class Points(NamedTuple):
    """Reduced vectors of P examples by each of K experts."""

    vectors: np.ndarray  # [P, K, components]
    client: np.ndarray  # [P]
    label: np.ndarray  # [P]


def as_metrics(diagnostics: dict[str, np.ndarray]) -> dict[str, float]:
    """Components and labels of recorded representations, by metric; {} if none are recorded."""
    if VECTORS not in diagnostics:
        return {}
    vectors, labels = diagnostics[VECTORS], diagnostics[LABELS]
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
    cells, labels = _numbered(metrics, NAME), _numbered(metrics, LABEL)
    if cells.empty:
        raise DataError("the run recorded no representations of experts; evaluate it again")
    wide = cells.unstack(["kind", "component"]).sort_index().sort_index(axis="columns")
    kinds = wide.columns.unique("kind")
    client = wide.index.get_level_values("client").to_numpy()
    vectors = wide.to_numpy().reshape(len(wide), len(kinds), -1)
    return Points(vectors, client, labels.loc[wide.index].to_numpy().astype(np.int64))


def _numbered(metrics: pd.DataFrame, pattern: str) -> pd.Series:
    """The values whose names match a pattern, indexed by the numbers in their names."""
    numbers = metrics["metric"].str.extract(pattern).dropna().astype(int)
    return metrics["value"].loc[numbers.index].set_axis(pd.MultiIndex.from_frame(numbers))
