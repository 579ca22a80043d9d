"""How often faults are provoked, and how large: briefly with all tests, or at length.

At length it is with `make test-faults` and `make test-large`.
"""

import os

LONG = os.environ.get("FEDLIB_FAULTS") == "long"


def often(briefly: int, at_length: int) -> int:
    """How often something is provoked."""
    return at_length if LONG else briefly
