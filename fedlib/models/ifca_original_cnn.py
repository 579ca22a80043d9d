"""IFCA's own CNN for rotated CIFAR-10, with its crops of 24 x 24 pixels (1,068,298 parameters).

In training each image is cropped at random, mirrored with probability 1/2, and changed in contrast;
in evaluation it is cropped to its centre. Then each image is standardised by its own pixels.

Source: A. Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020;
  jichan3751/ifca, cifar/cifar10.py and train_cluster_cifar_tf.py; the paper's README,
  section 5.2.
Deviation: each image of a batch has its own crop and contrast; the code draws one for all. The
  code's random brightness is left out, because standardisation cancels it. The code standardises
  raw pixels; here the federation's channels are scaled before, by nearly equal factors.
"""

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedlib.errors import ConfigError
from fedlib.models.ifca_cnn import TENSORFLOW_WINDOW
from fedlib.models.layers.augment import Centre, Contrast, CropFlip, Standardise
from fedlib.models.layers.conv import KERNEL, LocalResponse, Network
from fedlib.models.layers.fast import MaxPool2d

CROP = 24  # pixels
DECAY = 0.004  # of the weights of the hidden layers


def build(
    num_classes: int,
    conv1: int = 64,
    conv2: int = 64,
    hidden1: int = 384,
    hidden2: int = 192,
    in_channels: int = 3,
    side: int = 32,
    decay: float = DECAY,
) -> nn.Module:
    """Two normalised convolutions and two hidden layers | Linear.

    Args:
      num_classes: L.
      conv1, conv2: channels of the convolutions.
      hidden1, hidden2: units of the hidden layers.
      in_channels, side: of an image, of at least 24 pixels a side.
      decay: factor in the loss of half the squared weights of each hidden layer.

    Raises:
      ConfigError: if images are too small.
    """
    if side < CROP:
        raise ConfigError(f"side must be at least {CROP}, got {side}")
    pool = MaxPool2d(3, 2, ceil_mode=True)  # TensorFlow's SAME: begins at the corner, 12, 6
    body = [
        CropFlip(pad=(side - CROP) // 2),  # the centre never has padding
        Centre(CROP),
        Contrast(0.2, 1.8),
        Standardise(),
        drawn(nn.Conv2d(in_channels, conv1, KERNEL, padding=2), std=0.05, bias=0.0),
        pool,
        nn.ReLU(),  # after the pool, which is the same function
        LocalResponse(**TENSORFLOW_WINDOW),
        drawn(nn.Conv2d(conv1, conv2, KERNEL, padding=2), std=0.05, bias=0.1),
        nn.ReLU(),
        LocalResponse(**TENSORFLOW_WINDOW),
        pool,  # [B, conv2, 6, 6]
        nn.Flatten(),
        drawn(DecayedLinear(conv2 * (CROP // 4) ** 2, hidden1, decay), std=0.04, bias=0.1),
        nn.ReLU(),
        drawn(DecayedLinear(hidden1, hidden2, decay), std=0.04, bias=0.1),
        nn.ReLU(),
    ]
    return Network(body, [drawn(nn.Linear(hidden2, num_classes), std=1 / 192, bias=0.0)])


def drawn(layer: nn.Module, *, std: float, bias: float) -> nn.Module:
    """`layer` with constant biases, and normal weights truncated at two deviations."""
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    nn.init.constant_(layer.bias, bias)
    return layer


class DecayedLinear(nn.Linear):
    """A linear layer with weight decay, as by a penalty in the mean loss of a batch.

    The penalty is only in the gradient: no reported loss contains it.

    Attributes:
      decay: factor of half the squared weights.
    """

    def __init__(self, inputs: int, outputs: int, decay: float):
        super().__init__(inputs, outputs)
        self.decay = decay

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] -> [B, outputs]"""
        weight = _Penalty.apply(self.weight, self.decay) if self.training else self.weight
        return nn.functional.linear(x, weight, self.bias)


class _Penalty(Function):
    """The identity of `weight`, whose gradient gains that of decay / 2 * |weight|^2."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, decay: float) -> Tensor:
        return weight.clone()

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        weight, ctx.decay = inputs
        ctx.save_for_backward(weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return torch.add(grad, weight, alpha=ctx.decay), None
