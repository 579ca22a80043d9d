"""MNIST whose clients have two shards of one class each; see `fedlib.data.two_shard`.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix), appendix F; specification section
  5.6.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.mnist_parts import NUM_CLASSES, read, sources
from fedlib.data.two_shard import TwoShard
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(raw: Path, *, seed: int, num_clients: int = 100, val_fraction: float = 0.1) -> Federation:
    """The federation, from the raw files below `raw`; all images are used.

    With the defaults a client has about 600 training images, of which it holds out 60, and about
    100 test images.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C, a multiple of five.
      val_fraction: of a client's training examples.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = TwoShard(num_clients)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
