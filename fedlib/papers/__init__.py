"""The papers: one package each, whose `declare(scale)` returns a `fedlib.spec.Paper`.

A package has `settings` (what its runs are), `scales` (what is run at each scale; where that is
long, `federations` has on what), `exhibits` (its tables and figures), `criteria` (what a
reproduction is to show), `published.csv` (the numbers that the paper prints), `citation.bib` and
`README.md` (its specification). To add a paper, write such a package, or one file,
`fedlib/papers/<name>.py`. Nothing is imported here before it is asked for.
"""

import csv
import importlib.util
import pkgutil
from importlib import resources
from importlib.resources.abc import Traversable
from types import ModuleType

from fedlib.errors import ConfigError, of_file
from fedlib.spec import Paper


def names() -> tuple[str, ...]:
    """The papers there are: those whose printed numbers are here, then the others; both sorted.

    What starts with an underscore is a helper.
    """
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    found = sorted(name for name in modules if not name.startswith("_"))
    return tuple(sorted(found, key=lambda name: not _printed(name).is_file()))


def load(name: str) -> ModuleType:
    """The module of the paper called `name`.

    Raises:
      ConfigError: if there is none, with the choices; or for one that is not Python, cannot be
        imported or declares nothing.
    """
    if name not in names():
        raise ConfigError(f"unknown paper {name!r}; known: {', '.join(names())}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # whatever a user's file may raise
        raise of_file(error, *_file(name)) from error
    if not callable(getattr(module, "declare", None)):
        _, named = _file(name)
        raise ConfigError(f"{named} has no function declare(scale), which returns its Paper")
    return module


def bibtex(name: str) -> str:
    """How to cite a paper, `citation.bib` beside its declaration; "" if there is none."""
    file = resources.files(__name__) / name / "citation.bib"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def num_printed(name: str) -> int:
    """How many shares in percent, accuracies mostly, `published.csv` has; 0 without the file."""
    file = _printed(name)
    if not file.is_file():
        return 0
    with file.open(encoding="utf-8") as lines:
        return sum(row["unit"] == "percent" for row in csv.DictReader(lines))


def declared(name: str, scale: str) -> Paper:
    """The paper called `name` at a scale; raises as `load`, and for a declaration that fails."""
    module = load(name)
    try:
        return module.declare(scale)
    except ConfigError:
        raise
    except Exception as error:
        raise of_file(error, *_file(name)) from error


def _printed(name: str) -> Traversable:
    """The file of the numbers that a paper prints, which may not be there."""
    return resources.files(__name__) / name / "published.csv"


def _file(name: str) -> tuple[str, str]:
    """The file of a paper, and how messages call it."""
    found = importlib.util.find_spec(f"{__name__}.{name}")
    inner = "/__init__" if found.submodule_search_locations else ""
    return found.origin, f"fedlib/papers/{name}{inner}.py"
