"""Digits whose clients have two majority classes each; see `fedlib.data.majority`. For the demo."""

from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import MEAN, NUM_CLASSES, STD, read
from fedlib.data.majority import Majority
from fedlib.data.raw import RawFile
from fedlib.federation import Federation


def sources(**params: object) -> tuple[RawFile, ...]:
    """No raw files."""
    return ()


def build(
    raw: Path,
    *,
    p: float,
    seed: int,
    num_clients: int = 10,
    train_examples: int = 24,
    test_examples: int = 8,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.majority_cifar10`, `raw` is not read.

    The defaults are the largest for which p may be 1: class 0 is a majority class of all ten.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Majority(num_clients, p, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    x, y, num_train = read()
    return official.federation(
        x,
        y,
        partition.owners(y, num_train, seed),
        num_classes=NUM_CLASSES,
        val_fraction=val_fraction,
        seed=seed,
        mean=MEAN,
        std=STD,
    )
