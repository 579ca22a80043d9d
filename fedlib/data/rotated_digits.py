"""Digits whose clients see them turned by an angle of theirs; see `fedlib.data.rotated`.

For the demo.
"""

from collections.abc import Sequence
from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import MEAN, NUM_CLASSES, STD, read
from fedlib.data.raw import RawFile
from fedlib.data.rotated import Rotated
from fedlib.federation import Federation


def sources(**params: object) -> tuple[RawFile, ...]:
    """No raw files."""
    return ()


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
    x, y, num_train = read()
    owners = partition.owners(len(y), num_train, seed)
    return official.federation(
        *partition.pool(x, y),
        owners,
        num_classes=NUM_CLASSES,
        val_fraction=val_fraction,
        seed=seed,
        mean=MEAN,
        std=STD,
    )
