"""The networks of the work items, each twice: as everybody writes it, and as our engine has it.

Both are the same function of the same parameters (MobileNet-v2's dropout masks apart). Peers, the
plain loop and FedEM's loop train the first, our engine and the floor the second.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.items import Item
from fedlib.models import emnist_cnn, mlp, mobilenet_v2
from fedlib.models.layers.fast import MaxPool2d

DROPOUT = 0.2  # torchvision's, in MobileNet-v2


class Model(nn.Module):
    """`head(body(x))`: [B, ...] -> [B, L]"""

    def __init__(self, body: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, ...] -> [B, L]"""
        return self.head(self.body(x))


def plain(item: Item) -> nn.Module:
    """The model of `item` from `torch.nn` and torchvision alone, freshly drawn."""
    return MODELS[item.model][0](item)


def fast(item: Item) -> nn.Module:
    """The model of `item` as our engine trains it, freshly drawn."""
    return MODELS[item.model][1](item)


def convolves(module: nn.Module) -> bool:
    """Whether our engine lays images out with their channels last: where they are convolved."""
    return any(isinstance(layer, nn.Conv2d) for layer in module.modules())


def _plain_cnn(item: Item) -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 2048),
        nn.ReLU(),
    )
    return Model(body, nn.Linear(2048, item.num_classes))


def _lenet5(item: Item, relu_first: bool) -> nn.Module:
    pooled = [nn.ReLU(), nn.MaxPool2d(2)] if relu_first else [MaxPool2d(2), nn.ReLU()]
    body = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),  # [B, 6, 28, 28]
        *pooled,
        nn.Conv2d(6, 16, 5),  # [B, 16, 10, 10]
        *pooled,
        nn.Flatten(),  # [B, 400]
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return Model(body, nn.Linear(84, item.num_classes))


def _mlp(item: Item) -> nn.Module:
    return mlp.build(item.shape[0], 200, item.num_classes)


def _linear(item: Item) -> nn.Module:
    return Model(nn.Flatten(), nn.Linear(item.shape[0], item.num_classes))


def _plain_mobilenet(item: Item) -> nn.Module:
    from torchvision.models import mobilenet_v2 as official  # takes a second

    features = nn.Sequential(official(weights=None).features, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Model(features, nn.Sequential(nn.Dropout(DROPOUT), nn.Linear(1280, item.num_classes)))


class _Residual(nn.Module):
    """Two 3 x 3 convolutions; the shortcut leaves pixels out and adds channels of zeros."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.stride, self.extra = (1, 0) if inputs == outputs else (2, outputs - inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] -> [B, outputs, H / stride, W / stride]"""
        short = x[:, :, :: self.stride, :: self.stride]
        if self.extra:
            short = F.pad(short, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + short)


def _resnet20(item: Item) -> nn.Module:
    """He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2, n = 3."""
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [_Residual(a, b) for a, b in zip(widths, widths[1:], strict=False)]
    first = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    body = nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Model(body, nn.Linear(64, item.num_classes))


# name: (as everybody writes it, as our engine has it)
MODELS = {
    "emnist_cnn": (_plain_cnn, lambda item: emnist_cnn.build(item.num_classes)),
    "mlp": (_mlp, _mlp),
    "linear": (_linear, _linear),
    "lenet5": (lambda item: _lenet5(item, True), lambda item: _lenet5(item, False)),
    "mobilenet_v2": (
        _plain_mobilenet,
        lambda item: mobilenet_v2.build(item.num_classes, DROPOUT),
    ),
    "resnet20": (_resnet20, _resnet20),
}
