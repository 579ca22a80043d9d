"""Which views tables and figures show, and so what a final evaluation has to score.

A view is (group, protocol, split), see `fedlib.results.View`; "*" stands for any. An exhibit says
in its params what it shows: a mapping, however deep, with a "protocol", "group" or "split" is a
view, and a list "protocols" is one for each, by name or {"name": ...}. What is left out is that of
the primary view: seen clients, protocol "default", split "test". If a mapping also names a
"federation" or "label", it is about that run alone. Some kinds show more than their params say.

Some metrics need what was predicted for each example, not counts of right ones. An exhibit asks for
that by naming one of `OF_PREDICTIONS` anywhere in its params.

What training evaluates on the way is there in any case, and so is the default protocol on what is
held out. A kind that shows more than these and its params must be in `KINDS`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fedlib.spec import Paper, Table

Pattern = tuple[str, str, str]
PRIMARY: dict[str, str] = {"group": "seen", "protocol": "default", "split": "test"}
EVERYTHING: Pattern = ("*", "*", "*")
# Of `fedlib.exhibits.metrics.definitions`, which this does not import: plans need no NumPy.
OF_PREDICTIONS = frozenset({"macro_f1", "auc"})
KINDS: dict[str, dict[str, str]] = {  # what these show besides, where their params do not say
    "unseen": {"group": "unseen", "protocol": "*"},
    "gate_weights": {"protocol": "moe"},  # that of the mixtures whose gates it shows
    "global_accuracy": {"group": "server", "protocol": "last"},  # of methods that choose a state
}


def views(exhibit: Table, federation: str, label: str) -> set[Pattern]:
    """What a table or figure shows of one of its runs; the primary view goes without saying."""
    given = {**PRIMARY, **KINDS.get(exhibit.kind, {})}
    run = {"federation": federation, "label": label}
    return set(_found(exhibit.params, given, run)) - {_view(PRIMARY)}


def tested(paper: Paper, federation: str, label: str) -> list[str]:
    """Whose test examples every method must be able to predict that is shown where this run is.

    Clients that train always have a predictor and unseen ones may have none. A server has test
    examples where clients have not, and what cannot predict them has no number at all.
    """
    exhibits = [*paper.tables.values(), *paper.figures.values()]
    about = [exhibit for exhibit in exhibits if exhibit.shows(federation, label)]
    primary = ("server", "default", "test")
    return ["server"] if any(primary in views(x, federation, label) for x in about) else []


def shows_predictions(exhibit: Table) -> bool:
    """Whether a table or figure shows metrics of single predictions."""
    return not OF_PREDICTIONS.isdisjoint(_strings(exhibit.params))


def _strings(value: Any) -> Iterator[str]:
    """All strings in a value of params; of mappings the values, not the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)


def _found(value: Any, given: Mapping[str, str], run: Mapping[str, str]) -> Iterator[Pattern]:
    """The views of a value of params; what a mapping says holds for all that is in it."""
    if isinstance(value, Mapping):
        if any(value.get(key, name) != name for key, name in run.items()):
            return
        given = {**given, **_own(value)}
        yield _view(given)
        for protocol in value.get("protocols", ()):
            name = protocol["name"] if isinstance(protocol, Mapping) else protocol
            yield _view({**given, "protocol": name})
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _found(inner, given, run)


def _own(params: Mapping[str, Any]) -> dict[str, str]:
    return {key: params[key] for key in PRIMARY if isinstance(params.get(key), str)}


def _view(given: Mapping[str, str]) -> Pattern:
    return given["group"], given["protocol"], given["split"]
