"""A perceptron with one or more hidden layers.

With 64 hidden units it suits scikit-learn's handwritten digits; with two layers of 200 it is the
model of FedMix for MNIST (199,210 parameters; FedMix's README, section 6).
"""

from collections.abc import Sequence

from torch import nn

from fedlib.errors import ConfigError
from fedlib.models.layers.network import Network


def dense_relu(inputs: int, hidden: Sequence[int]) -> list[nn.Module]:
    """Linear and ReLU for each number of units in `hidden`: [B, inputs] -> [B, hidden[-1]]

    Raises:
      ConfigError: if there is no hidden layer.
    """
    if not hidden:
        raise ConfigError(f"hidden must name at least one layer, got {hidden!r}")
    layers = []
    for outputs in hidden:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        inputs = outputs
    return layers


def build(in_features: int, hidden: int | Sequence[int], num_classes: int) -> nn.Module:
    """Flatten, then Linear and ReLU for each hidden layer | Linear, initialised as in torch.

    Args:
      in_features: numbers in an input of any shape.
      hidden: units of the hidden layer, or of each of several.
      num_classes: L.

    Raises:
      ConfigError: if there is no hidden layer, which is the model `linear`.
    """
    hidden = [hidden] if isinstance(hidden, int) else hidden
    body = [nn.Flatten(), *dense_relu(in_features, hidden)]
    return Network(body, nn.Linear(hidden[-1], num_classes))
