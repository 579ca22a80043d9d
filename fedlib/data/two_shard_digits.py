"""Digits whose clients have two shards of one class each; see `fedlib.data.two_shard`.

For the demo.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.digits_parts import NUM_CLASSES, read, sources
from fedlib.data.two_shard import TwoShard
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(raw: Path, *, seed: int, num_clients: int = 20, val_fraction: float = 0.1) -> Federation:
    """The federation; parameters as of `fedlib.data.two_shard_mnist`, `raw` is not read.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    partition = TwoShard(num_clients)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
