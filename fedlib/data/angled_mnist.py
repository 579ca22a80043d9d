"""MNIST turned by angles of which each client has its own distribution; see `fedlib.data.angled`.

Source: Reisser et al., "Federated Mixture of Experts" (FedMix); specification section 5.4.
"""

from pathlib import Path

from fedlib.data import official
from fedlib.data.angled import Angled
from fedlib.data.mnist_parts import NUM_CLASSES, read, sources
from fedlib.federation import Federation

__all__ = ["NUM_CLASSES", "build", "sources"]


def build(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 100,
    alpha: float = 1.0,
    convention: str = "prior",
    label_alpha: float | None = None,
    train_examples: int = 600,
    test_examples: int = 100,
    val_fraction: float = 0.0,
) -> Federation:
    """The federation, from the raw files below `raw`; for the other parameters see `Angled`.

    With the defaults all images are used.

    Args:
      raw: folder of raw files.
      seed: of every draw.
      num_clients: C.
      alpha, convention: of the distributions over angles.
      label_alpha: of distributions over classes; None for none.
      train_examples, test_examples: of each client, validation included in the former.
      val_fraction: of a client's training examples; FedMix mentions none.

    Raises:
      ConfigError: for a value that makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    partition = Angled(num_clients, alpha, convention, label_alpha, train_examples, test_examples)
    official.check_draws(val_fraction, seed)
    return partition.federation(read(raw), val_fraction=val_fraction, seed=seed)
