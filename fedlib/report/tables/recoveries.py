"""Numbers of tables that say of every run and seed how well something of the clients was found."""

from collections.abc import Callable, Iterator

import pandas as pd

from fedlib.report import of_clients
from fedlib.report.tables.sheets import Inputs


def by_seed(
    given: Inputs, clients: pd.DataFrame, measure: Callable[[dict, pd.DataFrame], dict]
) -> pd.DataFrame:
    """What `measure(run, clients)` says of the seen clients: a row per federation, run and seed."""

    def of_run(federation: dict, run: dict) -> Iterator[dict]:
        for seed in given.exhibit["seeds"]:
            mine = of_clients.clients_of(given.exhibit, clients, run, seed)
            yield {"seed": seed, **measure(run, mine)}

    return given.numbers(of_run)
