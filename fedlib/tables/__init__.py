"""Tables, by kind: `load(kind)` is its `build(exhibit, metrics, clients, published, **params)`.

The keyword arguments after the first four are the `params` of the declared table. Nothing is
imported until it is asked for, so that a table's code digest covers its own kind only.
"""

import importlib
import inspect
from collections.abc import Callable

from fedlib.errors import ConfigError

KINDS = {
    "accuracy": "fedlib.tables.accuracy:build",
    "sweep": "fedlib.tables.sweep:build",
    "unseen": "fedlib.tables.unseen:build",
}


def load(kind: str) -> Callable:
    """The function that builds that kind of table; ConfigError with the choices if none does."""
    if kind not in KINDS:
        raise ConfigError(f"no table kind {kind!r}; choose from {', '.join(KINDS)}")
    module, _, attribute = KINDS[kind].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_params(kind: str, params: dict) -> None:
    """Nothing, if `params` are what that kind takes; ConfigError saying which they are if not."""
    signature = inspect.signature(load(kind))
    try:
        signature.bind("exhibit", "metrics", "clients", "published", **params)
    except TypeError as error:
        takes = ", ".join(list(signature.parameters)[4:]) or "none"
        raise ConfigError(f"table kind {kind}: {error}; its params are: {takes}") from None
