"""Digits whose clients have classes of a Dirichlet distribution; see `fedlib.data.hsu`.

For the demo.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.data.hsu import Hsu
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 20,
    alpha: float = 1.0,
    convention: str = "prior",
    train_examples: int = 60,
    test_examples: int = 20,
    val_fraction: float = 0.1,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.hsu_cifar10`, `raw` is not read.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Hsu(num_clients, alpha, convention, train_examples, test_examples, unseen_fraction)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
