"""The CNN of IFCA for rotated CIFAR-10 as Adaptive Expert Models has it (798,752 parameters).

Source: EricssonResearch/fl-moe, after A. Ghosh et al., "An Efficient Framework for Clustered
  Federated Learning", NeurIPS 2020 (jichan3751/ifca); specification section 5.2.
Deviation: the first ReLU follows the pooling, which is the same function. The second one precedes
  the normalisation, where the order matters. IFCA's own network has padding, pools of 3 x 3,
  crops of 24 x 24 pixels and 192 units instead of 194.
"""

from torch import Tensor, nn

from fedlib.models.initialise import initialise
from fedlib.models.layers import Dropout
from fedlib.models.maps import KERNEL, LocalResponse, side_after

# Specification section 5.2 and discrepancy X14. TensorFlow does not divide alpha by the window of
# 2 * 4 + 1 channels; torch does.
TORCH_WINDOW = {"size": 4, "alpha": 0.001 / 9, "beta": 0.75}
TENSORFLOW_WINDOW = {"size": 9, "alpha": 0.001, "beta": 0.75}


class IfcaCNN(nn.Module):
    """Two normalised convolutions and two hidden layers | Linear, and ReLU where logits have one.

    Dropout is between the hidden layers.
    """

    def __init__(
        self,
        num_classes: int,
        dropout: float,
        conv1: int,
        conv2: int,
        hidden1: int,
        hidden2: int,
        in_channels: int,
        side: int,
        logit_relu: bool,
        window: dict,
    ):
        super().__init__()
        left = side_after(side, 2, padding=0)
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, conv1, KERNEL),  # [B, conv1, 28, 28]
            nn.MaxPool2d(2),
            nn.ReLU(),
            LocalResponse(**window),
            nn.Conv2d(conv1, conv2, KERNEL),  # [B, conv2, 10, 10]
            nn.ReLU(),
            LocalResponse(**window),
            nn.MaxPool2d(2),
            nn.Flatten(),  # [B, conv2 * 5 * 5] for images of 32 x 32 pixels
            nn.Linear(conv2 * left**2, hidden1),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden1, hidden2),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Linear(hidden2, num_classes), nn.ReLU() if logit_relu else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, in_channels, side, side] -> [B, L]"""
        return self.head(self.body(x))


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
    tf_equivalent: bool = False,
    init: str = "official",
) -> nn.Module:
    """The architecture, freshly drawn.

    Args:
      num_classes: L.
      dropout: share of the first hidden layer that is dropped.
      conv1, conv2: channels of the convolutions.
      hidden1, hidden2: units of the hidden layers.
      in_channels, side: of an image.
      logit_relu: whether logits below 0 are cut off, as in the official code (not in the paper).
      tf_equivalent: whether responses are normalised as in IFCA's TensorFlow code, rather than as
        in the official code, which uses its numbers with torch.
      init: see `initialise`.
    """
    window = TENSORFLOW_WINDOW if tf_equivalent else TORCH_WINDOW
    widths = (dropout, conv1, conv2, hidden1, hidden2)
    module = IfcaCNN(num_classes, *widths, in_channels, side, logit_relu, window)
    return initialise(module, init)
