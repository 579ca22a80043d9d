"""Code digests: the code that made a result.

The code digest of a job covers the *meaning* of its code: the syntax trees of its script and of
every `fedlib` module that it can import, without comments, docstrings, formatting, texts of errors
and annotations of functions. Editing a method repeats its runs, and rewording an error repeats
nothing. The digest is the same on Python 3.11 to 3.13.

A *root* is a dotted module name ("fedlib.methods.fedem") or the path of a script
("scripts/train.py") or of a user's file ("mine/fedper.py"). Modules that are loaded by name at run
time (`importlib.import_module`) are invisible to a parser, so they must be roots of the job that
loads them. `assert_covered` fails a job that lacks one.

Imports are absolute and relative ones, at module level or inside a function, and the parent
packages of imported modules. A user's file may import further files of theirs, which count as well
(`fedlib.workflow.own_files`). Not counted are `if TYPE_CHECKING:` blocks, which never run, and the
modules of `PLUMBING`, which change no result.

The `look` of a method's class counts for tables and figures only.

Parsing all modules of a job takes longer than many jobs, so a user's processes share a cache of
meanings. A meaning depends on the bytes of the file, its package and the parsing code, so an edit
never gets an old one.
"""

import ast
import atexit
import hashlib
import sys
from functools import cache
from pathlib import Path

from fedlib import files, run_spec, seals
from fedlib.environment import ROOT, cache_folder
from fedlib.errors import StaleCodeError
from fedlib.workflow import own_files, syntax

PACKAGE = __name__.partition(".")[0]

# Modules that change no number: they read command lines, choose GPUs, write files and show
# progress. No digest contains them, so editing one repeats nothing. A test checks that they import
# nothing that computes.
PLUMBING = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("environment", "errors", "files", "locks", "mapped", "seals", "workflow"),
        *("run.checkpoint", "run.progress", "run.usage", "workflow.command", "workflow.gpu"),
        *("workflow.layout", "workflow.own_files", "workflow.provenance", "workflow.syntax"),
        *("workflow.forkclient", "workflow.forkserver", "workflow.warm"),
    )
)

LOOKS = f"{PACKAGE}.report.looks"  # shows the methods' looks
# Fields of a syntax tree that hold statements.
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")

_RULES = hashlib.sha256(
    b"".join(Path(file).read_bytes() for file in (__file__, syntax.__file__))
).hexdigest()


def code_digest(*roots: str) -> str:
    """Digest of the meaning of `roots` and of all modules they can import; 16 hexadecimal digits.

    Raises:
      ModuleNotFoundError: for a root that does not exist.
      SyntaxError: for a module that is not valid Python.
    """
    return _code_digest(ROOT, roots)


@cache
def meanings() -> seals.Cache:
    """The cache of meanings, which is also written when the process ends."""
    found = seals.Cache(cache_folder() / "meanings.json")
    atexit.register(found.write)
    return found


def closure(*roots: str) -> tuple[str, ...]:
    """The roots and all that they can import of `fedlib` and of the user's files, sorted.

    `PLUMBING` is left out.
    """
    return _closure(ROOT, roots)


def reachable(*roots: str) -> tuple[str, ...]:
    """`closure` with `PLUMBING` and its imports."""
    return _closure(ROOT, roots, frozenset())


def imports(module: str) -> frozenset[str]:
    """The `fedlib` modules that a module names in its import statements, with their packages."""
    return _scan(ROOT, module)[1]


def registry(package: str) -> tuple[str, ...]:
    """Names that `fedlib.<package>` can load, sorted, without importing it."""
    if package == "methods":
        return tuple(run_spec.methods())
    return files.modules(ROOT.joinpath(PACKAGE, *package.split(".")))


def check_code(planned: str | None, *roots: str) -> str:
    """`code_digest` of the code on disk, which must be that of a job's plan if there is one.

    Raises:
      StaleCodeError: if they differ, because a result of new code would be stored as old.
    """
    found = code_digest(*roots)
    if planned not in (None, found):
        raise StaleCodeError(
            f"the code of {', '.join(roots)} changed since this job was planned "
            f"(planned {planned}, found {found}); run again to plan with the new code"
        )
    return found


