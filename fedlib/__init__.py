"""Personalised federated learning: data, methods, engine and evaluation of five papers.

    clients = fedlib.partition(x, y, "dirichlet", num_clients=10, alpha=0.3, train_fraction=0.8)
    result = fedlib.simulate(clients, model, "fedem", num_experts=3, local=fedlib.SGD(lr=0.1), ...)
    result.accuracy(), result.plot(), result.client_model(7)

docs/tutorial.md shows all of it. A name is loaded when it is first used, so that this import takes
no time, and jobs of the workflow load nothing that they do not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlib.api.federation import Federation, partition
    from fedlib.api.predictor import ClientModel
    from fedlib.api.result import Result
    from fedlib.api.runs import open_run, simulate
    from fedlib.engine.schedules import Schedule
    from fedlib.engine.solvers import SGD, Adam, AdamW
    from fedlib.methods.base import Method

__version__ = "0.1.0"
__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "ClientModel",
    "Federation",
    "Method",
    "Result",
    "Schedule",
    "open_run",
    "partition",
    "simulate",
]

_PLACES = {
    "api.federation": ("Federation", "partition"),
    "api.predictor": ("ClientModel",),
    "api.result": ("Result",),
    "api.runs": ("open_run", "simulate"),
    "engine.schedules": ("Schedule",),
    "engine.solvers": ("SGD", "Adam", "AdamW"),
    "methods.base": ("Method",),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"fedlib.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
