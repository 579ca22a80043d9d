"""Kinds of tables and figures: functions (exhibit, metrics, clients, published, **params).

What the lazy registries of `fedlib.report.tables` and `fedlib.report.figures` have in common.
"""

import importlib
import inspect
from collections.abc import Callable

from fedlib.errors import ConfigError


def load(kinds: dict[str, str], kind: str, what: str) -> Callable:
    """The function of `kind` in a registry of "module:attribute".

    Raises:
      ConfigError: if there is none; names `what` it is a kind of, and the choices.
    """
    if kind not in kinds:
        raise ConfigError(f"no {what} kind {kind!r}; choose from {', '.join(kinds)}")
    module, _, attribute = kinds[kind].partition(":")
    return getattr(importlib.import_module(module), attribute)


def check_params(function: Callable, params: dict, name: str) -> None:
    """Nothing, if `params` are what `function` takes.

    Raises:
      ConfigError: with the kind's `name` and the params that it takes, if they are not.
    """
    signature = inspect.signature(function)
    try:
        signature.bind("exhibit", "metrics", "clients", "published", **params)
    except TypeError as error:
        takes = ", ".join(list(signature.parameters)[4:]) or "none"
        raise ConfigError(f"{name}: {error}; its params are: {takes}") from None