def assert_covered(*roots: str) -> None:
    """Check that every `fedlib` module this process has loaded is in the closure of `roots`.

    If a user's file is among them, the files of the user's that were loaded must be, too.

    Raises:
      RuntimeError: with the other modules; an edit of one would not repeat this job.
    """
    loaded = {name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")}
    if any(map(_is_own, roots)):
        loaded.update(own_files.loaded_files(ROOT, closure(*roots)))
    if extra := sorted(loaded.difference(closure(*roots), reachable(*PLUMBING))):
        raise RuntimeError(
            f"undeclared code dependency {', '.join(extra)}: loaded by this job, but not reachable "
            f"by imports from {', '.join(roots)}; import it statically or add it to the job's roots"
        )


@cache
def _code_digest(base: Path, roots: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in _closure(base, roots):
        digest.update(f"{name} {_contribution(base, name)}\n".encode())
    return digest.hexdigest()[:16]


def _contribution(base: Path, name: str) -> str:
    """Digest of a module's meaning, with the methods' looks for what shows them."""
    looks = [*run_spec.methods().items()] if name == LOOKS else []
    return hashlib.sha256(f"{_scan(base, name)[0]} {looks}".encode()).hexdigest()


@cache
def _closure(
    base: Path, roots: tuple[str, ...], left_out: frozenset[str] = PLUMBING
) -> tuple[str, ...]:
    waiting, seen = list(roots), set()
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        if file_of(base, name) is None:
            raise ModuleNotFoundError(f"no {name} in {base}: the root of a code digest must exist")
        seen.add(name)
        met = [*_scan(base, name)[1], *([] if name.endswith(".py") else _parents(name))]
        waiting += [module for module in met if module not in left_out]
    return tuple(sorted(seen))


@cache
def _scan(base: Path, name: str) -> tuple[str, frozenset[str]]:
    """(digest of a module's meaning, modules and user's files that it can import)

    Cached, because the closures of jobs overlap.
    """
    path = file_of(base, name)
    if name == PACKAGE:  # it has the version, and public names, which it loads by name
        return _meaning(ast.Module([], []), name)[0], frozenset()
    source, package = path.read_bytes(), "" if name.endswith(".py") else name
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    facts = [_RULES, *sys.version_info[:2], package, hashlib.sha256(source).hexdigest()]
    digest, names = meanings().find(facts, lambda: _meaning(ast.parse(source, str(path)), package))
    imports = set()
    for imported in names:
        if imported.partition(".")[0] == PACKAGE:
            imports.update(x for x in (*_parents(imported), imported) if file_of(base, x))
        elif _is_own(name):
            found = own_files.imported_files(imported, path, base)
            imports.update(own_files.name(file, base) for file in found)
    return digest, frozenset(imports)


def _meaning(tree: ast.Module, package: str) -> tuple[str, list[str]]:
    """(digest of a file's tree, dotted names that it imports from this project)

    Of a file without a package, a script or a user's, all names that it imports.
    """
    names = _imported_names(tree, package)
    ours = {name for name in names if not package or name.partition(".")[0] == PACKAGE}
    return hashlib.sha256(syntax.meaning(tree).encode()).hexdigest(), sorted(ours)


@cache
def file_of(base: Path, name: str) -> Path | None:
    """The file of a root or module, or None."""
    if name.endswith(".py"):
        candidates = [base / name]
    else:
        path = base.joinpath(*name.split("."))
        candidates = [path / "__init__.py", path.with_name(path.name + ".py")]
    return next(filter(Path.is_file, candidates), None)


def _is_own(root: str) -> bool:
    """Whether a root is a file of a user's."""
    return root.endswith(".py") and not root.startswith("scripts/")


def _parents(name: str) -> list[str]:
    return [name[:place] for place, character in enumerate(name) if character == "."]


def _imported_names(tree: ast.Module, package: str) -> set[str]:
    """Dotted names, possibly of modules, in every import statement that can run."""
    names = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        if isinstance(node := waiting.pop(), ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level and not package:
                origin = "." * node.level + origin
            elif node.level:
                parts = package.split(".")
                origin = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [origin])])
            names.add(origin)
            stem = origin if origin.endswith(".") else f"{origin}."
            names.update(stem + alias.name for alias in node.names)
        elif syntax.is_type_checking(node):
            waiting += node.orelse
        else:  # expressions hold no imports
            for block in _BLOCKS:
                waiting += getattr(node, block, ())
    return names
