"""The CNN of LEAF with tuned widths: global and local experts of Adaptive Expert Models.

942,634 parameters as the global expert of CIFAR-10, 1,848,714 as its local one, 2,278,334 on
FEMNIST.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832), Table 1; EricssonResearch/fl-moe;
  the README of Adaptive Expert Models, section 5.1.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements.
"""

from torch import nn

from fedlib.models.layers.conv import classifier, two_convolutions
from fedlib.models.layers.initialise import initialise
from fedlib.models.layers.network import Network


def build(
    num_classes: int,
    conv1: int,
    conv2: int,
    hidden: int,
    dropout: float,
    in_channels: int = 3,
    side: int = 32,
    padding: int = 0,
    logit_relu: bool = False,
) -> nn.Module:
    """Two convolutions and a hidden layer | dropout, Linear, and with `logit_relu` ReLU.

    Args:
      num_classes: L.
      conv1, conv2: channels of the convolutions.
      hidden: units of the hidden layer.
      dropout: dropped share of these units.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map, as in LEAF's own network.
      logit_relu: whether logits below 0 become 0, as in the official code (not in the paper).
    """
    body = two_convolutions(in_channels, (conv1, conv2), hidden, side, padding)
    return initialise(Network(body, classifier(hidden, num_classes, dropout, logit_relu)))
