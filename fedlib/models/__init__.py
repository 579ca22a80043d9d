"""All architectures by name, the files of this folder; each builds `head(body(x))`.

To add one: write `fedlib/models/<name>.py` with `build(**params) -> nn.Module`, and its number of
parameters in `tests/models/test_models.py`. A module is imported only when it is used.
"""

from importlib import import_module
from pathlib import Path

from fedlib.errors import ConfigError, nearest
from fedlib.files import modules

MODELS = modules(Path(__file__).parent)


def load(name: str):
    """The module `fedlib.models.<name>`, whose `build` makes the architecture.

    Raises:
      ConfigError: for an unknown name.
    """
    if name not in MODELS:
        raise ConfigError(f"no model {name!r}; {nearest(name, MODELS)}")
    return import_module(f"fedlib.models.{name}")
