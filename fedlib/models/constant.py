"""A model that ignores its input and learns the frequencies of the labels.

The lead of another model over it shows how much that model learns from inputs, which can be little
if each client has few classes.
"""

from torch import Tensor, nn


class Nothing(nn.Module):
    """One feature, which is always 0."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, 1]"""
        return x.flatten(1)[:, :1] * 0


class Constant(nn.Module):
    """Nothing | Linear."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.body = Nothing()
        self.head = nn.Linear(1, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, ...] -> [B, L]"""
        return self.head(self.body(x))


def build(num_classes: int) -> nn.Module:
    """The architecture, newly initialised."""
    return Constant(num_classes)
