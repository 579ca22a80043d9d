"""Memory that tensors on a CPU free stays with the process.

By default glibc gives every block of more than 32 MiB back to the system, which clears all its
pages before the next tensor has them. Steps of 160 clients at once, and convolutions of wide
networks, spent a third of their time on it.
"""

import ctypes

# Options of mallopt by their numbers in malloc.h: bytes that are free before some are given back,
# bytes to ask for at a time, blocks outside of the heap, heaps for threads.
OPTIONS = {-1: 2**31 - 1, -2: 2**26, -4: 0, -8: 1}


def keep() -> None:
    """Keep freed memory from now on; with another C library than glibc, nothing changes."""
    option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    for number, value in OPTIONS.items():
        option(number, value)
