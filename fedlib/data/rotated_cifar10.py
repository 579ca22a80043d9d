"""CIFAR-10 whose clients see the images turned by an angle of theirs; see `fedlib.data.rotated`.

Source: A. Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020,
  as used in Isaksson et al., FL-IJCAI 2022 (arXiv:2206.07832); specification section 4.2.
"""

from collections.abc import Sequence
from pathlib import Path

from fedlib.data import official
from fedlib.data.cifar10_parts import NUM_CLASSES, read, sources
from fedlib.data.rotated import Rotated
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 200,
    rotations: Sequence[int] = (0, 180),
    train_examples: int | None = None,
    test_examples: int | None = None,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation, from the raw files below `raw`; for the other parameters see `Rotated`.

    With the defaults a client has 500 training and 100 test images, with four rotations twice as
    many. An image is stored once per rotation: 0.4 GB for two of them, 0.7 GB for four.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C.
      rotations: angles in degrees.
      train_examples, test_examples: of each client; None deals all images.
      val_fraction: of a client's training examples.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Rotated(num_clients, rotations, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
