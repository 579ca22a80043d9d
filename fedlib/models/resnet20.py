"""ResNet-20 for small images with group normalisation (275,572 parameters for 100 classes).

The body has two parts: `body.0`, the stem and the whole first stage, is private in Local/Global,
and `body.1` is the rest, up to the 64 pooled features.

Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016 (section 4.2; option
  A: shortcuts without parameters), as used by M. Reisser et al., "Federated Mixture of Experts",
  2020 (arXiv:2107.06724); FedMix's README, sections 4, 5 and 6. FedMix states neither the number of
  groups nor the initialisation. Here there are two groups, and the weights of convolutions are
  normal with variance 2 / fan-in, as in google-research/federated, utils/models/resnet_models.py,
  but for its truncation. The head is initialised as in torch.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.network import Network

# Channels before a stage and in it, and the stride of its first block.
STAGES = ((16, 16, 1), (16, 32, 2), (32, 64, 2))
BLOCKS = 3  # in each stage


class Block(nn.Module):
    """Two convolutions with a shortcut.

    If they halve the map, the shortcut drops every other row and column; if they have more
    channels, it gets channels of zeros.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm_groups: int):
        super().__init__()
        self.stride, self.more = stride, outputs - inputs
        self.residual = nn.Sequential(
            *_conv_norm(inputs, outputs, stride, norm_groups),
            nn.ReLU(),
            *_conv_norm(outputs, outputs, 1, norm_groups),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride], rounded up"""
        shortcut = x[..., :: self.stride, :: self.stride] if self.stride > 1 else x
        shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.more)) if self.more else shortcut
        return F.relu(self.residual(x) + shortcut)


def stage(inputs: int, outputs: int, stride: int, norm_groups: int) -> nn.Sequential:
    """Blocks; the first one changes the shape: [B, inputs, H, W] -> [B, outputs, H', W']"""
    blocks = [Block(inputs, outputs, stride, norm_groups)]
    blocks += [Block(outputs, outputs, 1, norm_groups) for _ in range(1, BLOCKS)]
    return nn.Sequential(*blocks)


def build(
    num_classes: int, norm_groups: int = 2, augment: bool = False, in_channels: int = 3
) -> nn.Module:
    """Stem and first stage, two stages and their mean over the pixels | Linear, newly initialised.

    Args:
      num_classes: L.
      norm_groups: number of groups of channels for normalisation; a divisor of 16.
      augment: whether it trains on random crops and flips of its images; see `CropFlip`.
      in_channels: of an image.
    """
    # One layer in either case, so that the parameters have the same names.
    first = CropFlip() if augment else nn.Identity()
    stem = first, *_conv_norm(in_channels, STAGES[0][0], 1, norm_groups), nn.ReLU()
    stages = [stage(*sizes, norm_groups) for sizes in STAGES]
    lower = nn.Sequential(*stem, stages[0])  # [B, 16, 32, 32]
    upper = nn.Sequential(*stages[1:], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Network([lower, upper], nn.Linear(STAGES[-1][1], num_classes))


def _conv_norm(inputs: int, outputs: int, stride: int, norm_groups: int) -> list[nn.Module]:
    """A 3 x 3 convolution and its normalisation, with a scale and a shift for each channel."""
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    return [convolution, nn.GroupNorm(norm_groups, outputs)]
