"""How often faults are provoked: briefly with all tests, at length with `make test-faults`."""

import os
import sys
from pathlib import Path

LONG = os.environ.get("FEDLIB_FAULTS") == "long"

# What the other tests share.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def often(briefly: int, at_length: int) -> int:
    """How often something is provoked."""
    return at_length if LONG else briefly
