"""Why a job would run again: the modules of its code and the fields of its specification.

Each result has digests of its specification, code and inputs (`fedlib.seals.Made`). When a workflow
starts, the folder of results records the modules behind each digest of code.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedlib import seals
from fedlib.workflow import provenance
from fedlib.workflow.plan import Plan
from fedlib.workflow.stale import RESULTS, inputs

GONE = "nothing at all"  # in place of a value missing from a mapping
REMEMBERED = 500  # code digests of a folder; a scale has about a hundred


def note(plan: Plan) -> None:
    """Record the modules behind every digest of code in the plan."""
    path = Path(plan.path("code"))
    known = seals.Cache(path, REMEMBERED)
    for roots in {plan.roots(stage, **job) for stage, job in plan.jobs()}:
        known.find(provenance.code_digest(*roots), lambda roots=roots: provenance.modules(*roots))
    path.parent.mkdir(parents=True, exist_ok=True)
    known.write()


def lines(
    plan: Plan,
    stage: str,
    job: dict,
    *,
    specification: Callable[[Path], dict] | None = None,
) -> Iterator[str]:
    """A line for each change since a job was done, or one line that nothing changed.

    Args:
      specification: reads that of a training or an evaluation from its result; None without one.
    """
    if stage not in RESULTS:
        yield f"a {stage} job keeps no record of what it was made of"
        return
    file = plan.path(RESULTS[stage][0][0], **job)
    made = seals.made(file) if Path(file).exists() else None
    if made is None:
        yield f"{file} is not there yet, or is of an older version"
        return
    found: list[str] = []
    if made.spec != plan.digest(stage, **job):
        if specification and stage in ("train", "evaluate"):
            now = json.loads(plan.spec(stage, **job))
            found += [_told(*one) for one in differences(specification(Path(file)), now)]
        found = found or ["specification changed"]
    if made.code != plan.code(stage, **job):
        found += _of_code(plan, made.code, plan.roots(stage, **job))
    read = inputs(plan, stage, job)
    missing = [path for path in read if not Path(path).exists()]
    if missing:
        found += [f"{path} is missing" for path in missing]
    elif made.inputs != seals.contents(*read):
        found.append(f"an input has other content: {', '.join(read)}")
    yield from found or [f"{file} is up to date"]


def _of_code(plan: Plan, then: str, roots: tuple[str, ...]) -> list[str]:
    """Modules that differ from those behind the digest `then`."""
    before = seals.Cache(plan.path("code")).get(then)
    if before is None:
        return [f"code changed; {plan.path('code')} does not have the modules it had before"]
    return [_told(*x, show=False) for x in differences(before, provenance.modules(*roots))]


def differences(before: Mapping, now: Mapping, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Differences of two mappings: dotted name, and both values, `GONE` for a missing one.

    Args:
      where: prefix of the names.
    """
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, GONE), now.get(name, GONE)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{where}{name}.")
        elif GONE in (old, new) or _plain(old) != _plain(new):
            yield where + name, old, new


def _told(name: str, old: object, new: object, show: bool = True) -> str:
    """A difference in words, with both values if `show`."""
    change = "is new" if old == GONE else "is gone" if new == GONE else "changed"
    texts = ["null" if value == GONE else json.dumps(value) for value in (old, new)]
    return f"{name} {change}" + f": {texts[0]} before, {texts[1]} now" * show


def _plain(value: Any) -> Any:
    """A value as in JSON, in which lists and tuples are equal."""
    return json.loads(json.dumps(value))
