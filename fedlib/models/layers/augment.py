"""Layers that change the images of a batch before a network sees them.

They are random functions of the batch's key, the same for all experts, and do nothing in
evaluation; see `fedlib.models.layers.random`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.engine import ambient
from fedlib.errors import ConfigError
from fedlib.models.layers.random import uniform_bits

# Salts that no other layer uses, dropout included.
_PICTURES, _ERASE, _CUTOUT = ((1 << 16) + number for number in (0, 3, 4))


class CropFlip(nn.Module):
    """A random crop of each padded image, mirrored with probability 1/2; in training mode only.

    All experts see the same images. Images are padded with zeros after scaling; zero is the mean
    colour of standardised images, as in K. He et al., CVPR 2016, who subtract the mean first. Code
    with torchvision usually pads with black before scaling.

    Attributes:
      pad: pixels on each side; 0 for no crop.
      flip: whether images are mirrored too.
    """

    def __init__(self, pad: int = 4, flip: bool = True):
        super().__init__()
        self.pad, self.flip = pad, flip

    def forward(self, x: Tensor) -> Tensor:
        """Each image shifted by up to `pad` pixels: [B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        (height, width), shifts = x.shape[-2:], 2 * self.pad + 1
        key = ambient.batch_key() + (_PICTURES << 32)
        bits = uniform_bits(key, torch.Size([len(x), 3]), x.device)
        top, left = (bits[:, :2] * shifts >> 32).unbind(1)
        columns = torch.arange(width, device=x.device).expand(len(x), -1)  # [B, W]
        if self.flip:
            columns = torch.where(bits[:, 2:] >> 31 == 1, columns.flip(1), columns)
        rows = top[:, None] + torch.arange(height, device=x.device)  # [B, H]
        # Positions in the flattened image, [B, 1, H * W]
        places = rows[:, :, None] * (width + 2 * self.pad) + (left[:, None] + columns)[:, None]
        places = places.flatten(1)[:, None].expand(-1, x.shape[1], -1)
        return F.pad(x, [self.pad] * 4).flatten(2).gather(2, places).unflatten(2, (height, width))


class Erase(nn.Module):
    """A random rectangle of some images set to zero, their mean colour; in training mode only.

    Source: Z. Zhong et al., "Random Erasing Data Augmentation", AAAI 2020; torchvision's
    RandomErasing, which draws again if a rectangle does not fit. Here all rectangles must fit.
    """

    SHARE = 0.5  # of the images that lose a rectangle
    AREA = 0.04, 0.2  # least and largest share of the image
    RATIO = math.log(2)  # of height to width: uniform in its logarithm, in [-RATIO, RATIO]

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        happens, area, ratio, top, left = uniform(_ERASE, (len(x), 5), x).unbind(1)
        area = (self.AREA[0] + (self.AREA[1] - self.AREA[0]) * area) * math.prod(x.shape[-2:])
        ratio = (2 * self.RATIO * ratio - self.RATIO).exp()
        height, width = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
        rows = _cover(x.shape[-2], (top * (x.shape[-2] - height + 1)).floor(), height)
        columns = _cover(x.shape[-1], (left * (x.shape[-1] - width + 1)).floor(), width)
        gone = rows[:, :, None] & columns[:, None] & (happens < self.SHARE)[:, None, None]
        return x.masked_fill(gone[:, None], 0)


class Cutout(nn.Module):
    """A square around a random pixel of each image set to zero; in training mode only.

    Near a border, a part of the square is outside the image. Images of at most 8 x 8 pixels are
    refused, as it would always hide them whole.

    Source: T. DeVries and G. W. Taylor, "Improved Regularization of Convolutional Neural Networks
    with Cutout", 2017 (arXiv:1708.04552).
    """

    SIDE = 16  # of the square, in pixels

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        half = self.SIDE // 2
        if max(x.shape[-2:]) <= half:
            raise ConfigError(f"Cutout hides all of {[*x.shape[-2:]]} pixels; take augment=False")
        row, column = uniform(_CUTOUT, (len(x), 2), x).unbind(1)
        rows = _cover(x.shape[-2], (row * x.shape[-2]).floor() - half, self.SIDE)
        columns = _cover(x.shape[-1], (column * x.shape[-1]).floor() - half, self.SIDE)
        return x.masked_fill((rows[:, :, None] & columns[:, None])[:, None], 0)


def distortions(augment: bool) -> list[nn.Module]:
    """Layers before a network of pFedMoE: none, or mirrors, erased rectangles and padded crops.

    The order is that of its first author's published code (pFedMoE's README, section 4.1).
    """
    return [CropFlip(pad=0), Erase(), CropFlip(flip=False)] if augment else []


def _cover(length: int, first: Tensor, size: Tensor | int) -> Tensor:
    """Which places of an axis the interval of `size` from `first` [B] covers -> [B, length]"""
    places = torch.arange(length, device=first.device)
    return (places >= first[:, None]) & (places < (first + size)[:, None])


def uniform(salt: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Random numbers in (0, 1) from the batch's key, the same for all experts -> `shape`"""
    bits = uniform_bits(ambient.batch_key() + (salt << 32), torch.Size(shape), like.device)
    return ((bits + 0.5) / 2**32).to(like.dtype)
