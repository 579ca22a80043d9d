"""Multinomial logistic regression, with a single logit for two classes.

Source: FedEM's synthetic experiment, one `Linear(150, 1)` per expert (151 parameters).
"""

from torch import Tensor, nn


class Linear(nn.Module):
    """Affine map of the flattened input; the body is the identity."""

    def __init__(self, in_features: int, num_classes: int):
        super().__init__()
        self.body = nn.Flatten()
        self.head = nn.Linear(in_features, 1 if num_classes == 2 else num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, ...] -> [B, L], or [B, 1] for two classes"""
        return self.head(self.body(x))


def build(in_features: int, num_classes: int) -> nn.Module:
    """The architecture, newly initialised."""
    return Linear(in_features, num_classes)
