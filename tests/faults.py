"""How often faults are provoked, and how large: briefly with all tests, or at length.

At length it is with `make test-faults` and `make test-large`.
"""

import os
from pathlib import Path

from fedlib import seals

LONG = os.environ.get("FEDLIB_FAULTS") == "long"


def often(briefly: int, at_length: int) -> int:
    """How often something is provoked."""
    return at_length if LONG else briefly


def said(file: Path) -> bytes:
    """A file without the digests of its inputs, some of which tell how long their jobs took."""
    return seals._MADE.sub(b"", seals._SEAL.sub(b"", file.read_bytes()))
