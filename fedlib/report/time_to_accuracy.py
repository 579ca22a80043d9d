"""Costs until the clients' mean accuracy reaches a target: rounds, traffic and arithmetic.

A run that misses the target has no cost, because the cost of the whole run would be too low.

Source: L. Yi et al., pFedMoE, 2024 (arXiv:2402.01350); specification section 6, whose costs are
  rounds to the target times numbers exchanged, or operations of training, in a round.
Deviation: costs are summed over the actual rounds, for all clients together and for one place in
  the cohort.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits
from fedlib.report.comparisons import MEAN
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import FLOPS, PRIMARY, TRAFFIC

NEEDED = ("bytes", "client_rounds", "examples")


class Costs(NamedTuple):
    """The round and costs at which one run of one seed reached the target; NaN if it did not."""

    rounds: float = np.nan
    bytes: float = np.nan
    bytes_per_place: float = np.nan
    flops: float = np.nan


def costs(given: Inputs, targets: dict[str, float]) -> dict[tuple[str, str], pd.DataFrame]:
    """`Costs` of every run, by federation and label: a row per seed, in the order of the seeds.

    Args:
      targets: in (0, 1], of each federation.

    Raises:
      ConfigError: if a federation has no target in (0, 1].
      DataError: if a run lacks one of the numbers.
    """
    for federation in given.exhibit["federations"]:
        if not 0 < targets.get(federation["name"], 0) <= 1:
            raise ConfigError(
                f"targets must have a number in (0, 1] for {federation['name']}, got {targets}"
            )
    found = {}
    for run in given.exhibit["runs"]:
        seeds = exhibits.of_run(given.rows, run).groupby("seed", sort=True)
        target = targets[run["federation"]]
        found[run["federation"], run["label"]] = pd.DataFrame(
            [_reached(rows, target) for _, rows in seeds]
        )
    return found


def _reached(metrics: pd.DataFrame, target: float) -> Costs:
    """The round at which one run reached the target, and its costs up to then.

    Raises:
      DataError: if the run lacks one of the numbers.
    """
    curve = exhibits.pick(metrics, at="round", metric=MEAN, **PRIMARY._asdict())
    reached = curve.loc[curve["value"] >= target, "round"]
    if reached.empty:
        return Costs()
    first = int(reached.min())
    costs = exhibits.pick(metrics, at="round", round=first, **TRAFFIC._asdict())
    spent = costs.set_index("metric")["value"]
    of_run = exhibits.pick(metrics, at="last", metric=FLOPS)["value"]
    missing = [name for name in NEEDED if name not in spent] + [FLOPS] * of_run.empty
    if missing:
        about = metrics.iloc[0]
        raise DataError(
            f"{exhibits.name(about)} has no {missing[0]} with seed "
            f"{about['seed']}; run its evaluation and the metrics stage again"
        )
    places = spent["client_rounds"] / first if first else np.nan
    return Costs(
        rounds=first,
        bytes=spent["bytes"],
        bytes_per_place=spent["bytes"] / places,
        flops=spent["examples"] * of_run.iloc[0],
    )
