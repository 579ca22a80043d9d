"""A random part of each image, stretched to the size of the image.

It is a function of the batch's key, the same for all experts; see `fedlib.models.layers.random`.
"""

import math

import torch
from torch import Tensor, nn

from fedlib.models.layers.augment import uniform

_SALT = (1 << 16) + 5  # follows those of `fedlib.models.layers.augment`
ATTEMPTS = 10  # torchvision's


class ResizedCrop(nn.Module):
    """A rectangle of random size and position, bilinearly stretched; in training mode only.

    Sizes that do not fit into the image are drawn again; after ten attempts the whole image is
    taken. So with a largest area above 1 the whole image is more frequent.

    Source: torchvision's RandomResizedCrop, for images whose own ratio is in the allowed range.

    Attributes:
      area: least and largest share of the image.
      ratio: range of the logarithm of width to height.
    """

    area, ratio = (0.9, 1.1), (math.log(3 / 4), math.log(4 / 3))

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H, W]"""
        if not self.training:
            return x
        draws = uniform(_SALT, (len(x), 2 * ATTEMPTS + 2), x)
        height, width = self._size(draws[:, :ATTEMPTS], draws[:, ATTEMPTS:-2], x)
        rows = _stretch(x.shape[-2], height, draws[:, -2])[:, None]
        columns = _stretch(x.shape[-1], width, draws[:, -1])[:, None]
        return rows @ x @ columns.mT

    def _size(self, area: Tensor, ratio: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Height and width, in whole pixels, of the first rectangle that fits -> each [B]

        `area` and `ratio` are uniform numbers in (0, 1), [B, ATTEMPTS].
        """
        area = (self.area[0] + (self.area[1] - self.area[0]) * area) * math.prod(x.shape[-2:])
        ratio = (self.ratio[0] + (self.ratio[1] - self.ratio[0]) * ratio).exp()
        sizes = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
        fits = (sizes[0] <= x.shape[-2]) & (sizes[1] <= x.shape[-1])
        fits = fits & (sizes[0] > 0) & (sizes[1] > 0)
        first = fits.int().argmax(1, keepdim=True)
        return tuple(
            torch.where(fits.any(1), size.gather(1, first)[:, 0], length)
            for size, length in zip(sizes, x.shape[-2:], strict=True)
        )


def _stretch(length: int, size: Tensor, place: Tensor) -> Tensor:
    """Weights of an axis' pixels in each pixel of its stretched part -> [B, length, length]

    Args:
      length: of the axis.
      size: [B] of the part, at most `length`.
      place: [B] in (0, 1), the position of the part, from the first to the last that fits.
    """
    first = (place * (length - size + 1)).floor()[:, None]
    pixels = torch.arange(length, device=size.device, dtype=size.dtype)
    # Centres of the new pixels, at most those of the outermost pixels of the part.
    seen = ((pixels + 0.5) * (size / length)[:, None] - 0.5).clamp(min=0)
    seen = first + torch.minimum(seen, size[:, None] - 1)
    return (1 - (seen[:, :, None] - pixels).abs()).clamp(min=0)
