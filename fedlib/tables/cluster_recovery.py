"""How well the experts that clients settle on agree with their true clusters, over the seeds.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, section 4.3 and appendix
B, which have matrices and no numbers; specification section 7.2.
"""

from collections import Counter
from functools import partial

import pandas as pd

from fedlib.errors import ConfigError
from fedlib.exhibits import clusters, of_clients
from fedlib.exhibits import selection as exhibits
from fedlib.tables import notes
from fedlib.tables.recoveries import by_seed
from fedlib.tables.render import Block, Cell, Column, Sheet
from fedlib.tables.summary import mean_text


def build(
    exhibit: dict,
    metrics: pd.DataFrame,
    clients: pd.DataFrame,
    published: pd.DataFrame | None,
    *,
    weights: str | None = "pi",
    choice: str | None = None,
    cluster: str = "cluster",
) -> Sheet:
    """The table; its numbers have one row per federation, run and seed.

    Args:
      exhibit, metrics, clients, published: see `fedlib.exhibits.selection`,
        `fedlib.exhibits.metrics`, `fedlib.exhibits.published`.
      weights: of which columns of the clients ("pi_0", ...); None with a `choice`.
      choice: column of the clients with the expert of each, of methods whose clients have one
        alone; then runs state their "num_experts".
      cluster: column of the clients with the true cluster of each.

    Raises:
      ConfigError: for weights and a choice, or neither, or if a run does not state its experts.
      DataError: if the clients of a run have no weights (or choice) or no clusters.
    """
    if (weights is None) == (choice is None):
        raise ConfigError(f"needs weights or a choice, got {weights} and {choice}")
    measure = partial(_recovery, weights=weights, choice=choice, cluster=cluster)
    numbers = by_seed(exhibit, clients, measure)
    return Sheet(
        label=f"{exhibit['paper']}-{exhibit['name']}",
        title=exhibit["title"],
        caption=exhibit["caption"],
        blocks=[
            _block(federation, numbers, choice is None) for federation in exhibit["federations"]
        ],
        notes=[
            exhibits.scale_text(exhibit),
            f"{exhibits.seeds_text(exhibit)}: {notes.spread(exhibit)}. "
            f"{exhibits.rounds_text(exhibit)}",
            f"A client's expert is {_whose(choice)} after the last round. Purity: "
            "share of clients whose true cluster is the commonest of their expert's clients; 1 "
            "also where two experts serve one cluster. Experts used: in how many seeds how many "
            "experts are some client's. Recovered: seeds of purity 1 with one expert per cluster.",
            *(
                ["Highest weight: mean over clients; 1 if every client relies on one expert alone."]
                if choice is None
                else []
            ),
            *notes.particulars(exhibit),
        ],
        numbers=notes.with_scale(exhibit, numbers),
    )


def _whose(choice: str | None) -> str:
    return "the one of its highest weight" if choice is None else "the one that fits it best"


def _recovery(
    run: dict, clients: pd.DataFrame, weights: str | None, choice: str | None, cluster: str
) -> dict[str, float]:
    """How well the experts of one run's clients agree with their clusters."""
    chosen, experts, highest = of_clients.settled(clients, run, weights, choice)
    true = of_clients.column(clients, cluster)
    purity, used = clusters.purity(chosen, true), clusters.num_used(chosen)
    num_clusters = clusters.num_used(true)
    return {
        "clients": len(true),
        "clusters": num_clusters,
        "experts": experts,
        "purity": purity,
        "experts_used": used,
        "recovered": int(purity == 1 and used == num_clusters),
        "highest_weight": highest,
    }


def _block(federation: dict, numbers: pd.DataFrame, weighted: bool) -> Block:
    columns = [
        *(Column("Method"), Column("Experts"), Column("mean", "Purity"), Column("least", "Purity")),
        *(Column("median", "Purity"), Column("most", "Purity"), Column("Experts used")),
        *(Column("Recovered"), *([Column("Highest weight")] if weighted else []), Column("Seeds")),
    ]
    mine = exhibits.pick(numbers, federation=federation["name"])
    rows = [_row(part, weighted) for _, part in mine.groupby("label", sort=False)]
    return Block(federation["title"], columns, rows)


def _row(seeds: pd.DataFrame, weighted: bool) -> list[Cell]:
    """The cells of one run, from its rows of all seeds."""
    purity, used = seeds["purity"], Counter(seeds["experts_used"])
    distribution = ", ".join(f"{number} ({used[number]}×)" for number in sorted(used))
    texts = [
        *(seeds["title"].iloc[0], str(seeds["experts"].iloc[0]), mean_text(seeds, "purity", 2)),
        *(f"{value:.2f}" for value in (purity.min(), purity.median(), purity.max())),
        *(distribution, f"{seeds['recovered'].sum()} of {len(seeds)}"),
        *([mean_text(seeds, "highest_weight", 2)] if weighted else []),
        str(len(seeds)),
    ]
    return list(map(Cell, texts))
