"""All architectures by name; each builds a module that computes logits as `head(body(x))`.

To add one: write `fedlib/models/<name>.py` with `build(**params) -> nn.Module`, then its name
here, and its number of parameters in `tests/models/test_models.py`. A module is imported only when
used.
"""

from importlib import import_module

MODELS = (
    "char_lstm",
    "cifar_resnet18",
    "constant",
    "emnist_cnn",
    "fedmoe_cnn",
    "gate_cnn",
    "ifca_cnn",
    "leaf_cnn",
    "lenet5",
    "linear",
    "mlp",
    "mobilenet_v2",
    "pfedmoe_cnn",
    "pfedmoe_gate",
    "resnet20",
    "transformer",
    "vae",
)


def load(name: str):
    """The module `fedlib.models.<name>`, whose `build` makes the architecture.

    Raises:
      KeyError: for an unknown name; the message lists the choices.
    """
    if name not in MODELS:
        raise KeyError(f"no model {name!r}; there are {', '.join(MODELS)}")
    return import_module(f"fedlib.models.{name}")
