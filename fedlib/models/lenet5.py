"""The LeNet-5 of FedMix (878,538 parameters for CIFAR-10, 608,702 for FEMNIST).

It is far wider than LeCun's: the name is the paper's, and its communication costs imply the sizes.
The body has two parts: `body.0`, the first convolution, is private in Local/Global, and `body.1` is
the rest, up to the 512 features.

Source: M. Reisser et al., "Federated Mixture of Experts", 2020 (arXiv:2107.06724);
  the paper's README, sections 4 and 6.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements.
"""

from torch import Tensor, nn

from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.conv import KERNEL, side_after
from fedlib.models.layers.fast import MaxPool2d


class LeNet5(nn.Module):
    """Two convolutions and a hidden layer | Linear."""

    def __init__(
        self,
        num_classes: int,
        channels: int,
        hidden: int,
        in_channels: int,
        side: int,
        padding: int,
        augment: bool,
    ):
        super().__init__()
        left = side_after(side, 2, padding)
        lower = nn.Sequential(
            *([CropFlip()] if augment else []),
            nn.Conv2d(in_channels, channels, KERNEL, padding=padding),  # [B, channels, 28, 28]
            MaxPool2d(2),
            nn.ReLU(),
        )
        upper = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, KERNEL, padding=padding),  # [B, 2 * channels, 10, 10]
            MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),  # [B, 2 * channels * 5 * 5] for images of 32 x 32 pixels
            nn.Linear(2 * channels * left**2, hidden),
            nn.ReLU(),
        )
        self.body = nn.Sequential(lower, upper)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, in_channels, side, side] -> [B, L]"""
        return self.head(self.body(x))


def build(
    num_classes: int,
    channels: int = 32,
    hidden: int = 512,
    in_channels: int = 3,
    side: int = 32,
    padding: int = 0,
    augment: bool = False,
) -> nn.Module:
    """The architecture, initialised as in torch.

    Args:
      num_classes: L.
      channels: of the first convolution; the second has twice as many. With 61 and 113 the model is
        two and four times as large.
      hidden: units of the hidden layer.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map, and images of 8 pixels need it.
      augment: whether it trains on random crops and flips of its images, see `CropFlip`; in the
        paper for CIFAR-100 alone.
    """
    return LeNet5(num_classes, channels, hidden, in_channels, side, padding, augment)
