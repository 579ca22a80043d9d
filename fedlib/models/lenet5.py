"""The LeNet-5 of FedMix (878,538 parameters for CIFAR-10, 608,702 for FEMNIST).

It is far wider than LeCun's: the name is the paper's, and its communication costs imply the sizes.
The body has two parts: `body.0`, the first convolution, is private in Local/Global, and `body.1` is
the rest, up to the 512 features.

Source: M. Reisser et al., "Federated Mixture of Experts", 2020 (arXiv:2107.06724);
  FedMix's README, sections 4 and 6.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements.
"""

from torch import nn

from fedlib.models.layers.conv import convolution, side_after
from fedlib.models.layers.network import Network


def build(
    num_classes: int,
    channels: int = 32,
    hidden: int = 512,
    in_channels: int = 3,
    side: int = 32,
    padding: int = 0,
) -> nn.Module:
    """Two convolutions and a hidden layer | Linear, initialised as in torch.

    Args:
      num_classes: L.
      channels: of the first convolution; the second has twice as many. With 61 and 113 the model is
        two and four times as large.
      hidden: units of the hidden layer.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map, and images of 8 pixels need it.
    """
    lower = nn.Sequential(*convolution(in_channels, channels, padding))  # [B, channels, 14, 14]
    upper = nn.Sequential(
        *convolution(channels, 2 * channels, padding),
        nn.Flatten(),  # [B, 2 * channels * 5 * 5] for images of 32 x 32 pixels
        nn.Linear(2 * channels * side_after(side, padding) ** 2, hidden),
        nn.ReLU(),
    )
    return Network([lower, upper], nn.Linear(hidden, num_classes))
