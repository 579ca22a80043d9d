"""Diagnostics of every client, from the frame of clients, for tables and figures."""

import numpy as np
import pandas as pd

from fedlib.errors import DataError
from fedlib.report import exhibits
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.results import CLIENT_NAME
from fedlib.spec import Run


def of_seed(given: Inputs, run: Run, seed: int) -> pd.DataFrame:
    """The seen clients of one run and seed, in their order."""
    shown = exhibits.pick(given.client_rows, at="last", seed=seed, **PRIMARY._asdict())
    return exhibits.of_run(shown, run).sort_values("client", kind="stable")


def names(clients: pd.DataFrame) -> list[str]:
    """The name of each of one run's clients, or its number from 0 without names -> [C]"""
    numbers = clients["client"].astype(str)
    return clients.get(CLIENT_NAME, numbers).fillna(numbers).tolist()


def matrix(clients: pd.DataFrame, name: str) -> np.ndarray:
    """The columns `name`_0, `name`_1, ... of one run's clients -> [C, numbers]

    Columns that only other runs have, such as runs with more experts, are left out.

    Raises:
      DataError: if there are no columns, or a client has values in only some of them.
    """
    values = clients[column_names(clients, name)].dropna(axis="columns", how="all")
    if values.empty or values.isna().any(axis=None):
        raise DataError(f"{_run(clients)} has no {name}_0, {name}_1, ... of every client; {ADVICE}")
    return values.to_numpy()


def column_names(clients: pd.DataFrame, name: str) -> list[str]:
    """The existing columns `name`_0, `name`_1, ..., in order of their numbers."""
    numbers = [c.removeprefix(f"{name}_") for c in clients if c.startswith(f"{name}_")]
    return [f"{name}_{number}" for number in sorted(map(int, filter(str.isdigit, numbers)))]


def column(clients: pd.DataFrame, name: str) -> np.ndarray:
    """The whole number in column `name` of each of one run's clients -> [C] int64

    Raises:
      DataError: if there is no such column, or a client has no value.
    """
    if name not in clients or clients.empty or clients[name].isna().any():
        raise DataError(f"{_run(clients)} has no {name} of every client; {ADVICE}")
    return clients[name].to_numpy().astype(np.int64)


ADVICE = "its method does not record them, or the metrics stage must run again"


def _run(clients: pd.DataFrame) -> str:
    return "the run" if clients.empty else "{federation}/{label}".format(**clients.iloc[0])
