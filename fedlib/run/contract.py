"""The contract of a method: functions that the engine calls by name, and arrays that it records.

Without this check, a misspelt function would never be called, and the one of the base class would
run silently.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedlib import fields
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS
from fedlib.methods.base import Curves, Method
from fedlib.results import OF_NO_CLIENT
from fedlib.run.scoring import as_arrays

HOOKS = tuple(name for name in vars(Method) if not name.startswith("_"))
NEEDED = ("init", "round")
LIKE = 0.85  # least similarity of a misspelt name to that of a hook, see difflib
EXAMPLE = '"seen": {"default": "personalise"}'
UNTYPED = "has no type, so it would be ignored; write one, as NAME: float = 0.9"


def check_fields(cls: type[Method], taken: Iterable[str] = ()) -> None:
    """Raise ConfigError for a method class whose settings would not be what they look like.

    It is annotated but not a dataclass, or (a user's class) overrides a field without a type, be it
    in a base class, has a field with a name that is `taken`, or does not say for which groups it
    predicts.
    """
    if "__dataclass_fields__" not in vars(cls) and inspect.get_annotations(cls):
        write = "@dataclass(frozen=True, kw_only=True)"
        raise ConfigError(f"{cls.__name__} is not a dataclass; write {write} above it")
    typed = inspect.get_annotations(cls)
    known = {x.name: x.default for x in dataclasses.fields(cls)}  # a default is an attribute, too
    odd = {k: UNTYPED for k, x in known.items() if k not in typed and getattr(cls, k, x) is not x}
    odd |= dict.fromkeys(known.keys() & {*taken} - {"local"}, "is an argument of simulate, too")
    if odd and not fields.is_ours(cls):
        raise ConfigError(f"{cls.__name__}.{min(odd)} {odd[min(odd)]}")
    _refuse_silence(cls)


def check(method: Method) -> None:
    """Raise ValueError for missing or misspelt functions; suggests the right name, if any."""
    cls = type(method)
    fields.check(method, cls.choices, cls.ranges)  # again, for classes that do not ask their base
    named, known = cls.classifiers, {x.name for x in dataclasses.fields(cls)} - {"task", "local"}
    if not isinstance(named, set | frozenset) or not named <= known:
        must = f"must be a frozenset of names among {sorted(known)}"
        raise ValueError(f"classifiers of {cls.__name__} {must}, got {named!r}")
    own = _own_names(method)
    for name in ("protocols", "final_protocols"):
        ways = getattr(method, name)
        right = all(isinstance(x, dict) and "/" not in "".join(x) for x in ways.values())
        if not right or not ways.keys() <= {*GROUPS}:
            raise ValueError(f"{name} of {cls.__name__} must be like {{{EXAMPLE}}}, got {ways}")
    for group, later in method.final_protocols.items():
        # All names of a group that `protocols` lacks are refused, as nobody would be evaluated.
        if twice := sorted(later.keys() & method.protocols.get(group, later).keys()):
            what = f"final_protocols must add to {group!r} of protocols, not {twice[0]!r}"
            raise ValueError(f"{cls.__name__}: {what}")
    asked = [*method.protocols.values(), *method.final_protocols.values()]
    named = {way: "its protocols name" for ways in asked for way in ways.values()}
    for name, who in {**dict.fromkeys(NEEDED, "every method needs"), **named}.items():
        if not _is_there(cls, name):
            others = sorted({*own, *dir(cls)} - {name})
            near = difflib.get_close_matches(name, others, n=1, cutoff=LIKE)
            meant = f"; it has {near[0]}: is that meant?" if near else ""
            raise ValueError(f"{cls.__name__} has no {name}, which {who}{meant}")
    for name in sorted(own - named.keys()):
        free = [hook for hook in HOOKS if getattr(cls, hook, None) is getattr(Method, hook)]
        if near := difflib.get_close_matches(name, free, n=1, cutoff=LIKE):
            raise ValueError(
                f"{cls.__name__} has {name}, which nothing calls; rename it to {near[0]}, or, if "
                f"it is a helper, to _{name}"
            )


def _own_names(method: Method) -> set[str]:
    """Public names of a method's classes, without those of the base class and hyper-parameters."""
    classes = type(method).__mro__
    found = [name for cls in classes[: classes.index(Method)] for name in vars(cls)]
    known = {*vars(Method), *vars(Curves), *(field.name for field in dataclasses.fields(method))}
    return {name for name in found if name[0] != "_" and name not in known}


def _is_there(cls: type, name: str) -> bool:
    """Whether a class implements `name`; an abstract function of the base class does not count."""
    abstract = (*NEEDED, "personalise")
    found = getattr(cls, name, None)
    return found is not None and not (name in abstract and found is getattr(Method, name))


def _refuse_silence(cls: type) -> None:
    """Raise ConfigError for a user's class that does not declare for which groups it predicts."""
    kind = Curves if issubclass(cls, Curves) else Method
    name = "ways" if kind is Curves else "protocols"
    between = cls.__mro__[: cls.__mro__.index(kind)]
    if not any(name in vars(one) or fields.is_ours(one) for one in between):
        raise ConfigError(
            f"{cls.__name__} does not say whom it can predict for. If a client that never trained "
            f"has no number, write: from typing import ClassVar; {name}: ClassVar = {{{EXAMPLE}, "
            '"unseen": {}}. If personalise serves it too, "unseen": {"default": "personalise"}'
        )


def diagnostics(method: Method, state: Any, num_clients: int) -> dict[str, np.ndarray]:
    """Arrays of `Method.diagnostics`, by name.

    Raises:
      ConfigError: for one without a row for each client.
    """
    found = as_arrays(method.diagnostics(state))
    for name, array in found.items():
        if name not in OF_NO_CLIENT and array.shape[:1] != (num_clients,):
            raise ConfigError(
                f"{type(method).__name__}.diagnostics: {name} must have a row for each of the "
                f"{num_clients} clients, got shape {[*array.shape]}; numbers of rounds belong in "
                "by_round"
            )
    return found


def by_round(method: Method, state: Any) -> dict[str, np.ndarray]:
    """Arrays of `Method.by_round`, by name.

    Raises:
      ConfigError: for one that is neither [R] nor [R, E], or that has a name of `diagnostics`.
    """
    found, others = as_arrays(method.by_round(state)), method.diagnostics(state)
    for name, array in found.items():
        what = f"{type(method).__name__}.by_round: {name}"
        if array.ndim not in (1, 2):
            raise ConfigError(f"{what} must be [rounds] or [rounds, experts], got {[*array.shape]}")
        if name in others or name in OF_NO_CLIENT:
            raise ConfigError(f"{what} is the name of a diagnostic; choose another")
    return found
