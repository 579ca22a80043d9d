"""What it takes until the clients' mean accuracy reaches a target: rounds, traffic and arithmetic.

A target that is not reached has no cost; the table says so instead of showing that of the run.

Source: L. Yi et al., pFedMoE, 2024 (arXiv:2402.01350); specification section 6, whose costs are
  rounds to the target times numbers exchanged, or operations of training, in a round.
Deviation: costs are added up over the rounds that took place, and given for all clients together
  and for one place in the cohort.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.exhibits import comparisons as ways
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits.metrics import FLOPS, PRIMARY, TRAFFIC
from fedlib.tables import notes
from fedlib.tables.cost import quantity
from fedlib.tables.render import ABSENT, Block, Cell, Column, Sheet
from fedlib.tables.summary import identity

MIB = 2**20
COSTS = ("rounds", "bytes", "bytes_per_place", "flops")
NEEDED = ("bytes", "client_rounds", "examples")
BYTES_PER_NUMBER = 4
NOT_REACHED = "not reached"


class _Reached(NamedTuple):
    """When one run of one seed reached the target, and what that took; NaN if it did not."""

    rounds: float = np.nan
    bytes: float = np.nan
    bytes_per_place: float = np.nan
    flops: float = np.nan


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    targets: dict[str, float],
    metric: str = "accuracy_client_mean",
) -> Sheet:
    """The table; its numbers have one row per federation and run, means over seeds that reach it.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      targets: in (0, 1], of each federation.
      metric: of `fedlib.exhibits.comparisons.METRICS`, on test examples of the seen clients.

    Raises:
      ConfigError: for another metric, or if a federation has no target.
      DataError: if a run lacks one of the numbers.
    """
    if metric not in ways.METRICS:
        raise ConfigError(f"metric must be {' or '.join(ways.METRICS)}, got {metric!r}")
    for federation in exhibit["federations"]:
        if not 0 < targets.get(federation["name"], 0) <= 1:
            raise ConfigError(
                f"targets must have a number in (0, 1] for {federation['name']}, got {targets}"
            )
    numbers = _numbers(exhibit, exhibits.select(exhibit, metrics), targets, metric)
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            exhibits.scale_text(exhibit),
            f"Until the first evaluated round at which the {ways.METRICS[metric]}, reaches the "
            f"target on test examples; means over those of {exhibits.seeds_text(exhibit)} that "
            f"reach it. {exhibits.rounds_text(exhibit)}",
            "Sent: up and down, four bytes per number, by all clients or by one place in the "
            "cohort, which is one client where everybody takes part in every round. FLOPs: of "
            "training, all clients together; a multiplication and an addition are two.",
            "Not reached: no cost is given, that of the whole run would be too low.",
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _numbers(
    exhibit: dict, metrics: pd.DataFrame, targets: dict[str, float], metric: str
) -> pd.DataFrame:
    """Everything the table shows -> one row per federation and run."""
    rows = []
    for federation in exhibit["federations"]:
        target = targets[federation["name"]]
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = exhibits.pick(metrics, federation=federation["name"], label=run["label"])
            found = pd.DataFrame([_reached(rows, target, metric) for _, rows in _by_seed(mine)])
            rows.append(
                {
                    **identity(federation, run),
                    "target": target,
                    "reached": int(found["rounds"].notna().sum()),
                    "seeds": len(found),
                    **found[list(COSTS)].mean().to_dict(),
                }
            )
    return pd.DataFrame(rows)


def _by_seed(metrics: pd.DataFrame):
    return metrics.groupby("seed", sort=True)


def _reached(metrics: pd.DataFrame, target: float, metric: str) -> _Reached:
    """When one run reached the target, and what it had cost by then.

    Raises:
      DataError: if it lacks one of the numbers.
    """
    curve = exhibits.pick(metrics, at="round", metric=metric, **PRIMARY._asdict())
    reached = curve.loc[curve["value"] >= target, "round"]
    if reached.empty:
        return _Reached()
    first = int(reached.min())
    costs = exhibits.pick(metrics, at="round", round=first, **TRAFFIC._asdict())
    spent = costs.set_index("metric")["value"]
    of_run = exhibits.pick(metrics, at="last", metric=FLOPS)["value"]
    missing = [name for name in NEEDED if name not in spent] + [FLOPS] * of_run.empty
    if missing:
        about = metrics.iloc[0]
        raise DataError(
            f"{about['federation']}/{about['label']} has no {missing[0]} with seed "
            f"{about['seed']}; run its evaluation and the metrics stage again"
        )
    places = spent["client_rounds"] / first if first else np.nan
    return _Reached(
        rounds=first,
        bytes=spent["bytes"],
        bytes_per_place=spent["bytes"] / places,
        flops=spent["examples"] * of_run.iloc[0],
    )


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    """A row per run."""
    mine = exhibits.pick(numbers, federation=federation["name"]).to_dict("records")
    columns = [
        Column("Method"),
        Column("Reached"),
        Column("Rounds"),
        Column("Numbers", "Sent, one place"),
        Column("MiB", "Sent, one place"),
        Column("MiB", "Sent, all"),
        Column("FLOPs"),
    ]
    heading = f"{federation['title']}: {100 * mine[0]['target']:g} %" if mine else ""
    return Block(heading, columns, [_row(row) for row in mine])


def _row(row: dict) -> list[Cell]:
    if not row["reached"]:
        return [Cell(row["title"]), Cell(NOT_REACHED), *[Cell(ABSENT)] * 5]
    texts = [
        f"{row['reached']} of {row['seeds']}",
        f"{row['rounds']:.4g}",
        quantity(row["bytes_per_place"] / BYTES_PER_NUMBER),
        f"{row['bytes_per_place'] / MIB:.4g}",
        f"{row['bytes'] / MIB:.4g}",
        quantity(row["flops"]),
    ]
    return [Cell(row["title"]), *map(Cell, texts)]
