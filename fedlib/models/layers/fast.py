"""Layers of torch in faster versions for a CPU.

`Pointwise`, `Depthwise`, `Normalised` and `ReLU6` save little for large images, and half of the
time for maps of a few pixels; `MaxPool2d` saves nearly all of it. If clients are stacked, all use
torch's own layers, which can be batched over clients.
"""

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from fedlib.engine import ambient


class MaxPool2d(nn.MaxPool2d):
    """`torch.nn.MaxPool2d` with the channels last in memory, which takes a CPU a tenth of the time.

    The next layers keep this layout, which suits convolutions too.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, H, W] -> [B, F, H', W']"""
        if x.device.type == "cpu" and not ambient.experts_are_stacked():
            x = x.contiguous(memory_format=torch.channels_last)
        return super().forward(x)


class Pointwise(nn.Module):
    """A 1 x 1 convolution without bias, as a matrix product over the pixels.

    With the channels last in memory nothing is copied; any other layout is changed to it.

    Attributes:
      weight: [outputs, inputs, 1, 1], as in `torch.nn.Conv2d`.
    """

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight.detach())

    def forward(self, x: Tensor, scale: Tensor | None = None, shift: Tensor | None = None):
        """[B, inputs, H, W] -> [B, outputs, H, W], times `scale` plus `shift` [outputs] if given"""
        weight = _scale(self.weight, scale)
        if ambient.experts_are_stacked():
            return F.conv2d(x, weight, shift)
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1), shift).permute(0, 3, 1, 2)


class Depthwise(nn.Module):
    """A 3 x 3 convolution of every channel with its own kernel; padding 1, without bias.

    On a map of one pixel only the centre of the kernel matters; the rest meets padding. For maps of
    2 x 2, torch's gradient of the kernels is ten times as slow as necessary.

    Attributes:
      weight: [channels, 1, 3, 3], as in `torch.nn.Conv2d`.
      stride: in both directions.
    """

    def __init__(self, weight: Tensor, stride: int = 1):
        super().__init__()
        self.weight = nn.Parameter(weight.detach())
        self.stride = stride

    def forward(self, x: Tensor, scale: Tensor | None = None, shift: Tensor | None = None):
        """[B, channels, H, W] -> [B, channels, H / stride, W / stride], rounded up

        Times `scale` plus `shift` [channels] if given.
        """
        weight = _scale(self.weight, scale)
        if x.shape[-2:] == (1, 1):
            centre = x * weight[:, 0, 1:2, 1:2]
            return centre if shift is None else centre + shift[:, None, None]
        if x.shape[-2:] == (2, 2) and shift is None and not ambient.experts_are_stacked():
            return _TwoByTwo.apply(x, weight, self.stride)
        return _depthwise(x, weight, self.stride, shift)


class Normalised(nn.Sequential):
    """Layers in which batch normalisation follows every `Pointwise` and `Depthwise`.

    In evaluation mode the normalisation is a fixed scale and shift of each channel. The convolution
    applies them, which saves a pass over the maps.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, ...]"""
        layers = iter(self)
        for layer in layers:
            folds = isinstance(layer, (Pointwise, Depthwise)) and not self.training
            x = layer(x, *_scale_and_shift(next(layers))) if folds else layer(x)
        return x


class ReLU6(nn.Module):
    """min(max(x, 0), 6) in place, after a layer that does not need its output again.

    `torch.nn.ReLU6(inplace=True)` copies its input for the backward pass. This keeps only the
    output, which also shows where the slope is 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[...] -> [...]"""
        return F.relu6(x) if ambient.experts_are_stacked() else _ReLU6.apply(x)


def _scale(weight: Tensor, scale: Tensor | None) -> Tensor:
    """Kernels [outputs, ...] times `scale` [outputs]"""
    return weight if scale is None else weight * scale[:, None, None, None]


def _scale_and_shift(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Scale and shift of batch normalisation in evaluation mode -> each [channels]"""
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return scale, norm.bias - norm.running_mean * scale


def _depthwise(x: Tensor, weight: Tensor, stride: int, shift: Tensor | None = None) -> Tensor:
    return F.conv2d(x, weight, shift, stride, padding=1, groups=len(weight))


class _TwoByTwo(Function):
    """`_depthwise` of maps [B, channels, 2, 2], with a faster gradient of the kernels."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, stride: int) -> Tensor:
        return _depthwise(x, weight, stride)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        x, weight, ctx.stride = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        return _input_gradient(x, weight, ctx.stride, grad), _kernel_gradient(x, grad), None


def _input_gradient(x: Tensor, weight: Tensor, stride: int, grad: Tensor) -> Tensor:
    """Gradient of `_depthwise` with respect to `x`: torch's, without that of the kernels."""
    ones, zeros = [1, 1], [0, 0]
    settings = [stride, stride], ones, ones, False, zeros, len(weight)
    backward = torch.ops.aten.convolution_backward
    return backward(grad, x, weight, None, *settings, [True, False, False])[0]


def _kernel_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """Gradient of the kernels: maps x [B, C, 2, 2] and grad [B, C, P, P] -> [C, 1, 3, 3]

    The output at (i, j) sees the input at (k, l) through the kernel's entry (1 + k - i, 1 + l - j),
    for any stride: with stride 2 there is only the output at (0, 0).
    """
    seen = x.permute(0, 2, 3, 1)[:, None, None]  # [B, 1, 1, 2, 2, C]
    pairs = (seen * grad.permute(0, 2, 3, 1)[:, :, :, None, None]).sum(0)  # [P, P, 2, 2, C]
    outputs = range(grad.shape[-1])
    placed = [F.pad(pairs[i, j], (0, 0, 1 - j, j, 1 - i, i)) for i in outputs for j in outputs]
    return sum(placed).permute(2, 0, 1).unsqueeze(1)


class _ReLU6(Function):
    """ReLU6 in place that keeps its output for the backward pass."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp_(0, 6)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(grad, output, 0, 6)
