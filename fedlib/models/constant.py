"""A model that ignores its input and learns the frequencies of the labels.

The lead of another model over it shows how much that model learns from inputs, which can be little
if each client has few classes.
"""

from torch import Tensor, nn

from fedlib.models.layers.network import Network


class Nothing(nn.Module):
    """One feature, which is always 0."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, ...] -> [B, 1]"""
        return x.flatten(1)[:, :1] * 0.0  # a fraction even if x are whole numbers


def build(num_classes: int) -> nn.Module:
    """Nothing | Linear, newly initialised."""
    return Network([Nothing()], nn.Linear(1, num_classes))
