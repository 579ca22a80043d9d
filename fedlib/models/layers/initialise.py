"""How the networks of Adaptive Expert Models are drawn, and what tells clusters apart at first.

Source: EricssonResearch/fl-moe; specification section 5.4: torch's defaults, then convolution
weights that are Glorot uniform and biases of linear layers that are 0.01. The official clusters
are copies of one network whose convolution weights alone are drawn again.
"""

from collections.abc import Callable

import torch
from torch import nn

from fedlib.errors import ConfigError

INITS = ("official", "torch")
LINEAR_BIAS = 0.01


def initialise(module: nn.Module, init: str) -> nn.Module:
    """`module` itself, drawn as `init` says: "official", see above, or "torch", as it is.

    Raises:
      ConfigError: for any other `init`.
    """
    if init not in INITS:
        raise ConfigError(f"no init {init!r}; choose one of {', '.join(INITS)}")
    if init == "official":
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.xavier_uniform_(layer.weight)
            elif isinstance(layer, nn.Linear):
                nn.init.constant_(layer.bias, LINEAR_BIAS)
    return module


def convolution_weights(build: Callable[[], nn.Module]) -> frozenset[str]:
    """Names of the convolution weights, biases left out, of the module that `build` makes."""
    with torch.random.fork_rng(devices=[]):
        module = build()
    return frozenset(
        f"{path}.weight" for path, layer in module.named_modules() if isinstance(layer, nn.Conv2d)
    )
