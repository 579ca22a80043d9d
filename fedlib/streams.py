"""Named random streams: every draw is a function of (seed, round, purpose, client).

There is no global state, so a draw does not depend on earlier draws, the order of the cohort or the
executor.
"""

import zlib
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.random.bit_generator import ISeedSequence

# Of NumPy's SeedSequence, whose results never change between versions: see `_states`.
POOL = 4
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
SHIFT = np.uint32(16)


def entropy(*names: int | str) -> list[int]:
    """The integers that name a stream; a word becomes its CRC-32."""
    return [zlib.crc32(name.encode()) if isinstance(name, str) else int(name) for name in names]


def generator(*names: int | str) -> np.random.Generator:
    """The generator of the stream called `names`, at its beginning."""
    numbers = entropy(*names)
    if all(0 <= number < 2**32 for number in numbers):  # same stream, in a quarter of the time
        numbers = np.array(numbers, np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))


def generators(*names: int | str, each: Sequence[int]) -> list[np.random.Generator]:
    """`[generator(*names, number) for number in each]`, in a third of the time."""
    numbers = entropy(*names)
    if not all(0 <= number < 2**32 for number in [*numbers, *each]):
        return [generator(*names, number) for number in each]
    words = np.empty((len(each), len(numbers) + 1), np.uint32)
    words[:, :-1], words[:, -1] = numbers, each
    return [np.random.Generator(np.random.PCG64(_Seeds(state))) for state in _states(words)]


def keys(count: int, *names: int | str) -> np.ndarray:
    """`count` independent 63-bit keys of the stream called `names` -> [count] int64"""
    return generator(*names).integers(0, 2**63, size=count, dtype=np.int64)


class _Seeds(ISeedSequence):
    """Seeds of a PCG64 that are computed already."""

    def __init__(self, state: np.ndarray):
        self._state = state

    def generate_state(self, n_words: int, dtype: type = np.uint32) -> np.ndarray:
        """See `ISeedSequence`; a PCG64 asks for four words of 64 bits."""
        return self._state


def _states(words: np.ndarray) -> np.ndarray:
    """`SeedSequence(row).generate_state(4, np.uint64)` of every row, [C, n] uint32 -> [C, 4]

    Source: M. O'Neill, "Developing a seed_seq Alternative", 2015, as NumPy documents it.
    """
    hashed = _Hash(INIT_A, MULT_A)
    columns = [*words.T, *np.zeros((POOL, len(words)), np.uint32)]
    pool = [hashed(column) for column in columns[:POOL]]
    for source, target in permutations(range(POOL), 2):
        pool[target] = _mix(pool[target], hashed(pool[source]))
    for column in words.T[POOL:]:
        pool = [_mix(target, hashed(column)) for target in pool]
    hashed = _Hash(INIT_B, MULT_B)
    return np.stack([hashed(column) for column in 2 * pool], axis=1).view(np.uint64)


class _Hash:
    """A hash of numbers of 32 bits, which is another one in each call."""

    def __init__(self, first: int, factor: int):
        self._constant, self._factor = first, factor

    def __call__(self, values: np.ndarray) -> np.ndarray:
        before = np.uint32(self._constant)
        self._constant = self._constant * self._factor % 2**32
        values = (values ^ before) * np.uint32(self._constant)
        return values ^ (values >> SHIFT)


def _mix(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    values = MIX_LEFT * left - MIX_RIGHT * right
    return values ^ (values >> SHIFT)
