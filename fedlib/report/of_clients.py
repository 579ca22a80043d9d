"""What diagnostics say of every client, as tables and figures take it from the frame of clients."""

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, DataError
from fedlib.report import clusters, exhibits
from fedlib.report.metrics import PRIMARY


def clients_of(
    exhibit: dict, clients: pd.DataFrame, run: dict, seed: int | None = None
) -> pd.DataFrame:
    """The seen clients of one run: a row for each of them, and for each seed if none is given."""
    shown = exhibits.pick(exhibits.select(exhibit, clients), at="last", **PRIMARY._asdict())
    mine = exhibits.pick(shown, federation=run["federation"], label=run["label"])
    mine = mine if seed is None else exhibits.pick(mine, seed=seed)
    return mine.sort_values(["seed", "client"], kind="stable")


def matrix(clients: pd.DataFrame, name: str) -> np.ndarray:
    """The columns `name`_0, `name`_1, ... of one run's clients -> [C, numbers]

    Columns that only other runs have, as those of more experts, are left out.

    Raises:
      DataError: if there are none, or a client has only some of them.
    """
    numbers = sorted(
        int(column.removeprefix(f"{name}_"))
        for column in clients
        if column.startswith(f"{name}_") and column.removeprefix(f"{name}_").isdigit()
    )
    values = clients[[f"{name}_{number}" for number in numbers]].dropna(axis="columns", how="all")
    if values.empty or values.isna().any(axis=None):
        raise DataError(f"{_run(clients)} has no {name}_0, {name}_1, ... of every client; {ADVICE}")
    return values.to_numpy()


def column(clients: pd.DataFrame, name: str) -> np.ndarray:
    """A whole number of each of one run's clients -> [C] int64

    Raises:
      DataError: if there is no such column, or a client has none.
    """
    if name not in clients or clients.empty or clients[name].isna().any():
        raise DataError(f"{_run(clients)} has no {name} of every client; {ADVICE}")
    return clients[name].to_numpy().astype(np.int64)


def settled(clients: pd.DataFrame, run: dict, choice: str | None) -> tuple[np.ndarray, int, float]:
    """What each of one run's clients settled on: its expert [C], of how many, how decidedly.

    Args:
      clients: of the run, see `clients_of`.
      run: as declared.
      choice: column with the expert; then the run states its "num_experts", and there is no mean
        highest weight but NaN. Without it the expert is the one of highest weight "pi_0", ...

    Raises:
      ConfigError: if the run does not state its experts.
      DataError: see `matrix` and `column`.
    """
    if choice is not None:
        return column(clients, choice), int(exhibits.setting("num_experts", run)), np.nan
    pi = matrix(clients, "pi")
    return clusters.assigned(pi), pi.shape[1], clusters.saturation(pi)


def seed_of(exhibit: dict, seed: int | None) -> int:
    """The seed to show: the given one, or the exhibit's first.

    Raises:
      ConfigError: if the exhibit does not have it.
    """
    if seed is not None and seed not in exhibit["seeds"]:
        seeds = ", ".join(map(str, exhibit["seeds"]))
        raise ConfigError(f"seed must be one of {exhibit['name']}'s ({seeds}), got {seed}")
    return exhibit["seeds"][0] if seed is None else seed


ADVICE = "its method does not record them, or the metrics stage must run again"


def _run(clients: pd.DataFrame) -> str:
    if clients.empty:
        return "the run"
    return f"{clients['federation'].iloc[0]}/{clients['label'].iloc[0]}"
