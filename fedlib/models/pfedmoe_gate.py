"""The gate of pFedMoE: two linear layers on the raw image, and one of several normalisations.

A softmax of its two outputs gives the weights of the global and of the local expert, in this order.
It is small: for 64 hidden units and images of 3 x 32 x 32, the linear layers have 196,802
parameters, and switchable normalisation has 6,148 more.

Source: L. Yi et al., pFedMoE, 2024 (arXiv:2402.01350); pFedMoE's README, section 2. All
  descriptions have two linear layers, a sigmoid between them and switchable normalisation. The
  place of the normalisation, the width and any further normalisation are contradictory or missing,
  hence the arguments.
"""

from torch import nn

from fedlib.models.layers.augment import distortions
from fedlib.models.layers.batch_norm import SinglesBatchNorm1d
from fedlib.models.layers.network import Network
from fedlib.models.layers.switch_norm import SwitchNorm1d, SwitchNorm2d

# Layers after the flattening, and after the first linear layer.
INPUT_NORMS = {
    "switch1d": [SwitchNorm1d],
    "switch2d": [],  # before the flattening
    "batch1d": [SinglesBatchNorm1d],
    "layer": [nn.LayerNorm],
    "none": [],
}
HIDDEN_NORMS = {"none": [], "batch": [SinglesBatchNorm1d], "layer": [nn.LayerNorm]}


def build(
    num_classes: int = 2,
    hidden: int = 64,
    input_norm: str = "switch1d",
    hidden_norm: str = "none",
    in_channels: int = 3,
    side: int = 32,
    augment: bool = False,
) -> nn.Module:
    """Normalisation, Flatten, Linear, Sigmoid | Linear, initialised as in torch.

    Args:
      num_classes: E, the number of experts.
      hidden: width; 64 and the other defaults are ours, see the module.
      input_norm: one of `INPUT_NORMS`; "switch2d" normalises the image, the others the flat input.
      hidden_norm: one of `HIDDEN_NORMS`, before the sigmoid; "batch" also normalises the outputs.
      in_channels, side: of an image.
      augment: as for the experts, so that gate and experts see the same images.

    Raises:
      ValueError: for an unknown normalisation.
    """
    given = ("input_norm", input_norm, INPUT_NORMS), ("hidden_norm", hidden_norm, HIDDEN_NORMS)
    for name, kind, known in given:
        if kind not in [*known]:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {kind!r}")
    features = in_channels * side**2
    body = [
        *distortions(augment),
        *([SwitchNorm2d(in_channels)] if input_norm == "switch2d" else []),
        nn.Flatten(),
        *(norm(features) for norm in INPUT_NORMS[input_norm]),
        nn.Linear(features, hidden),
        *(norm(hidden) for norm in HIDDEN_NORMS[hidden_norm]),
        nn.Sigmoid(),
    ]
    last = [SinglesBatchNorm1d(num_classes)] if hidden_norm == "batch" else []
    return Network(body, nn.Sequential(nn.Linear(hidden, num_classes), *last))
