"""The CNN of IFCA for rotated CIFAR-10, as in Adaptive Expert Models (798,752 parameters).

Source: EricssonResearch/fl-moe, after A. Ghosh et al., "An Efficient Framework for Clustered
  Federated Learning", NeurIPS 2020 (jichan3751/ifca); the README of Adaptive Expert Models, section
  5.2.
Deviation: the first ReLU follows the pooling, which is the same function. The second one precedes
  the normalisation, because there the order matters.
"""

from torch import nn

from fedlib.models.layers.conv import KERNEL, LocalResponse, convolution, side_after
from fedlib.models.layers.fast import MaxPool2d
from fedlib.models.layers.initialise import initialise
from fedlib.models.layers.network import Network
from fedlib.models.layers.random import Dropout

WINDOW = {"size": 4, "alpha": 0.001 / 9, "beta": 0.75}  # of local responses


def build(
    num_classes: int,
    dropout: float,
    conv1: int = 64,
    conv2: int = 64,
    hidden1: int = 384,
    hidden2: int = 194,
    in_channels: int = 3,
    side: int = 32,
    logit_relu: bool = False,
) -> nn.Module:
    """Two normalised convolutions and two hidden layers | Linear, and with `logit_relu` ReLU.

    Dropout is between the hidden layers.

    Args:
      num_classes: L.
      dropout: dropped share of the first hidden layer.
      conv1, conv2: channels of the convolutions.
      hidden1, hidden2: units of the hidden layers.
      in_channels, side: of an image.
      logit_relu: whether logits below 0 become 0, as in the official code (not in the paper).
    """
    body = [
        *convolution(in_channels, conv1, padding=0),  # [B, conv1, 14, 14]
        LocalResponse(**WINDOW),
        nn.Conv2d(conv1, conv2, KERNEL),  # [B, conv2, 10, 10]
        nn.ReLU(),
        LocalResponse(**WINDOW),
        MaxPool2d(2),
        nn.Flatten(),  # [B, conv2 * 5 * 5] for images of 32 x 32 pixels
        nn.Linear(conv2 * side_after(side, padding=0) ** 2, hidden1),
        nn.ReLU(),
        Dropout(dropout),
        nn.Linear(hidden1, hidden2),
        nn.ReLU(),
    ]
    last = nn.ReLU() if logit_relu else nn.Identity()
    return initialise(Network(body, nn.Sequential(nn.Linear(hidden2, num_classes), last)))
