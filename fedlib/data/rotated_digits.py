"""Digits whose clients see them turned by an angle of theirs; see `fedlib.data.rotated`.

For the demo.
"""

from collections.abc import Sequence
from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.data.rotated import Rotated
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 10,
    rotations: Sequence[int] = (0, 180),
    train_examples: int | None = None,
    test_examples: int | None = None,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.rotated_cifar10`, `raw` is not read.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Rotated(num_clients, rotations, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
