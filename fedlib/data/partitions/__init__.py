"""Partitions by kind: each is a module with a frozen dataclass whose fields are its parameters.

A module is imported only when it is used, so that the code digest of a job contains no other
partition.
"""

import importlib
from dataclasses import MISSING, fields
from typing import ClassVar, Protocol

from fedlib.data.checks import check_choice
from fedlib.data.examples import Dealt, Examples
from fedlib.errors import ConfigError

PARTITIONS = {
    "angled": "Angled",
    "dirichlet": "Dirichlet",
    "hierarchical": "Hierarchical",
    "hsu": "Hsu",
    "iid": "Iid",
    "majority": "Majority",
    "natural": "Natural",
    "pachinko": "Pachinko",
    "path_dir": "PathDir",
    "path_line": "PathLine",
    "pathological": "Pathological",
    "permuted": "Permuted",
    "quantity": "Quantity",
    "rotated": "Rotated",
    "server_dirichlet": "ServerDirichlet",
    "server_equal": "ServerEqual",
    "server_majority": "ServerMajority",
    "two_shard": "TwoShard",
    "writer": "Writer",
    "writer_groups": "WriterGroups",
    "writer_parts": "WriterParts",
}


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
    return getattr(importlib.import_module(f"fedlib.data.partitions.{kind}"), PARTITIONS[kind])


def parse(declared: dict) -> Partition:
    """The partition declared as {"kind": ..., parameter: value, ...}.

    Raises:
      ConfigError: for an unknown kind, or an unknown, missing or invalid parameter.
    """
    kind = kind_of(declared)
    cls = load(kind)
    params = {name: value for name, value in declared.items() if name != "kind"}
    own_first = sorted(fields(cls), key=lambda field: field.kw_only)
    known = [field.name for field in own_first]
    required = [f.name for f in own_first if f.default is MISSING and f.default_factory is MISSING]
    for name in [*params, *required]:
        if name not in known or name not in params:
            problem = "has no parameter" if name not in known else "needs the parameter"
            raise ConfigError(f"partition {kind} {problem} {name!r}; it takes {', '.join(known)}")
    return cls(**params)
