"""Data sets by name, each a module with `NUM_CLASSES`, `sources(**params)` and `build(raw, ...)`.

Which raw files a data set needs may depend on its parameter `source` alone.

Nothing is imported before it is asked for, so that the code digest of a job contains only the data
set it uses.
"""

import dataclasses
import importlib
import inspect
from pathlib import Path
from types import ModuleType

from fedlib import streams
from fedlib.errors import ConfigError
from fedlib.federation import Federation

NAMES = (
    "angled_digits",
    "angled_mnist",
    "cifar10",
    "cifar100",
    "digits",
    "emnist",
    "femnist",
    "hierarchical_cifar100",
    "hsu_cifar10",
    "hsu_digits",
    "majority_cifar10",
    "majority_digits",
    "mnist",
    "official_femnist",
    "permuted_cifar10",
    "permuted_digits",
    "rotated_cifar10",
    "rotated_digits",
    "shakespeare",
    "synthetic",
    "synthetic_text",
    "two_shard_digits",
    "two_shard_mnist",
)
WEIGHTS = ("mobilenet_v2_weights",)  # downloads with `sources` alone


def load(name: str) -> ModuleType:
    """The module of the data set, or of the download, `name`.

    Raises:
      ConfigError: if there is none of that name.
    """
    if name not in NAMES and name not in WEIGHTS:
        raise ConfigError(f"no data set {name!r}; choose one of {', '.join(NAMES)}")
    return importlib.import_module(f"fedlib.data.{name}")


def dataset_of(spec: dict) -> str:
    """The data set that a data spec names, as `fedlib.spec.Data.spec` gives it.

    Raises:
      ConfigError: if it is not a data spec, or there is no such data set.
    """
    if set(spec) - {"replicate"} != {"dataset", "params"}:
        raise ConfigError(
            "a data spec has the keys dataset and params, and may have replicate, got "
            f"{sorted(spec)}"
        )
    if spec["dataset"] not in NAMES:
        raise ConfigError(f"no data set {spec['dataset']!r}; choose one of {', '.join(NAMES)}")
    return spec["dataset"]


def build(spec: dict, raw: str | Path) -> Federation:
    """The federation declared by `spec`, made from the raw files below the folder `raw`.

    Args:
      spec: {"dataset": name, "params": keyword arguments of that module's `build`}, and with
        "replicate" the training seed for which it is cut; the federation carries it along.
      raw: the folder data/raw.

    Raises:
      ConfigError: for a data set or parameter that does not exist or makes no sense.
      DataError: if a raw file is missing or not the official one.
    """
    module, params = load(dataset_of(spec)), _params(spec)
    signature = inspect.signature(module.build)
    try:
        signature.bind(Path(raw), **params)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[1:])
        raise ConfigError(f"data set {spec['dataset']}: {error}; it takes {known}") from None
    return dataclasses.replace(module.build(Path(raw), **params), spec=spec)


def _params(spec: dict) -> dict:
    """Arguments of the data set: as declared, for a replicate with a seed drawn for it.

    Raises:
      ConfigError: for a replicate of what is cut without a seed.
    """
    if "replicate" not in spec:
        return spec["params"]
    if "seed" not in spec["params"]:
        raise ConfigError(f"data set {spec['dataset']} has no seed, so it has no replicates")
    stream = streams.generator(spec["params"]["seed"], "replicate", spec["replicate"])
    return {**spec["params"], "seed": int(stream.integers(2**31))}
