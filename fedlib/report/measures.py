"""Numbers of a run that are not metrics, but follow from its recorded numbers.

A measure is a function (run as declared, its metrics, its clients) -> Series, a number per seed.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import diagnostics, exhibits, recovery
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.tidy import DIVERGENCE, TRAFFIC
from fedlib.spec import Run

Measure = Callable[[Run, pd.DataFrame, pd.DataFrame], pd.Series]


def divergence(run: Run, metrics: pd.DataFrame, clients: pd.DataFrame) -> pd.Series:
    """Divergence of the clients' updates of an expert, mean over experts and rounds."""
    rows = exhibits.pick(metrics, at="round", metric=DIVERGENCE, **TRAFFIC._asdict())
    if rows.empty:
        raise DataError(f"{exhibits.name(run)} has no divergence of its rounds")
    return rows.groupby("seed")["value"].mean()


def _of_clusters(measure: Callable[[np.ndarray, np.ndarray], float]) -> Measure:
    """A measure made of a function of the clients' experts [C] and true clusters [C]."""

    def measure_clusters(run: Run, metrics: pd.DataFrame, clients: pd.DataFrame) -> pd.Series:
        shown = exhibits.pick(clients, at="last", **PRIMARY._asdict())
        values = {}
        for seed, mine in shown.groupby("seed"):
            if "choice" in mine and mine["choice"].notna().any():
                chosen = diagnostics.column(mine, "choice")
            else:
                chosen = recovery.top_experts(diagnostics.matrix(mine, "pi"))
            values[seed] = measure(chosen, diagnostics.column(mine, "cluster"))
        if not values:
            raise DataError(f"{exhibits.name(run)} has no clients")
        return pd.Series(values, dtype=float)

    return measure_clusters


MEASURES: dict[str, Measure] = {
    "divergence": divergence,
    "purity": _of_clusters(recovery.purity),
    # Share of the clients whose expert is the commonest in their true cluster.
    "unity": _of_clusters(lambda chosen, cluster: recovery.purity(cluster, chosen)),
    "right_clusters": _of_clusters(recovery.num_right),
    "experts_used": _of_clusters(lambda chosen, cluster: len(np.unique(chosen))),
}
