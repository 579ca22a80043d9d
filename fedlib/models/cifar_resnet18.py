"""ResNet-18 for small images (11,173,962 parameters for 10 classes): client, expert and gate.

A 3 x 3 stem that keeps the size of the map, then four stages of two blocks, with batch
normalisation. A gate is the same network with an output for each expert (11,171,397 for five).

Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016 (18 layers, option
  B: shortcuts of 1 x 1 where the shape changes), as used by J. Jiang et al., "Heterogeneous
  Federated Learning with Scalable Server Mixture-of-Experts", IJCAI 2025 (Fed-MoE);
  Fed-MoE's README, section 4.2.
Deviation: crops are padded with the mean colour, as `CropFlip` says, where Fed-MoE's code pads with
  black.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.models.layers.augment import CropFlip, Cutout
from fedlib.models.layers.network import Network

# Channels before a stage and in it, divided by `width`, and the stride of its first block.
STAGES = ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2))
BLOCKS = 2  # in each stage


class Block(nn.Module):
    """Two convolutions with a shortcut, which is projected if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            *_conv_norm(inputs, outputs, 3, stride), nn.ReLU(), *_conv_norm(outputs, outputs, 3)
        )
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Sequential(*(_conv_norm(inputs, outputs, 1, stride) if changes else ()))

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride], rounded up"""
        return F.relu(self.residual(x) + self.shortcut(x))


def build(
    num_classes: int, width: int = 64, augment: bool = False, in_channels: int = 3
) -> nn.Module:
    """Stem, stages and their mean over the pixels | Linear, initialised as in torch.

    Args:
      num_classes: L, or E for a gate.
      width: channels of the stem and the first stage; each further stage has twice as many.
      augment: whether it trains on random crops and flips of its images, with Cutout.
      in_channels: of an image.
    """
    # One layer in either case, so that the parameters have the same names.
    first = nn.Sequential(CropFlip(), Cutout()) if augment else nn.Identity()
    body = [first, *_conv_norm(in_channels, width, 3), nn.ReLU()]  # [B, width, 32, 32]
    for before, inside, stride in STAGES:
        body += [Block(before * width, inside * width, stride)]
        body += [Block(inside * width, inside * width, 1) for _ in range(1, BLOCKS)]
    # [B, 8 * width, 4, 4] before the mean
    body += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Network(body, nn.Sequential(nn.Linear(STAGES[-1][1] * width, num_classes)))


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution and its batch normalisation; stride 1 keeps the size of the map."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]
