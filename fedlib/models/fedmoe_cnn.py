"""The CNN of Fed-MoE for FEMNIST (6,603,710 parameters for 62 classes): client, expert and gate.

A gate is the same network with an output for each expert (6,486,917 for five).

Source: J. Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
  IJCAI 2025 (doi 10.24963/ijcai.2025/610), and its code; Fed-MoE's README, section 4.1.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so it
  is the same function on a quarter of the elements. Training images are cropped after they are
  scaled, not before; the result is the same because bilinear weights sum to 1.
"""

from torch import nn

from fedlib.models.layers.conv import two_convolutions
from fedlib.models.layers.network import Network
from fedlib.models.layers.resized_crop import ResizedCrop

PADDING = 2  # keeps the size of a map
CHANNELS = (32, 64)


def build(
    num_classes: int,
    hidden: int = 2048,
    in_channels: int = 1,
    side: int = 28,
    augment: bool = False,
) -> nn.Module:
    """Two convolutions and a hidden layer | Linear, initialised as in torch.

    Args:
      num_classes: L, or E for a gate.
      hidden: units of the hidden layer.
      in_channels, side: of an image.
      augment: whether it trains on random parts of its images; see `ResizedCrop`.
    """
    # One layer in either case, so that the parameters have the same names.
    body = [ResizedCrop() if augment else nn.Identity()]
    body += two_convolutions(in_channels, CHANNELS, hidden, side, PADDING)
    return Network(body, nn.Sequential(nn.Linear(hidden, num_classes)))
