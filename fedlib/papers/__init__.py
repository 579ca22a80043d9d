"""The papers: one module each, whose `declare(scale)` returns a `fedlib.spec.Paper`.

To add a paper, write `fedlib/papers/<name>.py`; its name is its module's. Nothing is imported here
before it is asked for.
"""

import importlib
import pkgutil
from types import ModuleType

from fedlib.errors import ConfigError


def names() -> tuple[str, ...]:
    """The papers there are, sorted; modules that start with an underscore are helpers."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in modules if not name.startswith("_")))


def load(name: str) -> ModuleType:
    """The module of the paper called `name`.

    Raises:
      ConfigError: if there is none; the message lists the choices.
    """
    if name not in names():
        raise ConfigError(f"unknown paper {name!r}; known: {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")
