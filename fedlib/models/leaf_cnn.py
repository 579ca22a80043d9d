"""The CNN of LEAF with tuned widths: global and local experts of Adaptive Expert Models.

942,634 parameters as the global expert of CIFAR-10, 1,848,714 as its local one, 2,278,334 on
FEMNIST.

Source: Isaksson et al., "Adaptive Expert Models for Personalization in Federated Learning",
  FL-IJCAI 2022 (arXiv:2206.07832), Table 1; EricssonResearch/fl-moe; specification section 5.1.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements.
"""

from torch import Tensor, nn

from fedlib.models.initialise import initialise
from fedlib.models.layers import Dropout
from fedlib.models.maps import KERNEL, side_after


class LeafCNN(nn.Module):
    """Two convolutions and a hidden layer | dropout, Linear, and ReLU where logits have one."""

    def __init__(
        self,
        num_classes: int,
        conv1: int,
        conv2: int,
        hidden: int,
        dropout: float,
        in_channels: int,
        side: int,
        padding: int,
        logit_relu: bool,
    ):
        super().__init__()
        left = side_after(side, 2, padding)
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, conv1, KERNEL, padding=padding),  # [B, conv1, 28, 28]
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(conv1, conv2, KERNEL, padding=padding),  # [B, conv2, 10, 10]
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),  # [B, conv2 * 5 * 5] for images of 32 x 32 pixels
            nn.Linear(conv2 * left**2, hidden),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            Dropout(dropout),
            nn.Linear(hidden, num_classes),
            nn.ReLU() if logit_relu else nn.Identity(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, in_channels, side, side] -> [B, L]"""
        return self.head(self.body(x))


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
    init: str = "official",
) -> nn.Module:
    """The architecture, freshly drawn.

    Args:
      num_classes: L.
      conv1, conv2: channels of the convolutions.
      hidden: units of the hidden layer.
      dropout: share of them that is dropped.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the side of a map, as in LEAF's own network.
      logit_relu: whether logits below 0 are cut off, as in the official code (not in the paper).
      init: see `initialise`.
    """
    widths = (conv1, conv2, hidden, dropout)
    module = LeafCNN(num_classes, *widths, in_channels, side, padding, logit_relu)
    return initialise(module, init)
