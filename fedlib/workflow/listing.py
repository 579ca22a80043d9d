"""Lists papers, federations, methods, models, data sets, partitions, tables and figures.

It reads registries, declarations and docstrings without importing the code, so that there is no
second list to maintain.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from fedlib.data import downloads
from fedlib.run_spec import architectures, is_file
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow.config import check_choice
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import PACKAGE, ROOT, imports, registered

PACKAGES = ("methods.base", "methods.parts")  # imports common to methods, not listed
SHOWN = 8  # names in a row; further ones are only counted


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
    for name, paper in plan.papers.items():
        for data in paper.data:
            labels = [run.label for run in paper.runs if run.federation == data.name]
            yield Listed(
                f"{name}/{data.name}",
                data.title,
                {
                    "data": " ".join([data.dataset, *map(_pair, data.params.items())]),
                    "cut": " ".join(map(_pair, data.partition.items())),
                    "seeds": "a partition for each" if data.per_seed else "share the partition",
                    "runs": _some(labels),
                },
            )


def _methods(plan: Plan) -> Iterator[Listed]:
    files = {run.method for run in plan.runs.values() if is_file(run.method)}
    for name in (*registered("methods"), *sorted(files)):
        module = name if name in files else f"methods.{name}"
        about = _about(module)
        facts = {
            "from": about.source,
            "keeps": _kept(module),
            "in": _users(plan, lambda run, name=name: run.method == name),
        }
        yield Listed(name, about.title, facts)


def _models(plan: Plan) -> Iterator[Listed]:
    for name in registered("models"):
        about = _about(f"models.{name}")

        def uses(run, name=name):
            further = architectures(run.modules).values()
            return name in (run.model, *(module["model"] for module in further))

        yield Listed(name, about.title, {"from": about.source, "in": _users(plan, uses)})


def _datasets(plan: Plan) -> Iterator[Listed]:
    for name in registered("data.sources"):
        about, table = _about(f"data.sources.{name}"), downloads.table(name)
        size = (
            sum(file.size or 0 for file in downloads.files(name).values()) if table.sources else 0
        )
        federations = [key for key, data in _data(plan) if data.dataset == name]
        facts = {
            "from": about.source,
            "download": f"{size / 1e6:,.0f} MB" if size else "",
            "sources": ", ".join(table.sources),
            "in": _some(federations),
        }
        yield Listed(name, about.title, facts)


def _partitions(plan: Plan) -> Iterator[Listed]:
    for name in registered("data.partitions"):
        about = _about(f"data.partitions.{name}")
        federations = [key for key, data in _data(plan) if data.partition["kind"] == name]
        yield Listed(name, about.title, {"from": about.source, "in": _some(federations)})


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
    "methods": _methods,
    "models": _models,
    "datasets": _datasets,
    "partitions": _partitions,
    "tables": _exhibits("table"),
    "figures": _exhibits("figure"),
}


# --- Docstrings of the code -----------------------------------------------------------------------


class _About(NamedTuple):
    title: str  # first line of a docstring
    source: str  # its text after "Source:"


@cache
def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(PACKAGE, *module.split(".")).with_suffix(".py")
    return ast.parse((ROOT / module if is_file(module) else path).read_bytes())


def _about(module: str) -> _About:
    text = ast.get_docstring(_tree(module)) or ""
    source = re.search(r"^Source: (.*?)(?=\n\n|\n[A-Z]\w*(?: code)?:|\Z)", text, re.S | re.M)
    return _About(text.partition("\n")[0], " ".join(source[1].split()) if source else "")


def _line(module: str) -> list[str]:
    """The modules of a method, its base classes and their parts."""
    found: list[str] = []
    waiting = [module]
    while waiting:
        found.append(name := waiting.pop(0))
        root = name if is_file(name) else f"{PACKAGE}.{name}"
        met = [other.removeprefix(f"{PACKAGE}.") for other in imports(root)]
        inner = [x for x in sorted(met) if x.startswith("methods.") and x not in PACKAGES]
        waiting += [other for other in inner if other not in (*found, *waiting)]
    return found


def _kept(module: str) -> str:
    """The docstring of a method's state."""
    for part in _line(module):
        for node in _tree(part).body:
            if isinstance(node, ast.ClassDef) and node.name == "State":
                return " ".join((ast.get_docstring(node) or "").split())
    return ""


# --- Words ----------------------------------------------------------------------------------------


def _data(plan: Plan) -> Iterator[tuple[str, object]]:
    for name, paper in plan.papers.items():
        yield from ((f"{name}/{data.name}", data) for data in paper.data)


def _users(plan: Plan, uses: Callable[[object], bool]) -> str:
    """The runs that use something, by paper."""
    found = []
    for name, paper in plan.papers.items():
        labels = dict.fromkeys(run.label for run in paper.runs if uses(run))
        found += [f"{name}: {_some(labels)}"] if labels else []
    return "; ".join(found) or f"no paper at scale {plan.scale}"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more]) or "none"


def _pair(entry: tuple[str, object]) -> str:
    key, value = entry
    return str(value) if key == "kind" else f"{key}={value}"
