"""MobileNet-v2 with a new last layer (2,236,682 parameters for 10 classes).

The body goes up to the 1280 pooled features, batch normalisation included; the head is dropout and
the last layer. At 32 x 32 pixels the maps shrink to 1 x 1, so batch normalisation needs training
batches of at least two examples.

Architecture, names and initial values are torchvision's. Torch's convolutions are slow on the very
small maps here: they are replaced by layers that compute the same function faster
(`fedlib.models.layers.fast`).

Source: torchvision.models.mobilenet_v2, width 1.0, as used by FedEM and pFedMM for CIFAR.
Weights: torchvision's ImageNet weights IMAGENET1K_V1 if a run declares them
(`mobilenet_v2_weights` of `fedlib.data.downloads`), otherwise torchvision's initialisation.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from fedlib.models.layers.fast import Depthwise, Normalised, Pointwise, ReLU6
from fedlib.models.layers.network import Network
from fedlib.models.layers.random import Dropout


def build(num_classes: int, dropout: float = 0.2) -> nn.Module:
    """torchvision's features and pooling | dropout, Linear, initialised as in torchvision."""
    from torchvision.models import mobilenet_v2  # a slow import

    features = _fast(mobilenet_v2(weights=None).features)
    head = nn.Sequential(Dropout(dropout), nn.Linear(1280, num_classes))
    return Network([features, nn.AdaptiveAvgPool2d(1), nn.Flatten()], head)


def pretrained(file: Path) -> dict[str, Tensor]:
    """Parameters of the body in torchvision's weight file, by this model's names.

    The caller has verified the file's checksum.
    """
    return {
        name.replace("features.", "body.0.", 1): value
        for name, value in torch.load(file, map_location="cpu", weights_only=True).items()
        if name.startswith("features.") and value.is_floating_point()
    }


def _fast(layer: nn.Module) -> nn.Module:
    """`layer` with faster layers where there are any; parameters keep their values and names."""
    if isinstance(layer, nn.ReLU6):
        return ReLU6()
    if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1):
        return Pointwise(layer.weight)
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        return Depthwise(layer.weight, layer.stride[0])
    if isinstance(layer, nn.Sequential):
        return Normalised(*map(_fast, layer))
    for name, child in layer.named_children():  # an inverted residual block
        setattr(layer, name, _fast(child))
    return layer
