"""How often faults are provoked: briefly by `make test`, at length by `make test-long`."""

import os
from pathlib import Path

import pytest

from fedlib import seals

LONG = os.environ.get("FEDLIB_FAULTS") == "long"
at_length = pytest.mark.skipif(not LONG, reason="a test of `make test-long`")


def often(briefly: int, at_length: int) -> int:
    """How often something is provoked."""
    return at_length if LONG else briefly


def said(file: Path) -> bytes:
    """A file without the digests of its inputs, some of which tell how long their jobs took."""
    return seals._MADE.sub(b"", seals._SEAL.sub(b"", file.read_bytes()))
