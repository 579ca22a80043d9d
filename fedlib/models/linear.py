"""Multinomial logistic regression, with a single logit for two classes.

Source: FedEM's synthetic experiment, one `Linear(150, 1)` per expert (151 parameters).
"""

from torch import nn

from fedlib.models.layers.network import Network


def build(in_features: int, num_classes: int) -> nn.Module:
    """Flatten | Linear, newly initialised: [B, ...] -> [B, L], or [B, 1] for two classes"""
    return Network([nn.Flatten()], nn.Linear(in_features, 1 if num_classes == 2 else num_classes))
