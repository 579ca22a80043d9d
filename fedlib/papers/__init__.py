"""The papers: one package each, whose `declare(scale)` returns a `fedlib.spec.Paper`.

A package has `settings` (the meaning of each label, and hyper-parameters), `federations` (data sets
and partitions; short ones are in `scales`), `scales` (the labels that run on each federation),
`exhibits` (its tables and figures), `criteria.csv` (acceptance criteria of a reproduction;
`criteria` says which runs and numbers they are about), `published.csv` (the paper's numbers),
`citation.bib` and `README.md` (its specification). To add a paper, write such a package, or one
file, `fedlib/papers/<name>.py`. A package is imported only when it is used.
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
    """All papers: first those with published numbers, then the others, both sorted.

    Modules whose names start with an underscore are helpers.
    """
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    found = sorted(name for name in modules if not name.startswith("_"))
    return tuple(sorted(found, key=lambda name: not _numbers_file(name).is_file()))


def load(name: str) -> ModuleType:
    """The module of the paper `name`.

    Raises:
      ConfigError: for an unknown name, with the choices; or for a module that is not Python, cannot
        be imported or has no `declare`.
    """
    if name not in names():
        raise ConfigError(f"unknown paper {name!r}; known: {', '.join(names())}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except Exception as error:  # a user's file may raise any
        raise of_file(error, *_file(name)) from error
    if not callable(getattr(module, "declare", None)):
        _, named = _file(name)
        raise ConfigError(f"{named} has no function declare(scale), which returns its Paper")
    return module


def bibtex(name: str) -> str:
    """The paper's `citation.bib`; "" if there is none."""
    file = resources.files(__name__) / name / "citation.bib"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def count_printed(name: str) -> int:
    """Number of percentages, mostly accuracies, in `published.csv`; 0 without the file."""
    if not (file := _numbers_file(name)).is_file():
        return 0
    with file.open(encoding="utf-8") as lines:
        return sum(row["unit"] == "percent" for row in csv.DictReader(lines))


def declare(name: str, scale: str) -> Paper:
    """The paper `name` at a scale; raises as `load`, and for a declaration that fails."""
    module = load(name)
    try:
        return module.declare(scale)
    except ConfigError:
        raise
    except Exception as error:
        raise of_file(error, *_file(name)) from error


def _numbers_file(name: str) -> Traversable:
    """The file of a paper's published numbers, which may not exist."""
    return resources.files(__name__) / name / "published.csv"


def _file(name: str) -> tuple[str, str]:
    """The file of a paper, and its name in messages."""
    found = importlib.util.find_spec(f"{__name__}.{name}")
    inner = "/__init__" if found.submodule_search_locations else ""
    return found.origin, f"fedlib/papers/{name}{inner}.py"
