"""Data sets by name, each a module that reads raw files.

A module has `NUM_CLASSES`, None where files decide; `HAS`, which says what of
`fedlib.data.examples.FEATURES` its examples come with, for each source where these differ; and
`read(raw, **params)`, which gives the `Examples`. If examples are drawn, `read` takes the
federation's `seed`. Its raw files are in `fedlib.data.downloads`, and depend on its parameter
`source` alone.

Nothing is imported before it is asked for, so that the code digest of a job contains only the data
set it uses.
"""

import importlib
from types import ModuleType

from fedlib.data import downloads
from fedlib.data.checks import check_choice

NAMES = (
    "cifar10",
    "cifar100",
    "digits",
    "emnist",
    "femnist",
    "mnist",
    "own",
    "sent140",
    "shakespeare",
    "synthetic",
    "synthetic_text",
    "worlds",
    "yelp",
)


def load(name: object) -> ModuleType:
    """The module of a data set.

    Raises:
      ConfigError: if there is none of that name.
    """
    check_choice("data set", name, NAMES)
    return importlib.import_module(f"fedlib.data.sources.{name}")


def has(name: str, source: str | None = None) -> tuple[str, ...]:
    """What the examples of a data set come with; `source` None is its default.

    Raises:
      ConfigError: for a source that the data set does not have.
    """
    found = load(name).HAS
    downloads.files(name, source)
    return found[source or downloads.table(name).default] if isinstance(found, dict) else found


def having(*features: str) -> list[str]:
    """Every data set, or "data set:source", whose examples come with all of these."""
    choices = []
    for name in NAMES:
        for source in downloads.table(name).sources or [None]:
            if set(features) <= set(has(name, source)):
                choices.append(f"{name}:{source}" if source else name)
    return choices
