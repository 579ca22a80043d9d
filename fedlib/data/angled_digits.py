"""Digits turned by angles of which each client has its own distribution; see `fedlib.data.angled`.

For the demo.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.angled import Angled
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 20,
    alpha: float = 1.0,
    convention: str = "prior",
    label_alpha: float | None = None,
    train_examples: int = 60,
    test_examples: int = 20,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation; parameters as of `fedlib.data.angled_mnist`, `raw` is not read.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = Angled(num_clients, alpha, convention, label_alpha, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
