"""Agreement of the clients' experts with their true clusters, over the seeds.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, section 4.3 and appendix
B, which have matrices and no numbers; FedMix's README, section 7.2.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pandas as pd

from fedlib.report import diagnostics, notes, recovery
from fedlib.report.metrics import summary
from fedlib.report.tables.render import Cell, Column, Sheet, with_spread
from fedlib.report.tables.sheets import Columns, TableInputs, texts
from fedlib.spec import Data, Run

WEIGHT_NOTE = "Highest weight: mean over clients; 1 if every client relies on one expert alone."


def build(given: TableInputs) -> Sheet:
    """The table; its numbers have one row per federation, run and seed.

    Raises:
      ConfigError: if a run does not state its experts.
      DataError: if the clients of a run have no weights (or choice), or no column "cluster".
    """
    exhibit, kind = given.exhibit, given.kind

    def of_run(federation: Data, run: Run) -> Iterator[dict]:
        for seed in exhibit.seeds:
            clients = diagnostics.of_seed(given, run, seed)
            yield {"seed": seed, **_recovery(run, clients, kind.choice)}

    numbers = given.numbers(of_run)
    whose = "the one of its highest weight" if kind.choice is None else "the one that fits it best"
    return given.sheet(
        numbers,
        given.blocks(numbers, partial(_columns, weighted=kind.choice is None)),
        notes.measured(exhibit, ""),
        f"A client's expert is {whose} after the last round. Purity: "
        "share of clients whose true cluster is the commonest of their expert's clients; 1 "
        "also where two experts serve one cluster. Experts used: in how many seeds how many "
        "experts are some client's. Recovered: seeds of purity 1 with one expert per cluster.",
        WEIGHT_NOTE if kind.choice is None else "",
    )


def _recovery(run: Run, clients: pd.DataFrame, choice: str | None) -> dict[str, float]:
    """Agreement of the experts of one run's clients with their clusters."""
    chosen, experts, highest = diagnostics.settled(clients, run, choice)
    true = diagnostics.column(clients, "cluster")
    purity, used = recovery.purity(chosen, true), recovery.num_used(chosen)
    num_clusters = recovery.num_used(true)
    return {
        "clients": len(true),
        "clusters": num_clusters,
        "experts": experts,
        "purity": purity,
        "experts_used": used,
        "recovered": int(purity == 1 and used == num_clusters),
        "highest_weight": highest,
    }


def _columns(mine: pd.DataFrame, weighted: bool) -> Columns:
    """A row per run."""
    runs = [seeds for _, seeds in mine.groupby("label", sort=False)]
    yield Column("Method"), texts(seeds["title"].iloc[0] for seeds in runs)
    yield Column("Experts"), texts(seeds["experts"].iloc[0] for seeds in runs)
    yield Column("mean", "Purity"), _means(runs, "purity")
    for title, of in (("least", "min"), ("median", "median"), ("most", "max")):
        yield Column(title, "Purity"), texts(f"{seeds['purity'].agg(of):.2f}" for seeds in runs)
    yield Column("Experts used"), texts(_distribution(seeds["experts_used"]) for seeds in runs)
    recovered = (f"{seeds['recovered'].sum()} of {len(seeds)}" for seeds in runs)
    yield Column("Recovered"), texts(recovered)
    if weighted:
        yield Column("Highest weight"), _means(runs, "highest_weight")
    yield Column("Seeds"), texts(map(len, runs))


def _means(runs: list[pd.DataFrame], column: str) -> list[Cell]:
    """Means of a column over seeds, with their intervals or ranges."""
    return texts(with_spread(summary(seeds[column]), "ci95", "{:.2f}".format) for seeds in runs)


def _distribution(used: pd.Series) -> str:
    """Each number and how often it occurs, "2 (1×), 3 (2×)"."""
    return ", ".join(f"{number} ({count}×)" for number, count in sorted(Counter(used).items()))
