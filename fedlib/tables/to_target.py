"""What it takes until the clients' mean accuracy reaches a target: rounds, traffic and arithmetic.

`fedlib.exhibits.targets` has the definitions; a target that is not reached has no cost.
"""

import pandas as pd

from fedlib.exhibits import comparisons as ways
from fedlib.exhibits import selection as exhibits
from fedlib.exhibits import targets as aims
from fedlib.tables import notes
from fedlib.tables.cost import quantity
from fedlib.tables.render import ABSENT, Block, Cell, Column, Sheet
from fedlib.tables.summary import identity

MIB = 2**20
BYTES_PER_NUMBER = 4
NOT_REACHED = "not reached"


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
    numbers = _numbers(exhibit, metrics, targets, metric)
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
    found = aims.costs(exhibit, metrics, targets, metric)
    rows = []
    for federation in exhibit["federations"]:
        for run in exhibits.runs_of(exhibit, federation["name"]):
            mine = found[federation["name"], run["label"]]
            rows.append(
                {
                    **identity(federation, run),
                    "target": targets[federation["name"]],
                    "reached": int(mine["rounds"].notna().sum()),
                    "seeds": len(mine),
                    **mine.mean().to_dict(),
                }
            )
    return pd.DataFrame(rows)


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
