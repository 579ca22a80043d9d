"""Switchable normalisation: a learned mix of the statistics of other normalisations.

Batch statistics come from the batch in training, and are running ones in evaluation, so that a
prediction does not depend on the rest of its batch.

Source: P. Luo et al., "Differentiable Learning-to-Normalize via Switchable Normalization", ICLR
  2019, as used by pFedMoE; specification of pFedMoE, section 2.1.
Deviation: variances are biased (the unbiased one of a single example is NaN), and running variances
  start at 1 and move by a tenth per step. A common implementation moves them by 0.003 from 0: after
  80 steps they are a fifth of the true ones, and evaluation differs much from training.
"""

import torch
from torch import Tensor, nn

EPSILON = 1e-5
MOMENTUM = 0.1  # share of the new batch in the running statistics


class _SwitchNorm(nn.Module):
    """Base class: learned shares of the statistics, and running batch statistics."""

    takes_single_examples = True

    def __init__(self, features: int, num_statistics: int, shape: tuple[int, ...]):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.mean_shares = nn.Parameter(torch.zeros(num_statistics))  # logits: equal at first
        self.var_shares = nn.Parameter(torch.zeros(num_statistics))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def _of_batch(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Statistics of the batch [F] in training, where they update the running ones."""
        if not self.training:
            return self.running_mean, self.running_var
        with torch.no_grad():
            # Not by lerp_, which torch.func.vmap runs client by client.
            self.running_mean.mul_(1 - MOMENTUM).add_(mean.detach(), alpha=MOMENTUM)
            self.running_var.mul_(1 - MOMENTUM).add_(var.detach(), alpha=MOMENTUM)
        return mean, var

    def _normalise(self, x: Tensor, means: list[Tensor], variances: list[Tensor]) -> Tensor:
        """`x` normalised by the mix of these statistics, which broadcast with `x`."""
        mean = sum(w * m for w, m in zip(self.mean_shares.softmax(0), means, strict=True))
        var = sum(w * v for w, v in zip(self.var_shares.softmax(0), variances, strict=True))
        return (x - mean) * (var + EPSILON).rsqrt() * self.weight + self.bias


class SwitchNorm1d(_SwitchNorm):
    """Statistics of the example and of the batch, for inputs [B, F].

    In training, a batch of one example takes the statistics of the example.
    """

    def __init__(self, features: int):
        super().__init__(features, 2, (features,))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised: [B, F] -> [B, F]"""
        row_mean, row_var = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
        if self.training and len(x) == 1:
            return self._normalise(x, [row_mean] * 2, [row_var] * 2)
        mean, var = self._of_batch(x.mean(0), x.var(0, correction=0))
        return self._normalise(x, [row_mean, mean], [row_var, var])


class SwitchNorm2d(_SwitchNorm):
    """Statistics of the map, of the example and of the batch, for inputs [B, F, H, W]."""

    def __init__(self, features: int):
        super().__init__(features, 3, (features, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalised: [B, F, H, W] -> [B, F, H, W]"""
        map_mean = x.mean((2, 3), keepdim=True)  # [B, F, 1, 1]
        map_var = x.var((2, 3), correction=0, keepdim=True)
        square = map_var + map_mean**2
        row_mean = map_mean.mean(1, keepdim=True)
        row_var = square.mean(1, keepdim=True) - row_mean**2
        mean = map_mean.mean((0, 2, 3))
        mean, var = self._of_batch(mean, square.mean((0, 2, 3)) - mean**2)
        mean, var = mean[:, None, None], var[:, None, None]
        return self._normalise(x, [map_mean, row_mean, mean], [map_var, row_var, var])
