"""The papers: one module each, whose `declare(scale)` returns a `fedlib.spec.Paper`.

To add a paper, write `fedlib/papers/<name>.py`; its name is its module's. Nothing is imported here
before it is asked for.
"""

import importlib.util
import pkgutil
from types import ModuleType

from fedlib.errors import ConfigError, of_file
from fedlib.spec import Paper


def names() -> tuple[str, ...]:
    """The papers there are, sorted; modules that start with an underscore are helpers."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in modules if not name.startswith("_")))


def load(name: str) -> ModuleType:
    """The module of the paper called `name`.

    Raises:
      ConfigError: if there is none, with the choices; or for one that is not Python, cannot be
        imported or declares nothing.
    """
    if name not in names():
        raise ConfigError(f"unknown paper {name!r}; known: {', '.join(names())}")
    named = f"fedlib/papers/{name}.py"
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # whatever a user's file may raise
        raise of_file(error, _path(name), named) from error
    if not callable(getattr(module, "declare", None)):
        raise ConfigError(f"{named} has no function declare(scale), which returns its Paper")
    return module


def declared(name: str, scale: str) -> Paper:
    """The paper called `name` at a scale; raises as `load`, and for a declaration that fails."""
    module = load(name)
    try:
        return module.declare(scale)
    except ConfigError:
        raise
    except Exception as error:
        raise of_file(error, _path(name), f"fedlib/papers/{name}.py") from error


def _path(name: str) -> str:
    """The file of a paper."""
    found = importlib.util.find_spec(f"{__name__}.{name}")
    return found.origin
