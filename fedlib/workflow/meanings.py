"""The meanings of source files for code digests, in a cache that a user's processes share.

Parsing all modules of a job takes longer than many jobs. A meaning depends on the bytes of the
file, its package and the parsing code, so an edit never gets an old meaning.
"""

import atexit
import hashlib
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.environment import cache_folder


class Meaning(NamedTuple):
    """The part of a source file that affects results.

    Attributes:
      digest: of its syntax tree.
      names: dotted names of this project in its imports, which may be modules.
    """

    digest: str
    names: tuple[str, ...]


class Meanings:
    """The cached meanings of files.

    Attributes:
      rules: the source file of the code that determines meanings.
    """

    def __init__(self, rules: Path):
        self._rules = [hashlib.sha256(rules.read_bytes()).hexdigest(), *sys.version_info[:2]]

    def of(self, source: bytes, package: str, find: Callable[[bytes, str], Meaning]) -> Meaning:
        """`find(source, package)`, from the cache if it was computed before."""
        facts = [*self._rules, package, hashlib.sha256(source).hexdigest()]
        digest, names = self._cache.find(facts, lambda: find(source, package))
        return Meaning(digest, tuple(names))

    def remember(self) -> None:
        """Save new meanings."""
        self._cache.write()

    @cached_property
    def _cache(self) -> seals.Cache:
        cache = seals.Cache(cache_folder() / "meanings.json")
        atexit.register(cache.write)
        return cache
