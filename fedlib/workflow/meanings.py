"""The meanings of source files for code digests, in a cache that a user's processes share.

Parsing all modules of a job takes longer than many jobs. A meaning depends on the bytes of the
file, its package and the parsing code, so an edit never gets an old meaning.
"""

import atexit
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from fedlib import seals
from fedlib.environment import cache_folder


class Meaning(NamedTuple):
    """The part of a source file that affects results.

    Attributes:
      digest: of its syntax tree.
      names: dotted names in its imports, which may be modules.
    """

    digest: str
    names: tuple[str, ...]


def meaning(
    source: bytes, package: str, rules: str, find: Callable[[bytes, str], Meaning]
) -> Meaning:
    """`find(source, package)`, from the cache if it was computed before.

    Args:
      rules: digest of the code of `find`.
    """
    facts = [rules, *sys.version_info[:2], package, hashlib.sha256(source).hexdigest()]
    digest, names = known().find(facts, lambda: find(source, package))
    return Meaning(digest, tuple(names))


@cache
def known() -> seals.Cache:
    """The cache, which is also written when the process ends."""
    found = seals.Cache(cache_folder() / "meanings.json")
    atexit.register(found.write)
    return found
