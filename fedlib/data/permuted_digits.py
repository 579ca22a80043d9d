"""Digits whose clients have permuted labels; see `fedlib.data.permuted`. For the demo."""

from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.data.permuted import Permuted
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 20,
    num_clusters: int = 4,
    assignment: str = "balanced",
    train_examples: int | None = None,
    test_examples: int | None = None,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.permuted_cifar10`, `raw` is not read.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Permuted(num_clients, num_clusters, assignment, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
