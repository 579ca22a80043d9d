"""CIFAR-10 whose clients have classes of a Dirichlet distribution; see `fedlib.data.hsu`.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); specification section 5.1.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.cifar10_parts import NUM_CLASSES, read, sources
from fedlib.data.hsu import Hsu
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 100,
    alpha: float = 1.0,
    convention: str = "prior",
    train_examples: int = 500,
    test_examples: int = 100,
    val_fraction: float = 0.1,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation, from the raw files below `raw`; for the other parameters see `Hsu`.

    With the defaults all images are used, and a client trains on 450, validates on 50 and is tested
    on 100 of them.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C.
      alpha, convention: of the Dirichlet distribution.
      train_examples, test_examples: of each client, validation included in the former.
      val_fraction: of a client's training examples.
      unseen_fraction: see `Hsu`.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Hsu(num_clients, alpha, convention, train_examples, test_examples, unseen_fraction)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
