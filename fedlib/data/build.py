"""Federations from declarations: a data set and a partition."""

import dataclasses
import inspect
from collections.abc import Collection
from pathlib import Path

from fedlib import streams
from fedlib.data import partitions, sources
from fedlib.data.checks import check_choice, check_names, validate
from fedlib.data.examples import FEATURES, Examples
from fedlib.data.partitions import Partition
from fedlib.errors import ConfigError, DataError
from fedlib.federation import Federation

KEYS = ("dataset", "params", "partition", "seed")


def build(spec: dict, raw: str | Path) -> Federation:
    """The federation declared by `spec`, made from the raw files below the folder `raw`.

    Args:
      spec: {"dataset": name, "params": keyword arguments of that data set's `read`, "partition":
        {"kind": name, parameters}, "seed": of every draw}, as returned by `fedlib.spec.Data.spec`;
        with "replicate", the training seed, for a partition per seed. The federation keeps `spec`.
      raw: the folder data/raw.

    Raises:
      ConfigError: as `check`.
      DataError: if a raw file is missing or not the official one, or a user's files lack a feature
        that the partition needs.
    """
    partition = check(spec)
    read, seed = sources.load(spec["dataset"]).read, seed_of(spec)
    drawn = {"seed": seed} if "seed" in inspect.signature(read).parameters else {}
    examples = read(Path(raw), **spec["params"], **drawn)
    check_examples(partition, examples, spec)
    return dataclasses.replace(partition.deal(examples, seed).federation(), spec=spec)


def check(spec: dict) -> Partition:
    """The partition that `spec` declares, after all checks that need no files.

    Raises:
      ConfigError: for a data set, partition or parameter that does not exist or is invalid, or for
        a data set that lacks a feature that the partition needs.
    """
    roots(spec)
    dataset, params, kind = spec["dataset"], spec["params"], spec["partition"]["kind"]
    read = sources.load(dataset).read
    check_names(f"data set {dataset}", params, read, "raw", "seed")
    takes = inspect.signature(read).parameters
    for name, value in params.items():
        validate(name, value, takes[name].annotation)
    validate("seed", spec["seed"], int)
    partition = partitions.parse(spec["partition"])
    source = params.get("source")
    if missing := _missing(partition, sources.has(dataset, source)):
        name = f"{dataset} from source {source}" if source else dataset
        raise ConfigError(f"partition {kind} needs {missing}, which {name} does not have")
    return partition


def roots(spec: dict) -> tuple[str, str]:
    """The modules that `build` loads by name.

    Raises:
      ConfigError: if `spec` is no data spec, or its data set or partition does not exist.
    """
    if set(spec) - {"replicate"} != {*KEYS}:
        raise ConfigError(
            f"a data spec has the keys {', '.join(KEYS)}, and may have replicate, got "
            f"{sorted(spec)}"
        )
    dataset = spec["dataset"]
    if not isinstance(spec["params"], dict):
        raise ConfigError(f"params of a data spec are a JSON object, got {spec['params']!r:.80}")
    check_choice("data set", dataset, sources.NAMES)
    kind = partitions.kind_of(spec["partition"])
    return f"fedlib.data.sources.{dataset}", f"fedlib.data.partitions.{kind}"


def seed_of(spec: dict) -> int:
    """The seed of all draws: the declared one, or for a replicate one drawn from it."""
    if "replicate" not in spec:
        return spec["seed"]
    number = validate("replicate", spec["replicate"], int)
    return int(streams.generator(spec["seed"], "replicate", number).integers(2**31))


def check_examples(partition: Partition, examples: Examples, spec: dict) -> None:
    """Raises DataError if a user's own files lack a feature that the partition needs."""
    if missing := _missing(partition, examples.features):
        kind, source = spec["partition"]["kind"], spec["params"].get("source")
        name = f"{spec['dataset']} {source}" if source else spec["dataset"]
        raise DataError(f"partition {kind} needs {missing}, which the files of {name} do not have")


def _missing(partition: Partition, there: Collection[str]) -> str:
    """The features that a partition needs and are not `there`, in words; "" if it has all."""
    return " and ".join(FEATURES[need] for need in partition.needs if need not in there)
