"""Damaged copies of a file: cut, and with bits flipped, at places drawn from a seed."""

import random
from collections.abc import Iterator


def damaged(content: bytes, cuts: int, flips: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Kind of damage and the damaged content: `cuts` truncations, then `flips` flipped bytes.

    Among the cuts are the empty file and the one that lacks its last byte.
    """
    draw = random.Random(seed)
    lengths = [0, len(content) - 1, *(draw.randrange(len(content)) for _ in range(cuts))][:cuts]
    for length in lengths:
        yield "truncated", content[:length]
    for _ in range(flips):
        changed = bytearray(content)
        changed[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        yield "flipped", bytes(changed)
