"""The five CNNs of pFedMoE and its sibling papers, and those for MNIST, which differ in width.

Two convolutions, two hidden layers, a classifier. The body, up to and including the ReLU of the
second hidden layer, is pFedMoE's extractor, and the head is its header. `SIZES` has the widths of
CNN-1 to CNN-5. Their bodies all end in 500 features, so that each can be mixed with the small
shared extractor, the body of a CNN-5.

Source: L. Yi et al., "pFedMoE: Data-Level Personalization with Mixture of Experts for
  Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350);
  pFedMoE's README, section 3. Widths are those of the first author's published sibling code.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements. A note on the journal version has 32 channels
  in the first convolution of CNN-1 and CNN-2; all published code has 16.
"""

from torch import nn

from fedlib.models.layers.augment import distortions
from fedlib.models.layers.conv import convolution, side_after
from fedlib.models.layers.network import Network

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
    """Two convolutions and two hidden layers | Linear, initialised as in torch.

    Args:
      num_classes: L.
      size: one of `SIZES`.
      channels, hidden: in place of the size's.
      in_channels, side: of an image.
      padding: of the convolutions; 2 keeps the size of a map, and images of 8 pixels need it.
      augment: whether training images are mirrored, cropped and lose a rectangle at random.

    Raises:
      ValueError: for an unknown size, or unless widths are two positive numbers.
    """
    if size not in SIZES:
        raise ValueError(f"no size {size!r}; there are {', '.join(SIZES)}")
    widths = {"channels": channels, "hidden": hidden}
    widths = SIZES[size] | {name: tuple(given) for name, given in widths.items() if given}
    for name, given in widths.items():
        if len(given) != 2 or min(given) < 1:
            raise ValueError(f"{name} must be two numbers from 1, got {given}")
    (one, two), (first, second) = widths["channels"], widths["hidden"]
    body = [
        *distortions(augment),
        *convolution(in_channels, one, padding),
        *convolution(one, two, padding),
        nn.Flatten(),
        nn.Linear(two * side_after(side, padding) ** 2, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
    ]
    return Network(body, nn.Linear(second, num_classes))
