"""Numbers of tables that say of every run and seed how well something of the clients was found."""

from collections.abc import Callable

import pandas as pd

from fedlib.exhibits import of_clients
from fedlib.exhibits import selection as exhibits
from fedlib.tables.summary import identity


def by_seed(
    exhibit: dict, clients: pd.DataFrame, measure: Callable[[dict, pd.DataFrame], dict]
) -> pd.DataFrame:
    """What `measure(run, clients)` says of the seen clients: a row per federation, run and seed."""
    return pd.DataFrame(
        {
            **identity(federation, run),
            "seed": seed,
            **measure(run, of_clients.clients_of(exhibit, clients, run, seed)),
        }
        for federation in exhibit["federations"]
        for run in exhibits.runs_of(exhibit, federation["name"])
        for seed in exhibit["seeds"]
    )
