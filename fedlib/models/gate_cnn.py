"""The gate of Adaptive Expert Models: a CNN with a logit for each expert.

A softmax of the logits weighs the experts. With two experts there is a single logit, for the second
one, the client's local expert; `fedlib.engine.task.log_probs` gives the weights in either case. A
method that counts a gate's outputs, as Fed-MoE does, would take such a gate for that of one expert.

6,995 parameters for seven experts on CIFAR-10, 95,642 for ten on FEMNIST.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832), Table 1; EricssonResearch/fl-moe;
  the README of Adaptive Expert Models, section 5.3.
Deviation: ReLU and the dropout of channels follow the pooling instead of preceding it; the maximum
  commutes with both.
"""

from torch import nn

from fedlib.models.layers.conv import Dropout2d, classifier, two_convolutions
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

    Maps images [B, in_channels, side, side] to logits of the experts, [B, E], or [B, 1] for two.

    Args:
      num_classes: experts, the local one last.
      conv1, conv2: channels of the convolutions.
      hidden: units of the hidden layer.
      dropout: dropped share of these units, and of the channels of the second convolution.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map.
      logit_relu: whether logits below 0 become 0, as in the official code (not in the paper); with
        two experts, the local one then has at least half the weight.
    """
    dropped = Dropout2d(dropout, salt=1)
    body = two_convolutions(in_channels, (conv1, conv2), hidden, side, padding, dropped)
    outputs = 1 if num_classes == 2 else num_classes
    return initialise(Network(body, classifier(hidden, outputs, dropout, logit_relu)))
