"""What a method records of its final state, checked: numbers of clients, and numbers of rounds."""

from typing import Any

import numpy as np

from fedlib.errors import ConfigError
from fedlib.methods.base import Method
from fedlib.results import OF_NO_CLIENT
from fedlib.run.scoring import as_arrays


def diagnostics(method: Method, state: Any, num_clients: int) -> dict[str, np.ndarray]:
    """Arrays of `Method.diagnostics`, by name.

    Raises:
      ConfigError: for one that has not a row for each client.
    """
    found = as_arrays(method.diagnostics(state))
    for name, array in found.items():
        if name not in OF_NO_CLIENT and array.shape[:1] != (num_clients,):
            raise ConfigError(
                f"{type(method).__name__}.diagnostics: {name} must have a row for each of the "
                f"{num_clients} clients, got shape {[*array.shape]}; numbers of rounds belong into "
                "by_round"
            )
    return found


def by_round(method: Method, state: Any) -> dict[str, np.ndarray]:
    """Arrays of `Method.by_round`, by name.

    Raises:
      ConfigError: for one that is neither [R] nor [R, E], or that has a name of `diagnostics`.
    """
    found, others = as_arrays(method.by_round(state)), method.diagnostics(state)
    for name, array in found.items():
        which = f"{type(method).__name__}.by_round: {name}"
        if array.ndim not in (1, 2):
            raise ConfigError(
                f"{which} must be [rounds] or [rounds, experts], got shape {[*array.shape]}"
            )
        if name in others or name in OF_NO_CLIENT:
            raise ConfigError(f"{which} is the name of a diagnostic; choose another")
    return found
