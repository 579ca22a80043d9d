"""A cache of the meanings of source files, for code digests.

Parsing all modules of a job takes longer than many jobs. A meaning depends on the bytes of the
file, its package and the parsing code, and these three are its key, so an edit never gets an old
meaning. The cache is sealed (`fedlib.seals`). If it is damaged or cannot be written, only time is
lost.
"""

import atexit
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.environment import cache_folder

REMEMBERED = 10_000  # files, of all checkouts and versions of a user; a checkout has some 300


class Meaning(NamedTuple):
    """The content of a source file that counts.

    Attributes:
      digest: of its syntax tree.
      names: dotted names of this project that it imports and that may be modules.
    """

    digest: str
    names: tuple[str, ...]


class Meanings:
    """The cached meanings of files.

    Attributes:
      rules: the source file of the code that finds meanings.
    """

    def __init__(self, rules: Path):
        self._rules = f"{hashlib.sha256(rules.read_bytes()).hexdigest()} {sys.version_info[:2]}"
        self._known: dict[str, list] | None = None
        self._new: dict[str, list] = {}

    def of(self, source: bytes, package: str, find: Callable[[bytes, str], Meaning]) -> Meaning:
        """`find(source, package)`, or what it was when it was asked before."""
        content = hashlib.sha256(source).hexdigest()
        key = hashlib.sha256(f"{self._rules} {package} {content}".encode()).hexdigest()
        if self._known is None:
            self._known = seals.remembered(_file())
        if key not in self._known:
            if not self._new:
                atexit.register(self.remember)
            found = find(source, package)
            self._known[key] = self._new[key] = [found.digest, list(found.names)]
        digest, names = self._known[key]
        return Meaning(digest, tuple(names))

    def remember(self) -> None:
        """Add what this process has found to the list, where that is possible."""
        if not self._new:
            return
        known = seals.remembered(_file())  # others may have added to it
        if len(known) + len(self._new) > REMEMBERED:
            known = {}
        seals.remember(_file(), known | self._new)
        self._new = {}


def _file() -> Path:
    return cache_folder() / "meanings.json"
