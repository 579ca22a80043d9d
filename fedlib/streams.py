"""Named random streams: every draw is a function of (seed, round, purpose, client).

There is no global state, so a draw does not depend on earlier draws, the order of the cohort or the
executor.
"""

import zlib

import numpy as np


def entropy(*names: int | str) -> list[int]:
    """The integers that name a stream; a word becomes its CRC-32."""
    return [zlib.crc32(name.encode()) if isinstance(name, str) else int(name) for name in names]


def generator(*names: int | str) -> np.random.Generator:
    """The generator of the stream called `names`, at its beginning."""
    numbers = entropy(*names)
    if all(0 <= number < 2**32 for number in numbers):  # same stream, in a quarter of the time
        numbers = np.array(numbers, np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))


def keys(count: int, *names: int | str) -> np.ndarray:
    """`count` independent 63-bit keys of the stream called `names` -> [count] int64"""
    return generator(*names).integers(0, 2**63, size=count, dtype=np.int64)
