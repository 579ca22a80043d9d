"""The tests that a change can reach: `make test-changed`, or `pytest --changed [REVISION]`.

A test file reaches what it and its helpers import (`fedlib.workflow.provenance`), the modules of
lazy registries whose names stand there as strings ("fedem"), and the files and folders whose paths
do ("rules"). What a copy of the checkout runs is all of it, because its helper names the folders.
"""

import ast
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import papers
from fedlib.workflow import provenance
from fedlib.workflow.provenance import ROOT

TESTS = Path(__file__).resolve().parent
REGISTRIES = (
    "data.partitions",
    "data.sources",
    "methods",
    "models",
    "papers",
    "report.figures",
    "report.tables",
)
# What loads every paper without naming it.
ALL_PAPERS = "fedlib.workflow.plan"


@cache
def since(revision: str) -> list[str]:
    """Files that differ from `revision` or are new, as paths in the checkout.

    Raises:
      CalledProcessError: if git knows no such revision.
    """
    differ = ["git", "diff", "--name-only", revision]
    new = ["git", "ls-files", "--others", "--exclude-standard"]
    said = [
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for command in (differ, new)
    ]
    return sorted({line for text in said for line in text.splitlines()})


def can_reach(test: Path, files: Iterable[str]) -> bool:
    """Whether a test file depends on any of `files`."""
    modules, paths = reached(test)
    return any(
        _module(file) in modules
        or any(file == path or file.startswith(f"{path}/") for path in paths)
        for file in files
    )


@cache
def reached(test: Path) -> tuple[frozenset[str], frozenset[str]]:
    """(modules, paths of files and folders) that a test file depends on."""
    own = _helpers(test)
    modules = {*provenance.reachable(*own)}
    words = set().union(*(_text(file).strings for file in own))
    while more := _named(words, modules) - modules:
        modules |= {*provenance.reachable(*more)}
        words |= set().union(*(_text(_file(name)).strings for name in more))
    paths = {word.partition("*")[0].strip("./") for word in words}
    return frozenset(modules), frozenset(own | {path for path in paths if _exists(path)})


def _helpers(test: Path) -> set[str]:
    """A test file and the modules of tests/ that it needs, as paths in the checkout."""
    waiting, found = [test], set()
    while waiting:
        path = waiting.pop()
        file = str(path.relative_to(ROOT))
        if file in found:
            continue
        found.add(file)
        of_fixtures = (
            needs for name, needs in _fixtures().items() if name in _text(file).arguments
        )
        names = _text(file).imports.union(*of_fixtures) - {"conftest"}
        places = (folder / f"{name}.py" for name in names for folder in (path.parent, TESTS))
        waiting += [place for place in places if place.exists()]
    return found


@cache
def _fixtures() -> dict[str, set[str]]:
    """The modules of tests/ that each function of conftest.py needs, by its name."""
    tree = ast.parse((TESTS / "conftest.py").read_bytes())
    modules = _text("tests/conftest.py").imports
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    used = {f.name: {n.id for n in ast.walk(f) if isinstance(n, ast.Name)} for f in functions}
    takes = {f.name: {argument.arg for argument in f.args.args} for f in functions}
    needs = {name: names & modules for name, names in used.items()}
    for name in used:  # a fixture may take others, which stand above it
        for other in takes[name] & needs.keys():
            needs[name] = needs[name] | needs[other]
    return needs


class _Text(NamedTuple):
    """What a file's code names."""

    imports: frozenset[str]  # what an import statement binds or imports from
    arguments: frozenset[str]  # of functions
    strings: frozenset[str]


@cache
def _text(file: str) -> _Text:
    """The names in a file of the checkout."""
    imports, arguments, strings = set(), set(), set()
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports.add(node.module)
        elif isinstance(node, ast.arg):
            arguments.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
    short = frozenset(string for string in strings if len(string) < 200)
    return _Text(frozenset(imports), frozenset(arguments), short)


def _named(words: set[str], modules: set[str]) -> set[str]:
    """Modules of the registries in `modules` that `words` name."""
    found = set()
    for package in REGISTRIES:
        if f"fedlib.{package}" in modules:
            names = {*(papers.names() if package == "papers" else provenance.registered(package))}
            everything = package == "papers" and ALL_PAPERS in modules
            found |= {
                f"fedlib.{package}.{name}" for name in (names if everything else names & words)
            }
    return found


@cache
def _exists(path: str) -> bool:
    return bool(path) and len(path) < 200 and "\0" not in path and (ROOT / path).exists()


def _file(module: str) -> str:
    """The file of a module."""
    path = Path(*module.split("."))
    package = path / "__init__.py"
    return str(package if (ROOT / package).exists() else path.with_suffix(".py"))


def _module(file: str) -> str:
    """The module in a file; a script is called by its path."""
    if not file.startswith("fedlib/"):
        return file
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
