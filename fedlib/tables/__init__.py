"""Tables, by kind: `load(kind)` is its `build(exhibit, metrics, clients, published, **params)`.

The keyword arguments after the first four are the `params` of the declared table. Nothing is
imported until it is asked for, so that a table's code digest covers its own kind only.
"""

from collections.abc import Callable

from fedlib.exhibits import registry

KINDS = {
    "accuracy": "fedlib.tables.accuracy:build",
    "accuracy_and_traffic": "fedlib.tables.accuracy_and_traffic:build",
    "beside_published": "fedlib.tables.beside_published:build",
    "cluster_recovery": "fedlib.tables.cluster_recovery:build",
    "criteria": "fedlib.tables.criteria:build",
    "cost": "fedlib.tables.cost:build",
    "gains": "fedlib.tables.gains:build",
    "global_accuracy": "fedlib.tables.global_accuracy:build",
    "headlines": "fedlib.tables.headlines:build",
    "hyperparameters": "fedlib.tables.hyperparameters:build",
    "lead": "fedlib.tables.lead:build",
    "learned_alpha": "fedlib.tables.learned_alpha:build",
    "leakage": "fedlib.tables.leakage:build",
    "protocol_grid": "fedlib.tables.protocol_grid:build",
    "protocols": "fedlib.tables.protocols:build",
    "server_size": "fedlib.tables.server_size:build",
    "sweep": "fedlib.tables.sweep:build",
    "to_target": "fedlib.tables.to_target:build",
    "unseen": "fedlib.tables.unseen:build",
    "views": "fedlib.tables.views:build",
}


def load(kind: str) -> Callable:
    """The function that builds that kind of table; ConfigError with the choices if none does."""
    return registry.load(KINDS, kind, "table")


def check_params(kind: str, params: dict) -> None:
    """Nothing, if `params` are what that kind takes; ConfigError saying which they are if not."""
    registry.check_params(load(kind), params, f"table kind {kind}")
