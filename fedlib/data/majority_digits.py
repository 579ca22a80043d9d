"""Digits whose clients have two majority classes each; see `fedlib.data.majority`. For the demo."""

from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.data.majority import Majority
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    p: float,
    seed: int,
    num_clients: int = 10,
    train_examples: int = 24,
    test_examples: int = 8,
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.majority_cifar10`, `raw` is not read.

    The defaults are the largest for which p may be 1: class 0 is a majority class of all ten.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Majority(num_clients, p, train_examples, test_examples, unseen_fraction)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
