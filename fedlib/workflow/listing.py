"""Lists papers, federations, methods, models, data sets, partitions, tables and figures.

It reads registries, declarations and docstrings without importing the code, so that there is no
second list to maintain.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fedlib.run_spec import architectures, is_file
from fedlib.spec import Data
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow.config import check_choice
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import PACKAGE, ROOT, registered

SHOWN = 8  # names in a row; further ones are only counted
Uses = Iterable[tuple[str, str]]  # names, each with what uses it


@dataclass(frozen=True)
class Listed:
    """One line of the list.

    Attributes:
      name: in configurations and declarations.
      title: one line.
      facts: further texts by keyword; empty ones are left out.
    """

    name: str
    title: str
    facts: dict[str, str] = field(default_factory=dict)

    def has(self, words: Iterable[str]) -> bool:
        """Whether the entry contains all of `words`, in upper or lower case."""
        text = " ".join([self.name, self.title, *self.facts.values()]).lower()
        return all(word.lower() in text for word in words)


def listed(plan: Plan, what: Iterable[str]) -> dict[str, list[Listed]]:
    """The entries by kind.

    Args:
      what: a kind of `KINDS`, or no kind for all, then words that must be in an entry.

    Raises:
      ConfigError: for a kind that does not exist.
    """
    kind, *words = [*what] or [""]
    if kind:
        check_choice("WHAT", kind, KINDS)
    kinds = [kind] if kind else KINDS
    return {kind: [entry for entry in KINDS[kind](plan) if entry.has(words)] for kind in kinds}


def _papers(plan: Plan) -> Iterator[Listed]:
    for name, paper in plan.papers.items():
        numbers = {
            "federations": len(paper.data),
            "runs": len(paper.runs),
            "trainings": len(plan.trainings(name)),
            "tables": len(paper.tables),
            "figures": len(paper.figures),
        }
        specification = f"fedlib/papers/{name}/README.md"
        facts = {
            "from": paper.citation,
            "has": f"{', '.join(f'{n} {what}' for what, n in numbers.items())}; {paper.scale_note}",
            "docs": specification if (ROOT / specification).exists() else "",
        }
        yield Listed(name, paper.title, facts)


def _federations(plan: Plan) -> Iterator[Listed]:
    for name, data in _data(plan):
        labels = [run.label for run in plan.papers[name].runs if run.federation == data.name]
        facts = {
            "data": " ".join([data.dataset, *map(_pair, data.params.items())]),
            "cut": " ".join(map(_pair, data.partition.items())),
            "seeds": "a partition for each" if data.per_seed else "share the partition",
            "runs": _some(labels),
        }
        yield Listed(f"{name}/{data.name}", data.title, facts)


def _methods(plan: Plan) -> Uses:
    return ((run.method, f"{paper}/{run.label}") for (paper, *_), run in plan.runs.items())


def _models(plan: Plan) -> Uses:
    for (paper, *_), run in plan.runs.items():
        further = (module["model"] for module in architectures(run.modules).values())
        yield from ((model, f"{paper}/{run.label}") for model in (run.model, *further))


def _datasets(plan: Plan) -> Uses:
    return ((data.dataset, f"{name}/{data.name}") for name, data in _data(plan))


def _partitions(plan: Plan) -> Uses:
    return ((data.partition["kind"], f"{name}/{data.name}") for name, data in _data(plan))


def _code(package: str, uses: Callable[[Plan], Uses]) -> Callable[[Plan], Iterator[Listed]]:
    """The modules of a package and a user's files, each with its uses in the papers."""

    def entries(plan: Plan) -> Iterator[Listed]:
        users: dict[str, dict[str, None]] = {name: {} for name in registered(package)}
        for name, user in uses(plan):
            users.setdefault(name, {})[user] = None
        for name, found in users.items():
            about = _about(name if is_file(name) else f"{package}.{name}")
            used = _some(found) if found else f"no paper at scale {plan.scale}"
            yield Listed(name, about.title, {"from": about.source, "in": used})

    return entries


def _exhibits(stage: str) -> Callable[[Plan], Iterator[Listed]]:
    def entries(plan: Plan) -> Iterator[Listed]:
        for name, paper in plan.papers.items():
            exhibits: dict[str, Exhibit] = getattr(paper, stage + "s")
            for key, exhibit in exhibits.items():
                facts = {
                    "shows": exhibit.caption,
                    "kind": f"{exhibit.kind}: {_about(f'report.{stage}s.{exhibit.kind}').title}",
                    "published": exhibit.published or "",
                    "runs": f"{_some(exhibit.labels)}; on {_some(exhibit.federations)}",
                }
                yield Listed(f"{name}/{key}", exhibit.title, facts)

    return entries


KINDS: dict[str, Callable[[Plan], Iterator[Listed]]] = {
    "papers": _papers,
    "federations": _federations,
    "methods": _code("methods", _methods),
    "models": _code("models", _models),
    "datasets": _code("data.sources", _datasets),
    "partitions": _code("data.partitions", _partitions),
    "tables": _exhibits("table"),
    "figures": _exhibits("figure"),
}


# --- Docstrings of the code -----------------------------------------------------------------------


class _About(NamedTuple):
    title: str  # first line of a docstring
    source: str  # its text after "Source:"


def _about(module: str) -> _About:
    path = ROOT.joinpath(PACKAGE, *module.split(".")).with_suffix(".py")
    tree = ast.parse((ROOT / module if is_file(module) else path).read_bytes())
    text = ast.get_docstring(tree) or ""
    source = re.search(r"^Source: (.*?)(?=\n\n|\n[A-Z]\w*(?: code)?:|\Z)", text, re.S | re.M)
    return _About(text.partition("\n")[0], " ".join(source[1].split()) if source else "")


# --- Words ----------------------------------------------------------------------------------------


def _data(plan: Plan) -> Iterator[tuple[str, Data]]:
    return ((name, data) for name, paper in plan.papers.items() for data in paper.data)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more]) or "none"


def _pair(entry: tuple[str, object]) -> str:
    key, value = entry
    return str(value) if key == "kind" else f"{key}={value}"
