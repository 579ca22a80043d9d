"""Personalised federated learning: data, methods, engine and evaluation of five papers.

    clients = fedlib.partition(x, y, "dirichlet", num_clients=10, alpha=0.3)
    result = fedlib.simulate(clients, model, "fedem", num_experts=3, local=fedlib.SGD(lr=0.1), ...)
    result.accuracy(), result.plot(), result.client_model(7)

docs/tutorial.md shows all of it. A name is loaded when it is first used, so that this import takes
no time, and jobs of the workflow load nothing that they do not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlib.api import callbacks as callbacks
    from fedlib.api.federation import Federation as Federation
    from fedlib.api.federation import partition as partition
    from fedlib.api.predictor import ClientModel as ClientModel
    from fedlib.api.result import Result as Result
    from fedlib.api.result import load as load
    from fedlib.api.runs import open_run as open_run
    from fedlib.api.runs import simulate as simulate
    from fedlib.engine.schedules import Schedule as Schedule
    from fedlib.engine.solvers import SGD as SGD
    from fedlib.engine.solvers import Adam as Adam
    from fedlib.engine.solvers import AdamW as AdamW
    from fedlib.methods.base import Method as Method

__version__ = "0.4.0"

_PLACES = {
    "Adam": "engine.solvers",
    "AdamW": "engine.solvers",
    "ClientModel": "api.predictor",
    "Federation": "api.federation",
    "Method": "methods.base",
    "Result": "api.result",
    "SGD": "engine.solvers",
    "Schedule": "engine.schedules",
    "callbacks": "api.callbacks",
    "load": "api.result",
    "open_run": "api.runs",
    "partition": "api.federation",
    "simulate": "api.runs",
}
__all__ = list(_PLACES)


if not TYPE_CHECKING:  # so that type checkers know which names there are

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"fedlib.{_PLACES[name]}")
        return module if name == "callbacks" else getattr(module, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
