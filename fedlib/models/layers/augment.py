"""Layers that change the images of a batch before a network sees them.

`CropFlip`, `Erase`, `Cutout`, `ColourJitter` and `Contrast` are random functions of the batch's
key, the same for all experts, and do nothing in evaluation; see `fedlib.models.layers.random`.
`Centre` and `Standardise` are deterministic. `CropFlip` before `Centre` is a random crop without
padding.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.engine import ambient
from fedlib.models.layers.random import uniform_bits

# Salts that no other layer uses, dropout included.
_PICTURES, _JITTER, _CONTRAST, _ERASE, _CUTOUT = ((1 << 16) + number for number in range(5))
GREY = (0.2989, 0.587, 0.114)  # of red, green and blue; torchvision
# The scaling "measured" of `fedlib.data.sources.cifar10`; a test compares them.
MEAN, STD = (0.4915, 0.4822, 0.4466), (0.2470, 0.2435, 0.2616)


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
        if pad < 0:
            raise ValueError(f"pad must be at least 0, got {pad}")
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
        padded = F.pad(x, [self.pad] * 4).flatten(2)
        return padded.gather(2, places).unflatten(2, (height, width))


class Erase(nn.Module):
    """A random rectangle of some images set to zero, their mean colour; in training mode only.

    Source: Z. Zhong et al., "Random Erasing Data Augmentation", AAAI 2020; torchvision's
    RandomErasing, which draws again if a rectangle does not fit. Here all rectangles must fit.

    Attributes:
      share: of the images that lose a rectangle.
      area: least and largest share of the image; ratio: of height to width, uniform in its
        logarithm.
    """

    def __init__(
        self,
        share: float = 0.5,
        area: tuple[float, float] = (0.04, 0.2),
        ratio: tuple[float, float] = (0.5, 2.0),
    ):
        super().__init__()
        if not 0 <= share <= 1:
            raise ValueError(f"share must be in [0, 1], got {share}")
        if not (0 < area[0] <= area[1] and 0 < ratio[0] <= ratio[1]):
            raise ValueError(f"area and ratio must be positive ranges, got {area} and {ratio}")
        if area[1] * max(ratio[1], 1 / ratio[0]) >= 1:
            raise ValueError(f"rectangles of area {area} and ratio {ratio} need not fit an image")
        self.share, self.area, self.ratio = share, area, [math.log(r) for r in ratio]

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        happens, area, ratio, top, left = uniform(_ERASE, (len(x), 5), x).unbind(1)
        area = (self.area[0] + (self.area[1] - self.area[0]) * area) * math.prod(x.shape[-2:])
        ratio = (self.ratio[0] + (self.ratio[1] - self.ratio[0]) * ratio).exp()
        gone = _between(x.shape[-2], top, (area * ratio).sqrt().round(), x)[:, :, None]
        gone = gone & _between(x.shape[-1], left, (area / ratio).sqrt().round(), x)[:, None]
        return x.masked_fill((gone & (happens < self.share)[:, None, None])[:, None], 0)


class Cutout(nn.Module):
    """A square around a random pixel of each image set to zero; in training mode only.

    Near a border, a part of the square is outside the image.

    Source: T. DeVries and G. W. Taylor, "Improved Regularization of Convolutional Neural Networks
    with Cutout", 2017 (arXiv:1708.04552).

    Attributes:
      side: of the square.
    """

    def __init__(self, side: int = 16):
        super().__init__()
        if side < 1:
            raise ValueError(f"side must be at least 1, got {side}")
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        rows, columns = (
            self._covered(length, place, x)
            for length, place in zip(
                x.shape[-2:], uniform(_CUTOUT, (len(x), 2), x).unbind(1), strict=True
            )
        )
        return x.masked_fill((rows[:, :, None] & columns[:, None])[:, None], 0)

    def _covered(self, length: int, place: Tensor, like: Tensor) -> Tensor:
        """Positions along one axis covered by a square around `place` [B] -> [B, length]"""
        first = (place * length).floor()[:, None] - self.side // 2
        places = torch.arange(length, device=like.device)
        return (places >= first) & (places < first + self.side)


class ColourJitter(nn.Module):
    """Random brightness, contrast, saturation and hue of each image; in training mode only.

    Source: torchvision's ColorJitter, which draws the order for each image; here it is the order
    above.

    Attributes:
      strength: factors are uniform in [1 - strength, 1 + strength]; shifts of the hue, on a circle
        of length 1, are uniform in [-strength, strength].
    """

    def __init__(self, strength: float = 0.4):
        super().__init__()
        if not 0 <= strength <= 0.5:
            raise ValueError(f"strength must be in [0, 0.5], got {strength}")
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        """Images scaled as CIFAR-10: [B, 3, H, W] -> [B, 3, H, W]"""
        if not self.training:
            return x
        mean, std = (x.new_tensor(v)[:, None, None] for v in (MEAN, STD))
        changes = self.strength * (2 * uniform(_JITTER, (len(x), 4), x) - 1)
        bright, contrast, colour, hue = changes[..., None, None, None].unbind(1)
        x = ((x * std + mean) * (1 + bright)).clamp(0, 1)
        x = blend(x, grey(x).mean((-2, -1), keepdim=True), 1 + contrast)
        x = blend(x, grey(x), 1 + colour)
        return (turn(x, hue[:, 0]) - mean) / std


class Contrast(nn.Module):
    """Scales each image's deviations from its channel means by a random factor; in training only.

    Attributes:
      low, high: of the factor.
    """

    def __init__(self, low: float, high: float):
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        factor = self.low + (self.high - self.low) * uniform(_CONTRAST, (len(x), 1, 1, 1), x)
        mean = x.mean((-2, -1), keepdim=True)
        return mean + factor * (x - mean)


class Centre(nn.Module):
    """The central square of an image.

    Attributes:
      side: of the square, in pixels.
    """

    def __init__(self, side: int):
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, side, side]"""
        top, left = ((length - self.side) // 2 for length in x.shape[-2:])
        return x[..., top : top + self.side, left : left + self.side]


class Standardise(nn.Module):
    """Scales each image to mean 0 and deviation 1, over all channels together.

    Source: TensorFlow's per_image_standardization; the deviation is at least 1 / sqrt(F * H * W).
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        flat = x.flatten(1)
        std = flat.std(1, correction=0).clamp(min=flat.shape[1] ** -0.5)
        return ((flat - flat.mean(1, keepdim=True)) / std[:, None]).unflatten(1, x.shape[1:])


def augmented(augment: bool) -> list[nn.Module]:
    """Layers before a network of Adaptive Expert Models: none, or crops, flips and colours.

    They are off in every configuration of the official code; the paper's README, section 4.1.
    """
    return [CropFlip(), ColourJitter()] if augment else []


def erased(augment: bool) -> list[nn.Module]:
    """Layers before a network of pFedMoE: none, or mirrors, erased rectangles and padded crops.

    The order is that of its first author's published code (pFedMoE's README, section 4.1).
    """
    return [CropFlip(pad=0), Erase(), CropFlip(flip=False)] if augment else []


def _between(length: int, place: Tensor, size: Tensor, like: Tensor) -> Tensor:
    """Mask of an interval of `size` [B] inside an axis -> [B, length] bool

    Args:
      place: [B] in (0, 1), the position of the interval, from the first to the last that fits.
    """
    first = (place * (length - size + 1)).floor()[:, None]
    places = torch.arange(length, device=like.device)
    return (places >= first) & (places < first + size[:, None])


def uniform(salt: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Random numbers in (0, 1) from the batch's key, the same for all experts -> `shape`"""
    key = ambient.batch_key() + (salt << 32)
    bits = uniform_bits(key, torch.Size(shape), like.device)
    return ((bits + 0.5) / 2**32).to(like.dtype)


def grey(x: Tensor) -> Tensor:
    """Brightness of colours: [B, 3, H, W] -> [B, 1, H, W]"""
    return (x * x.new_tensor(GREY)[:, None, None]).sum(1, keepdim=True)


def blend(x: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """`share` times `x` plus the rest times `other`, clipped to [0, 1]."""
    return (share * x + (1 - share) * other).clamp(0, 1)


def turn(x: Tensor, shift: Tensor) -> Tensor:
    """Colours with their hue shifted; brightness and saturation stay.

    Args:
      x: [B, 3, H, W] in [0, 1].
      shift: [B, 1, 1] in turns of the colour circle.
    """
    red, green, blue = x.unbind(1)
    value = x.amax(1)
    chroma = value - x.amin(1)
    width = torch.where(chroma > 0, chroma, 1)
    of_others = torch.where(value == green, 2 + (blue - red) / width, 4 + (red - green) / width)
    hue = torch.where(value == red, (green - blue) / width, of_others)  # in sixths of a turn
    far = ((hue + 6 * shift)[:, None] + x.new_tensor([5, 3, 1])[:, None, None]) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(far, 4 - far).clamp(0, 1)
