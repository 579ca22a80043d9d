"""Accuracy of label distributions recovered from the clients' first updates.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, appendix C, which has
pictures and no numbers; specification section 7.5.
"""

import pandas as pd

from fedlib.report import exhibits, of_clients, recovery
from fedlib.report.tables import notes
from fedlib.report.tables.render import Column, Sheet
from fedlib.report.tables.sheets import Columns, TableInputs, mean_text, texts

MEASURES = {  # columns of the numbers, and their display
    "total_variation": ("mean", "Total variation"),
    "largest_total_variation": ("largest", "Total variation"),
    "correlation": ("Correlation", ""),
}


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run and seed.

    Raises:
      DataError: if the clients of a run have no recovered distributions.
    """
    exhibit = given.exhibit
    numbers = given.by_seed(_recovery)
    return given.sheet(
        numbers,
        given.blocks(numbers, _columns),
        f"{exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}.",
        "Total variation: half the sum of the absolute differences of a client's true and "
        "recovered label shares, 0 if equal, mean and largest over the clients. Correlation: "
        "of true and recovered shares, over all labels of all clients.",
    )


def _recovery(run: dict, clients: pd.DataFrame) -> dict[str, float]:
    """Measures of the recovered label distributions of one run's clients."""
    guess, true = of_clients.matrix(clients, "recovered"), of_clients.matrix(clients, "labels")
    distance = recovery.total_variation(guess, true)
    return {
        "clients": len(true),
        "total_variation": distance.mean(),
        "largest_total_variation": distance.max(),
        "correlation": recovery.correlation(guess, true),
    }


def _columns(mine: pd.DataFrame) -> Columns:
    """A row per run."""
    runs = [seeds for _, seeds in mine.groupby("label", sort=False)]
    yield Column("Method"), texts(seeds["title"].iloc[0] for seeds in runs)
    yield Column("Clients"), texts(seeds["clients"].iloc[0] for seeds in runs)
    for name, title in MEASURES.items():
        yield Column(*title), texts(mean_text(seeds, name, 3) for seeds in runs)
    yield Column("Seeds"), texts(map(len, runs))
