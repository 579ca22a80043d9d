"""The files that a user's file imports: all that is neither of this project nor installed.

An import is looked up in the folders where a job would find it: the checkout, the folders that
Python knows (such as those of PYTHONPATH and of packages installed as links to their source), and
that of the importing file, which may have put itself among them. Nothing is imported for it.
"""

import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

# Modules that no file of a user's has imported, such as the sitecustomize of a cluster.
_BEFORE = frozenset(sys.modules)


def imported_files(name: str, file: Path, checkout: Path) -> list[Path]:
    """The user's files that importing `name` in `file` runs: its packages and itself.

    Args:
      name: dotted, with a leading dot for each level if the import is relative.
    """
    inner = name.lstrip(".")
    level, parts = len(name) - len(inner), inner.split(".")
    if level:
        folders = list(file.parents[level - 1 : level])
    elif parts[0] in sys.stdlib_module_names:
        return []
    else:
        folders = [checkout, *_known_folders(parts[0]), file.parent]
    return [path for path in _walk(folders, parts) if not is_installed(path)]


def loaded_files(checkout: Path, known: Iterable[str] = ()) -> dict[str, Path]:
    """The user's files that this process has imported, by their names in closures.

    Args:
      known: names of files that are left out, also where they were imported by a link.
    """
    there = {(checkout / one).resolve() for one in known}
    files = [getattr(x, "__file__", None) for n, x in [*sys.modules.items()] if n not in _BEFORE]
    # Some modules give a name that is no file, such as torch.ops.
    paths = [Path(file) for file in files if isinstance(file, str) and file.endswith(".py")]
    paths = [path for path in paths if path.is_absolute() and path.is_file()]
    project = [checkout / "fedlib", checkout / "scripts"]
    return {
        name(path, checkout): path
        for path in paths
        if not is_installed(path) and not any(path.is_relative_to(x) for x in project)
        if path.resolve() not in there
    }


def name(path: Path, checkout: Path) -> str:
    """The name of a file in closures: relative to the checkout if inside it."""
    return str(path.relative_to(checkout) if path.is_relative_to(checkout) else path)


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return any(path.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {*(sysconfig.get_path(kind) for kind in kinds), *site.getsitepackages()}
    folders.add(site.getusersitepackages())
    return frozenset(x for folder in folders for x in (Path(folder), Path(folder).resolve()))


@cache
def _known_folders(package: str) -> list[Path]:
    """The folders in which Python would find a package or module."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    places = (spec.submodule_search_locations or [spec.origin]) if spec else ()
    return [Path(place).parent for place in filter(None, places)]


def _walk(folders: list[Path], parts: list[str]) -> Iterator[Path]:
    """The files of a package, of a package in it, and so on; a last part may be no module."""
    for part in parts:
        files, folders = _step(folders, part)
        yield from files


def _step(folders: list[Path], part: str) -> tuple[list[Path], list[Path]]:
    """(the file of a module or package in `folders`, the folders of what it contains)"""
    spaces = []  # of packages without a file
    for folder in folders:
        inside = folder / part
        if (inside / "__init__.py").is_file():
            return [inside / "__init__.py"], [inside]
        if part and inside.with_name(f"{part}.py").is_file():
            return [inside.with_name(f"{part}.py")], []
        spaces += [inside] if inside.is_dir() else []
    return [], spaces
