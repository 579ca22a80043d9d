"""Costs until the clients' mean accuracy reaches a target: rounds, traffic and arithmetic.

`fedlib.report.time_to_accuracy` has the definitions. A run that misses the target has no cost.
"""

from collections.abc import Iterator

import pandas as pd

from fedlib.report import comparisons, exhibits, time_to_accuracy
from fedlib.report.tables.cost import quantity
from fedlib.report.tables.render import ABSENT, Block, Cell, Column, Sheet
from fedlib.report.tables.sheets import TableInputs, texts

MIB = 2**20
BYTES_PER_NUMBER = 4
NOT_REACHED = "not reached"


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have a row per federation and run, means over seeds that reach it.

    Raises:
      ConfigError: if a federation has no target.
      DataError: if a run lacks one of the numbers.
    """
    exhibit, targets = given.exhibit, given.kind.targets
    found = time_to_accuracy.costs(given, targets)

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        mine = found[federation["name"], run["label"]]
        yield {
            "target": targets[federation["name"]],
            "reached": int(mine["rounds"].notna().sum()),
            "seeds": len(mine),
            **mine.mean().to_dict(),
        }

    numbers = given.numbers(of_run)
    return given.sheet(
        numbers,
        [_block(federation, numbers) for federation in exhibit["federations"]],
        f"Until the first evaluated round at which the {comparisons.METRICS[comparisons.MEAN]}, "
        f"reaches the target on test examples; means over those of {exhibits.seeds_text(exhibit)} "
        f"that reach it. {exhibits.rounds_text(exhibit)}",
        "Sent: up and down, four bytes per number, by all clients or by one place in the "
        "cohort, which is one client where everybody takes part in every round. FLOPs: of "
        "training, all clients together; a multiplication and an addition are two.",
        "Not reached: no cost is given, that of the whole run would be too low.",
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
        return texts((row["title"], NOT_REACHED, *[ABSENT] * 5))
    told = (
        f"{row['reached']} of {row['seeds']}",
        f"{row['rounds']:.4g}",
        quantity(row["bytes_per_place"] / BYTES_PER_NUMBER),
        f"{row['bytes_per_place'] / MIB:.4g}",
        f"{row['bytes'] / MIB:.4g}",
        quantity(row["flops"]),
    )
    return texts((row["title"], *told))
