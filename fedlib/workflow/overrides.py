"""Values of the configuration that replace declared ones: `set: [fedem.local.lr=0.03]`.

An override is NAME.KEY=VALUE. NAME is a federation, the label of a run on all federations, or
FEDERATION/LABEL. A run has the keys `RUN`, most of which have keys of their own (local.lr,
params.num_experts); a federation has partition, params and seed. The value is JSON, or a word; null
takes away what is declared: `[fedavg.local.solver=adam,fedavg.local.momentum=null]`.

`fedlib.workflow.preflight` checks the values, and keys without a declared one.

A value that is set is no longer tuned: it holds in all trials of a tuned run.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedlib.errors import ConfigError, nearest
from fedlib.spec import Data, Paper, Run

RUN = ("rounds", "evaluate_every", "local", "params", "model_params", "modules", "participation")
RUN += ("tuning", "precision")
DATA = ("partition", "params", "seed")
EXAMPLE = "set=[fedem.local.lr=0.03,emnist.partition.num_clients=50]"


class Override(NamedTuple):
    """A value for a key of a federation or of runs.

    Attributes:
      text: as given.
      target: everything before the value.
      value: parsed as JSON, or text.
    """

    text: str
    target: str
    value: Any


def parse(text: str) -> Override:
    """An override; ConfigError unless it has a name, a key and a value."""
    target, separator, value = (part.strip() for part in text.partition("="))
    if not separator or not value or "." not in target.strip("."):
        raise ConfigError(f"set: expected NAME.KEY=VALUE, such as {EXAMPLE}, got {text!r}")
    try:  # JSON has no NaN and Infinity, which int refuses
        return Override(text, target, json.loads(value, parse_constant=int))
    except ValueError:
        return Override(text, target, value)


def split(text: str) -> list[str]:
    """The overrides in one text, "[a.b=1,c.d=[2,3]]"; commas in brackets or quotes do not split."""
    inner = text.strip()
    inner = inner[1:-1] if inner.startswith("[") and inner.endswith("]") else inner
    parts, depth = [""], 0
    for piece in re.findall(r'"(?:[^"\\]|\\.)*"|.', inner, re.DOTALL):
        depth += (piece in "[{") - (piece in "]}")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def apply(papers: Mapping[str, Paper], given: Iterable[str]) -> dict[str, Paper]:
    """The papers with other values; ConfigError for unknown names and keys."""
    changed = dict(papers)
    found = [(*_name_and_keys(one, changed.values()), one) for one in map(parse, given)]
    # Those of a tuning first, to which the others add what is fixed; those of one run last.
    found.sort(key=lambda one: (one[1][0] != "tuning", "/" in one[0]))
    for name, keys, override in found:
        changed = {key: _in_paper(paper, name, keys, override) for key, paper in changed.items()}
    return changed


def check_used(papers: Mapping[str, Paper], given: Iterable[str]) -> None:
    """Raise ConfigError for an override of a name or key that these selected papers lack."""
    for override in map(parse, given):
        _name_and_keys(override, papers.values())


def _name_and_keys(override: Override, papers: Iterable[Paper]) -> tuple[str, list[str]]:
    """The name and the keys; the longest matching name, because names may contain dots."""
    names = _names(papers)
    if not (fitting := [name for name in names if override.target.startswith(f"{name}.")]):
        name = override.target.partition(".")[0]
        raise _error(override, f"no federation or label {name!r}", name, names)
    name = max(fitting, key=len)
    return name, override.target.removeprefix(f"{name}.").split(".")


def _names(papers: Iterable[Paper]) -> dict[str, None]:
    """The names for overrides, in the order of declarations."""
    names: dict[str, None] = {}
    for paper in papers:
        names |= dict.fromkeys(data.name for data in paper.data)
        for run in paper.runs:
            names |= dict.fromkeys((run.label, f"{run.federation}/{run.label}"))
    return names


def _in_paper(paper: Paper, name: str, keys: list[str], override: Override) -> Paper:
    """The paper with another value in its federation or runs of that name."""

    def change(one: Data | Run, fields: tuple[str, ...], *names: str) -> Data | Run:
        return _with(one, fields, keys, override) if name in names else one

    data = tuple(change(x, DATA, x.name) for x in paper.data)
    runs = tuple(change(x, RUN, x.label, f"{x.federation}/{x.label}") for x in paper.runs)
    return dataclasses.replace(paper, data=data, runs=runs)


def _with(declared: Data | Run, fields: tuple[str, ...], keys: list[str], override: Override):
    """A federation or run with another value."""
    field, *inner = keys
    if field not in fields:
        dicts = {name: x for name in fields if isinstance(x := getattr(declared, name), dict)}
        whole = [f"{name}.{field}" for name, x in dicts.items() if field in x]
        raise _error(override, f"no key {field!r}", field, whole or fields)
    changed = {field: _put(getattr(declared, field), inner, override)}
    if isinstance(declared, Run) and declared.tuning and field in ("local", "params"):
        whole = override.value if isinstance(override.value, dict) else ()
        given = {f"{field}.{name}" for name in ([inner[0]] if inner else whole)}
        fixed = given.union(declared.tuning.get("fixed", ()))
        changed["tuning"] = {**declared.tuning, "fixed": sorted(fixed)}
    return dataclasses.replace(declared, **changed)


def _put(old: Any, keys: list[str], override: Override) -> Any:
    """`old` with the value at the end of `keys`."""
    if not keys:
        return override.value
    if not isinstance(old, dict) or (len(keys) > 1 and keys[0] not in old):
        known = old if isinstance(old, dict) else ()
        raise _error(override, f"nothing has a key {keys[0]!r} there", keys[0], known)
    if len(keys) == 1 and override.value is None and old.get(keys[0]) is not None:
        return {name: value for name, value in old.items() if name != keys[0]}
    return {**old, keys[0]: _put(old.get(keys[0]), keys[1:], override)}


def _error(override: Override, what: str, word: str, known: Iterable[str]) -> ConfigError:
    """An error with the nearest known names, or with all of them."""
    return ConfigError(f"set: {override.text!r}: {what}; {nearest(word, known)}")
