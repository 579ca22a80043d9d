"""Batch normalisation for modules that may train on a single example."""

from torch import Tensor, nn


class SinglesBatchNorm1d(nn.BatchNorm1d):
    """In training, leaves a batch of one example unchanged: there is nothing to average over."""

    takes_single_examples = True

    def forward(self, x: Tensor) -> Tensor:
        """Normalised: [B, F] -> [B, F]"""
        return x if self.training and len(x) == 1 else super().forward(x)
