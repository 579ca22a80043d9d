"""The CNN of FedEM and pFedMM for EMNIST and FEMNIST (2,278,334 parameters for 62 classes).

Source: omarfoq/FedEM, models.py (FemnistCNN); Archipes/pFedMM, models.py.
Deviation: ReLU follows the pooling instead of preceding it; the maximum commutes with ReLU, so this
is the same function on a quarter of the elements.
"""

from torch import nn

from fedlib.models.layers.conv import two_convolutions
from fedlib.models.layers.network import Network


def build(num_classes: int) -> nn.Module:
    """Two convolutions and a hidden layer | Linear, newly initialised."""
    body = two_convolutions(1, (32, 64), hidden=2048, side=28, padding=0)
    return Network(body, nn.Linear(2048, num_classes))
