"""Tables, by kind: `load(kind)` is its `build(exhibit, metrics, clients, published, **params)`.

The keyword arguments after the first four are the `params` of the declared table. Nothing is
imported until it is asked for, so that a table's code digest covers its own kind only.
"""

from collections.abc import Callable

from fedlib.report import registry

KINDS = {
    "accuracy": "fedlib.report.tables.accuracy:build",
    "accuracy_and_traffic": "fedlib.report.tables.accuracy_and_traffic:build",
    "beside_published": "fedlib.report.tables.beside_published:build",
    "cluster_recovery": "fedlib.report.tables.cluster_recovery:build",
    "criteria": "fedlib.report.tables.criteria:build",
    "cost": "fedlib.report.tables.cost:build",
    "gains": "fedlib.report.tables.gains:build",
    "global_accuracy": "fedlib.report.tables.global_accuracy:build",
    "headlines": "fedlib.report.tables.headlines:build",
    "hyperparameters": "fedlib.report.tables.hyperparameters:build",
    "lead": "fedlib.report.tables.lead:build",
    "learned_alpha": "fedlib.report.tables.learned_alpha:build",
    "leakage": "fedlib.report.tables.leakage:build",
    "protocol_grid": "fedlib.report.tables.protocol_grid:build",
    "protocols": "fedlib.report.tables.protocols:build",
    "server_size": "fedlib.report.tables.server_size:build",
    "sweep": "fedlib.report.tables.sweep:build",
    "to_target": "fedlib.report.tables.to_target:build",
    "unseen": "fedlib.report.tables.unseen:build",
    "views": "fedlib.report.tables.views:build",
}


def load(kind: str) -> Callable:
    """The function that builds that kind of table; ConfigError with the choices if none does."""
    return registry.load(KINDS, kind, "table")


def check_params(kind: str, params: dict) -> None:
    """Nothing, if `params` are what that kind takes; ConfigError saying which they are if not."""
    registry.check_params(load(kind), params, f"table kind {kind}")
