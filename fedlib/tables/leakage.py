"""How well label distributions were recovered from the clients' first updates.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, appendix C, which has
pictures and no numbers; specification section 7.5.
"""

import pandas as pd

from fedlib.exhibits import leakage, of_clients
from fedlib.exhibits import selection as exhibits
from fedlib.tables import notes
from fedlib.tables.recoveries import by_seed
from fedlib.tables.render import Block, Cell, Column, Sheet
from fedlib.tables.summary import mean_text

MEASURES = {  # columns of the numbers, and how they are shown
    "total_variation": ("mean", "Total variation"),
    "largest_total_variation": ("largest", "Total variation"),
    "correlation": ("Correlation", ""),
}


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
) -> Sheet:
    """The table; its numbers have one row per federation, run and seed.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.

    Raises:
      DataError: if the clients of a run have no such columns.
    """
    numbers = by_seed(exhibit, clients, _recovery)
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[_block(federation, numbers) for federation in exhibit["federations"]],
        notes=[
            exhibits.scale_text(exhibit),
            f"{exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}.",
            "Total variation: half the sum of the absolute differences of a client's true and "
            "recovered label shares, 0 if equal, mean and largest over the clients. Correlation: "
            "of true and recovered shares, over all labels of all clients.",
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _recovery(run: dict, clients: pd.DataFrame) -> dict[str, float]:
    """How well the labels of one run's clients were recovered."""
    guess, true = of_clients.matrix(clients, "recovered"), of_clients.matrix(clients, "labels")
    distance = leakage.total_variation(guess, true)
    return {
        "clients": len(true),
        "total_variation": distance.mean(),
        "largest_total_variation": distance.max(),
        "correlation": leakage.correlation(guess, true),
    }


def _block(federation: dict, numbers: pd.DataFrame) -> Block:
    mine = exhibits.pick(numbers, federation=federation["name"])
    columns = [Column("Method"), Column("Clients")]
    columns += [Column(*title) for title in MEASURES.values()] + [Column("Seeds")]
    rows = []
    for _, seeds in mine.groupby("label", sort=False):
        texts = [seeds["title"].iloc[0], str(seeds["clients"].iloc[0])]
        texts += [mean_text(seeds, name, 3) for name in MEASURES]
        rows.append(list(map(Cell, [*texts, str(len(seeds))])))
    return Block(federation["title"], columns, rows)
