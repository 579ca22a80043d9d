"""The CNN of FedEM and pFedMM for EMNIST and FEMNIST (2,278,334 parameters for 62 classes).

Source: omarfoq/FedEM, models.py (FemnistCNN); Archipes/pFedMM, models.py.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so this
is the same function on a quarter of the elements.
"""

from torch import Tensor, nn

from fedlib.models.layers.fast import MaxPool2d


class EmnistCNN(nn.Module):
    """Two convolutions and a hidden layer | Linear."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=5),  # [B, 32, 24, 24]
            MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=5),  # [B, 64, 8, 8]
            MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),  # [B, 1024]
            nn.Linear(1024, 2048),
            nn.ReLU(),
        )
        self.head = nn.Linear(2048, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, 1, 28, 28] -> [B, L]"""
        return self.head(self.body(x))


def build(num_classes: int) -> nn.Module:
    """The architecture, newly initialised."""
    return EmnistCNN(num_classes)
