"""Initialisation of the networks of Adaptive Expert Models, and of its clusters.

Source: EricssonResearch/fl-moe; the README of Adaptive Expert Models, section 5.4: torch's
defaults, then Glorot uniform weights of convolutions, and biases 0.01 of linear layers. The
official clusters are copies of one network; only their convolution weights are drawn again.
"""

from collections.abc import Callable

from torch import nn

from fedlib import draws

LINEAR_BIAS = 0.01


def initialise(module: nn.Module) -> nn.Module:
    """`module` itself, initialised as above."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
        elif isinstance(layer, nn.Linear):
            nn.init.constant_(layer.bias, LINEAR_BIAS)
    return module


def convolution_weights(build: Callable[[], nn.Module]) -> frozenset[str]:
    """Names of the convolution weights, without biases, in the module from `build`."""
    with draws.aside():
        module = build()
    return frozenset(
        f"{path}.weight" for path, layer in module.named_modules() if isinstance(layer, nn.Conv2d)
    )
