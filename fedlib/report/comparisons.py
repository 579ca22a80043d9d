"""Comparisons of protocols, several ways to predict after one training, and of variants of runs.

A protocol is declared as {"name": in evaluations, "key": in published numbers and colours, "title":
for readers}; key and title are optional. A key replaces the uninformative name "default": that of
IFCA is {"name": "default", "key": "ifca"}. Protocols are lists, because keys of JSON lose their
order.

Variants are runs that differ in one hyper-parameter, such as their exploration: {"parameter":
dotted path into a run's params, "values": [{"value", "title"}, ...]}.
"""

from typing import NamedTuple

import pandas as pd

from fedlib.errors import ConfigError, DataError, brief
from fedlib.report import exhibits, printed
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.spec import Data, ExhibitSpec
from fedlib.spec.exhibits import Protocol

TITLES = {  # of keys that are not registry names of methods
    "moe": "MoE",
    "moe_gate": "MoE, gate alone",
    "moe_joint": "MoE, all trained",
    "ensemble": "Ensemble",
    "finetuned": "Fine-tuned",
    "new_shard": "New shard, no labels",
    "new_shard_vae": "New shard, VAE",
}
GROUPS = {
    "seen": "clients that train",
    "unseen": "clients that took no part in training",
    "server": "server",
}
MEAN = "accuracy_client_mean"
METRICS = {
    MEAN: "mean accuracy of the clients, each counting the same",
    "accuracy": "accuracy pooled over the examples of all clients",
}


class Variants(NamedTuple):
    """Titles of the variants, in order, and each run's position in them, by (federation, label)."""

    titles: list[str]
    of: dict[tuple[str, str], int]


def protocol_title(key: str) -> str:
    """The title of a protocol that declares none, by its key."""
    return TITLES.get(key) or exhibits.method_title(key)


def complete_protocols(protocols: list[Protocol]) -> list[Protocol]:
    """The protocols of an exhibit with their keys and titles."""
    return [
        Protocol(name, key or name, title or protocol_title(key or name))
        for name, key, title in protocols
    ]


def variants(exhibit: ExhibitSpec, declared: dict) -> Variants:
    """The variants of an exhibit's runs.

    Raises:
      ConfigError: if a run does not state the parameter, or has a value that is not listed.
    """
    values = [variant["value"] for variant in declared["values"]]
    of = {}
    for run in exhibit.runs:
        value = exhibits.setting(declared["parameter"], run)
        if value not in values:
            raise ConfigError(
                f"run {exhibits.name(run)} has {declared['parameter']} = {value!r}, which is none "
                f"of the variants {', '.join(map(repr, values))}"
            )
        of[run.federation, run.label] = values.index(value)
    return Variants([variant["title"] for variant in declared["values"]], of)


def accuracies(given: Inputs, shown: list[Protocol]) -> pd.DataFrame:
    """Mean test accuracy of the seen clients by run, protocol and seed after the last round.

    Returns:
      Columns federation, label, protocol, seed and value; a run has no row for a protocol that it
      lacks.

    Raises:
      DataError: if no run has one of the protocols.
    """
    key = ["federation", "label", "protocol", "seed"]
    where = {"at": "last", "split": PRIMARY.split, "group": PRIMARY.group, "metric": MEAN}
    mine = exhibits.pick(given.rows, **where)
    for protocol in shown:
        if not (mine["protocol"] == protocol.name).any():
            raise DataError(
                f"no run of {given.exhibit.name} was evaluated with the protocol {protocol.name!r}"
            )
    return mine[mine["protocol"].isin([protocol.name for protocol in shown])][[*key, "value"]]


def selection_note(exhibit: ExhibitSpec) -> list[str]:
    """A sentence that runs stop early by test accuracy, if any declares this; else none."""
    if not any(run.params.get("stop_split") == "test" for run in exhibit.runs):
        return []
    return [
        "Early stopping and model selection use the test examples, so these numbers are optimistic."
    ]


def find_published(
    given: Inputs, federation: Data, label: str, key: str, metric: str, exhibit: str = ""
) -> printed.Value:
    """A published number as a fraction (a count unchanged), `printed.NONE` if it is not published.

    `exhibit`, by default the exhibit's `published`, is a pattern, such as
    "table2-p{p:.1f}-{label}", of the label of a run and the params of its federation. A number
    counts only for its own data set.

    Raises:
      ConfigError: if the pattern has a field that the federation lacks.
    """
    pattern = exhibit or given.exhibit.published
    if given.published is None or pattern is None:
        return printed.NONE
    try:
        name = pattern.format(**{**federation.partition, "label": label})
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"published {pattern!r} does not fit {federation.name}, which has "
            f"{', '.join(federation.partition)}: {brief(error)}"
        ) from None
    found = printed.fractions(given.published, name, metric)
    return found.get((federation.dataset, key), printed.NONE)
