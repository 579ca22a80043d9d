"""CIFAR-10 whose clients have two majority classes each; see `fedlib.data.majority`.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832), Table 2; specification section 4.1.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.cifar10_parts import NUM_CLASSES, read, sources
from fedlib.data.majority import Majority
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    p: float,
    seed: int,
    num_clients: int = 50,
    train_examples: int = 500,
    test_examples: int = 100,
    val_fraction: float = 0.0,
    unseen_fraction: float = 0.0,
) -> Federation:
    """The federation, from the raw files below `raw`; for the other parameters see `Majority`.

    Args:
      raw: folder of raw files.
      p: fraction of the majority classes.
      seed: of every draw.
      num_clients: C. The paper does not say; the official configurations have 20 and 50.
      train_examples, test_examples: of each client.
      val_fraction: of a client's training examples.
      unseen_fraction: of the clients.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Majority(num_clients, p, train_examples, test_examples, unseen_fraction)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
