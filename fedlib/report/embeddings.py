"""Experts' representations of the same examples as rows of metrics: recorded vectors, reduced.

An evaluation may record the diagnostics `representations` [num_clients, n, K, d], vectors of K
experts (or mixtures of experts) for n test examples of some clients, NaN for the others, and
`representation_labels` [num_clients, n], the classes of these examples. A table of metrics keeps
the leading principal components of all vectors of a run together, with which t-SNE also begins.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import DataError

VECTORS, LABELS = "representations", "representation_labels"  # diagnostics
METRIC, LABEL = "representation", "label"  # of vectors; the class of their example
COMPONENTS = 16


class Points(NamedTuple):
    """Reduced vectors of P examples by each of K experts."""

    vectors: np.ndarray  # [P, K, components]
    client: np.ndarray  # [P]
    label: np.ndarray  # [P]


def as_metrics(diagnostics: dict[str, np.ndarray]) -> Iterator[tuple[str, str, float]]:
    """Rows of recorded representations -> (of, index, value), see `ROW_COLUMNS` of metrics.

    Those of `LABEL` are classes by client and example; those of "" are components by client,
    example, kind and component.
    """
    if VECTORS not in diagnostics:
        return
    vectors, labels = diagnostics[VECTORS], diagnostics[LABELS]
    has = ~np.isnan(vectors).any(axis=(2, 3))
    if not has.any():
        return
    short = leading(vectors[has].reshape(-1, vectors.shape[-1]))
    short = short.reshape(has.sum(), vectors.shape[2], -1)
    for (client, example), kinds in zip(np.argwhere(has).tolist(), short, strict=True):
        yield LABEL, f"{client}_{example}", float(labels[client, example])
        for (kind, component), value in np.ndenumerate(kinds):
            yield "", f"{client}_{example}_{kind}_{component}", float(value)


def leading(vectors: np.ndarray) -> np.ndarray:
    """The leading principal components of vectors [P, d] -> [P, at most `COMPONENTS`]

    The largest entry of each direction is positive, which makes them unique.
    """
    centred = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:COMPONENTS]
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    return centred @ (directions * signs[:, None]).T


def of_metrics(metrics: pd.DataFrame) -> Points:
    """The points of `as_metrics`, from the rows of one run and seed.

    Raises:
      DataError: if the run recorded no representations.
    """
    rows = metrics[metrics["metric"] == METRIC]
    if rows.empty:
        raise DataError("the run recorded no representations of experts; evaluate it again")
    is_label = rows["of"] == LABEL
    labels = _by_number(rows[is_label], "client", "example")
    cells = _by_number(rows[~is_label], "client", "example", "kind", "component")
    wide = cells.unstack(["kind", "component"]).sort_index().sort_index(axis="columns")
    kinds = wide.columns.unique("kind")
    client = wide.index.get_level_values("client").to_numpy()
    vectors = wide.to_numpy().reshape(len(wide), len(kinds), -1)
    return Points(vectors, client, labels.loc[wide.index].to_numpy().astype(np.int64))


def _by_number(rows: pd.DataFrame, *names: str) -> pd.Series:
    """The values of rows by the numbers of their index."""
    numbers = rows["index"].str.split("_", expand=True).astype(int)
    return rows["value"].set_axis(pd.MultiIndex.from_frame(numbers, names=names))
