"""A perceptron with one hidden layer, for the handwritten digits that come with scikit-learn."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Flatten, Linear, ReLU | Linear."""

    def __init__(self, in_features: int, hidden: int, num_classes: int):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(in_features, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, ...] -> [B, L]"""
        return self.head(self.body(x))


def build(in_features: int, hidden: int, num_classes: int) -> nn.Module:
    """The architecture, freshly drawn."""
    return MLP(in_features, hidden, num_classes)
