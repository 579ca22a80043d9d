"""CIFAR-10 whose clients have permuted labels; see `fedlib.data.permuted`.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); specification section 5.5.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.cifar10_parts import NUM_CLASSES, read, sources
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
    """The federation, from the raw files below `raw`; for the other parameters see `Permuted`.

    With the defaults a client has 2,500 training and 2,000 test images, and the shards take 0.3 GB:
    a test image is stored once per cluster.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C.
      num_clusters: permutations.
      assignment: "balanced" or "iid".
      train_examples, test_examples: of each client; None deals all images.
      val_fraction: of a client's training examples; FedMix mentions none.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Permuted(num_clients, num_clusters, assignment, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
