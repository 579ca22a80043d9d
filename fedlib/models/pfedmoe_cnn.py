"""The five CNNs of pFedMoE and its sibling papers, and those for MNIST, which differ in width.

Two convolutions, two hidden layers, a classifier. The body, up to and including the ReLU of the
second hidden layer, is pFedMoE's extractor, and the head is its header. `SIZES` has the widths of
CNN-1 to CNN-5. Their bodies all end in 500 features, so that each can be mixed with the small
shared extractor, the body of a CNN-5.

Source: L. Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
  Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350);
  the paper's README, section 3. Widths are those of the first author's published sibling code.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements. A note on the journal version has 32 channels
  in the first convolution of CNN-1 and CNN-2; all published code has 16.
"""

from torch import Tensor, nn

from fedlib.models.layers.augment import erased
from fedlib.models.layers.conv import KERNEL, side_after
from fedlib.models.layers.fast import MaxPool2d

# Channels of the convolutions and widths of the hidden layers (specification, section 3).
SIZES = {
    "cnn1": {"channels": (16, 32), "hidden": (2000, 500)},
    "cnn2": {"channels": (16, 16), "hidden": (2000, 500)},
    "cnn3": {"channels": (16, 32), "hidden": (1000, 500)},
    "cnn4": {"channels": (16, 32), "hidden": (800, 500)},
    "cnn5": {"channels": (16, 32), "hidden": (500, 500)},
    "mnist1": {"channels": (20, 20), "hidden": (300, 50)},
    "mnist2": {"channels": (20, 20), "hidden": (200, 50)},
    "mnist3": {"channels": (20, 20), "hidden": (150, 50)},
    "mnist4": {"channels": (20, 20), "hidden": (100, 50)},
    "mnist5": {"channels": (20, 20), "hidden": (50, 50)},
}


class PFedMoECNN(nn.Module):
    """Two convolutions and two hidden layers | Linear."""

    def __init__(
        self,
        num_classes: int,
        channels: tuple[int, int],
        hidden: tuple[int, int],
        in_channels: int,
        side: int,
        padding: int,
        augment: bool,
    ):
        super().__init__()
        left = side_after(side, 2, padding)
        self.body = nn.Sequential(
            *erased(augment),
            nn.Conv2d(in_channels, channels[0], KERNEL, padding=padding),
            MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(channels[0], channels[1], KERNEL, padding=padding),
            MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(channels[1] * left**2, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden[1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, in_channels, side, side] -> [B, L]"""
        return self.head(self.body(x))


def build(
    num_classes: int,
    size: str = "cnn1",
    channels: tuple[int, int] | None = None,
    hidden: tuple[int, int] | None = None,
    in_channels: int = 3,
    side: int = 32,
    padding: int = 0,
    augment: bool = False,
) -> nn.Module:
    """The architecture, initialised as in torch.

    Args:
      num_classes: L.
      size: one of `SIZES`.
      channels, hidden: in place of the size's.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map, and images of 8 pixels need it.
      augment: whether training images are mirrored, cropped and lose a rectangle at random.

    Raises:
      KeyError: for an unknown size; the message lists the choices.
      ValueError: unless widths are two positive numbers.
    """
    if size not in SIZES:
        raise KeyError(f"no size {size!r}; there are {', '.join(SIZES)}")
    widths = {"channels": channels, "hidden": hidden}
    widths = SIZES[size] | {name: tuple(given) for name, given in widths.items() if given}
    for name, given in widths.items():
        if len(given) != 2 or min(given) < 1:
            raise ValueError(f"{name} must be two numbers from 1, got {given}")
    return PFedMoECNN(
        num_classes,
        **widths,
        in_channels=in_channels,
        side=side,
        padding=padding,
        augment=augment,
    )
