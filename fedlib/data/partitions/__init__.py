"""Partitions by kind: each is a module of this folder with a frozen dataclass, its parameters.

The class is called like the module: PathLine in path_line.py.
A module is imported only when it is used, so that the code digest of a job contains no other
partition.
"""

import importlib
from pathlib import Path
from typing import ClassVar, Protocol

from fedlib.data.checks import check_choice, check_names
from fedlib.data.examples import Dealt, Examples
from fedlib.errors import ConfigError
from fedlib.files import modules

PARTITIONS = modules(Path(__file__).parent)


class Partition(Protocol):
    """Deals a data set to clients; its fields are its parameters, checked on construction.

    Attributes:
      needs: keys of `fedlib.data.examples.FEATURES` that the data set must have.
    """

    needs: ClassVar[tuple[str, ...]]

    def deal(self, examples: Examples, seed: int) -> Dealt:
        """The clients' training, validation and test examples, and the group of each client."""


def kind_of(declared: object) -> str:
    """The kind of a declared partition.

    Raises:
      ConfigError: for an unknown kind, or if `declared` is no declaration.
    """
    kind = declared.get("kind") if isinstance(declared, dict) else declared
    check_choice("partition kind", kind, PARTITIONS)
    if not isinstance(declared, dict):
        raise ConfigError(f"a partition is declared as {{'kind': {kind!r}, ...}}, got {kind!r}")
    return kind


def load(kind: str) -> type[Partition]:
    """The class of a kind of partition."""
    module = importlib.import_module(f"fedlib.data.partitions.{kind}")
    return getattr(module, kind.title().replace("_", ""))


def parse(declared: dict) -> Partition:
    """The partition declared as {"kind": ..., parameter: value, ...}.

    Raises:
      ConfigError: for an unknown kind, or an unknown, missing or invalid parameter.
    """
    kind = kind_of(declared)
    cls = load(kind)
    params = {name: value for name, value in declared.items() if name != "kind"}
    check_names(f"partition {kind}", params, cls)
    return cls(**params)
