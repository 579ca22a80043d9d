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
    words = set().union(*map(_strings, own))
    while more := _named(words, modules) - modules:
        modules |= {*provenance.reachable(*more)}
        words |= set().union(*(_strings(_file(name)) for name in more))
    paths = {word.partition("*")[0].strip("./") for word in words}
    return frozenset(modules), frozenset(own | {path for path in paths if _exists(path)})


def _helpers(test: Path) -> set[str]:
    """A test file and the modules of tests/ that it needs, as paths in the checkout."""
    waiting, found = [test], set()
    while waiting:
        path = waiting.pop()
        found.add(str(path.relative_to(ROOT)))
        names = _imported(ast.parse(path.read_bytes())) | _of_fixtures(path)
        files = {TESTS / f"{name}.py" for name in names - {"conftest"}}
        waiting += [
            file for file in files if file.exists() and str(file.relative_to(ROOT)) not in found
        ]
    return found


@cache
def _fixtures() -> dict[str, set[str]]:
    """What each function of conftest.py needs of tests/, by its name."""
    tree = ast.parse((TESTS / "conftest.py").read_bytes())
    modules = _imported(tree)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    used = {f.name: {n.id for n in ast.walk(f) if isinstance(n, ast.Name)} for f in functions}
    takes = {f.name: {argument.arg for argument in f.args.args} for f in functions}
    needs = {name: names & modules for name, names in used.items()}
    for name in used:  # a fixture may take others, which stand above it
        for other in takes[name] & needs.keys():
            needs[name] = needs[name] | needs[other]
    return needs


def _of_fixtures(path: Path) -> set[str]:
    """Modules of tests/ that the fixtures of conftest.py need that a test file names."""
    names = {
        node.arg for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.arg)
    }
    return set().union(*(needs for name, needs in _fixtures().items() if name in names))


def _imported(tree: ast.Module) -> set[str]:
    """Names that an import statement binds or imports from."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def _named(words: set[str], modules: set[str]) -> set[str]:
    """Modules of the registries in `modules` that `words` name."""
    found = set()
    for package in REGISTRIES:
        if f"fedlib.{package}" in modules:
            names = {*provenance.registered(package)}
            everything = package == "papers" and ALL_PAPERS in modules
            found |= {
                f"fedlib.{package}.{name}" for name in (names if everything else names & words)
            }
    return found


@cache
def _strings(file: str) -> frozenset[str]:
    """The texts in a file's code."""
    nodes = ast.walk(ast.parse((ROOT / file).read_bytes()))
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str) and len(value) < 200)


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
