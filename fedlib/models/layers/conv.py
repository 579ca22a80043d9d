"""Building blocks of networks with 5 x 5 convolutions, such as those of Adaptive Expert Models.

`Dropout2d` drops channels of feature maps [B, channels, H, W] with masks from the batch's key;
`LocalResponse` normalises by neighbouring channels. Both are plain arithmetic, so that they can be
batched over clients and are deterministic on every device.
"""

import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.models.layers.fast import MaxPool2d
from fedlib.models.layers.random import Dropout

KERNEL = 5  # of every convolution in these networks


class Dropout2d(Dropout):
    """`torch.nn.Dropout2d` with the masks of `Dropout`: each example loses whole channels."""

    def draw_mask(self, shape: torch.Size, device: torch.device) -> Tensor:
        """As of `Dropout`, for whole channels: inputs [B, F, ...] -> [B, F, 1, ...] bool"""
        return super().draw_mask(torch.Size([*shape[:2], *[1] * (len(shape) - 2)]), device)


class LocalResponse(nn.Module):
    """Local response normalisation: x / (1 + alpha * mean of x^2 over `size` channels)^beta.

    As in `torch.nn.LocalResponseNorm`, a window has size // 2 channels before its own, and channels
    beyond the first and the last count as zeros.

    Attributes:
      size: channels of a window.
      alpha: weight of their mean square; 0 changes nothing.
      beta: exponent.
    """

    def __init__(self, size: int, alpha: float, beta: float):
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        before, after = self.size // 2, (self.size - 1) // 2
        squares = nn.functional.pad(x * x, (0, 0, 0, 0, before, after))
        total = sum(squares.narrow(1, first, x.shape[1]) for first in range(self.size))
        return x / (1 + self.alpha / self.size * total) ** self.beta


def convolution(inputs: int, outputs: int, padding: int, *between: nn.Module) -> list[nn.Module]:
    """A 5 x 5 convolution, 2 x 2 pooling, the layers `between`, then ReLU."""
    return [nn.Conv2d(inputs, outputs, KERNEL, padding=padding), MaxPool2d(2), *between, nn.ReLU()]


def two_convolutions(
    in_channels: int,
    channels: tuple[int, int],
    hidden: int,
    side: int,
    padding: int,
    *between: nn.Module,
) -> list[nn.Module]:
    """Two convolutions and a hidden layer, for images [B, in_channels, side, side] -> [B, hidden]

    Args:
      between: layers between the second convolution's pooling and its ReLU.
    """
    first, second = channels
    return [
        *convolution(in_channels, first, padding),
        *convolution(first, second, padding, *between),
        nn.Flatten(),  # [B, second * 5 * 5] for images of 32 x 32 pixels without padding
        nn.Linear(second * side_after(side, padding) ** 2, hidden),
        nn.ReLU(),
    ]


def classifier(inputs: int, outputs: int, dropout: float, relu: bool) -> nn.Sequential:
    """Dropout and Linear, and with `relu` ReLU."""
    last = nn.ReLU() if relu else nn.Identity()
    return nn.Sequential(Dropout(dropout), nn.Linear(inputs, outputs), last)


def side_after(side: int, padding: int) -> int:
    """Side of a map after two 5 x 5 convolutions, each with 2 x 2 pooling.

    Raises:
      ConfigError: if nothing is left of a map of `side` pixels.
    """
    left = side
    for _ in range(2):
        if (left := (left + 2 * padding - KERNEL + 1) // 2) < 1:
            raise ConfigError(
                f"images of {side} x {side} pixels are too small for 2 convolutions "
                f"of {KERNEL} x {KERNEL} with padding {padding}, each pooled; take padding "
                f"{KERNEL // 2} or larger images"
            )
    return left
