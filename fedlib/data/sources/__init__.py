"""Data sets by name; each is a module of this folder that reads raw files.

A module has `NUM_CLASSES`, None if the files decide; `HAS`, the `fedlib.data.examples.FEATURES` of
its examples, or a dict of these by source; and `read(raw, **params)`, which returns `Examples`. If
examples are drawn, `read` takes the federation's `seed`. The raw files are listed in
`fedlib.data.downloads`, and depend only on the parameter `source`.

A module is imported only when it is used, so that the code digest of a job contains no other data
set.
"""

import importlib
from pathlib import Path
from types import ModuleType

from fedlib.data import downloads
from fedlib.data.checks import check_choice
from fedlib.files import modules

NAMES = modules(Path(__file__).parent)


def load(name: object) -> ModuleType:
    """The module of a data set.

    Raises:
      ConfigError: for an unknown name.
    """
    check_choice("data set", name, NAMES)
    return importlib.import_module(f"fedlib.data.sources.{name}")


def has(name: str, source: str | None = None) -> tuple[str, ...]:
    """The features of a data set's examples; `source` None is its default.

    Raises:
      ConfigError: for a source that the data set does not have.
    """
    found = load(name).HAS
    downloads.files(name, source)
    return found[source or downloads.table(name).default] if isinstance(found, dict) else found
