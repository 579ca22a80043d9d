"""How often faults are provoked: briefly with all tests, at length with `make test-faults`."""

import os

LONG = os.environ.get("FEDLIB_FAULTS") == "long"


def often(briefly: int, at_length: int) -> int:
    """How often something is provoked."""
    return at_length if LONG else briefly
