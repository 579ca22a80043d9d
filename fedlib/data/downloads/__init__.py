"""Tables of the raw files of each data set, and their addresses.

`<name>.toml` lists the files of a data set, or of pretrained weights (`<model>_weights`), each with
the fields of a `RawFile`. A data set without a table needs no files. A table with `[sources]` lists
the files of each source, and names the `default` source. In a table with `local`, every folder
that a user puts there is a source.

The input of a download job is a digest of its part of a table; the input of a job that reads is the
download's receipt. So neither depends on the other's code.
"""

import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.data.raw import RawFile, RawFolder, files_below
from fedlib.errors import ConfigError

FOLDER = Path(__file__).parent

WEB = ("http://", "https://")  # what addresses begin with

AnyFile = RawFile | RawFolder


class Table(NamedTuple):
    """The content of a table.

    Attributes:
      files: by key.
      sources: keys of the files of each source; empty for a data set with a single source.
      default: the source if none is named; "" without sources.
      local: the folder below data/raw/ whose folders are a user's sources; "" for published data.
    """

    files: dict[str, AnyFile]
    sources: dict[str, list[str]]
    default: str
    local: str = ""


def weights() -> list[str]:
    """Names of the tables of pretrained weights, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*_weights.toml"))


def files(name: str, source: str | None = None) -> dict[str, AnyFile]:
    """The files of one source of a data set, or of pretrained weights, by key.

    Args:
      name: of the table.
      source: one of the table's; None for its default.

    Raises:
      ConfigError: for a source that the data set does not have.
    """
    made = table(name)
    if source is None and not made.sources:
        return dict(made.files)
    if made.local:
        check_folder(name, source)
        return {"files": RawFolder(f"{made.local}/{source}")}
    source = made.default if source is None else source
    if source not in list(made.sources):
        known = ", ".join(made.sources) or "none"
        raise ConfigError(f"{name} has no source {source!r}; choose one of {known}")
    return {key: made.files[key] for key in made.sources[source]}


def key(name: str, source: str | None = None) -> str:
    """Name of a download: the data set's, with -SOURCE for a source that is not its default."""
    return name if source in (None, table(name).default) else f"{name}-{source}"


def of_key(key: str) -> tuple[str, str | None]:
    """Data set and source of a download; None for the default source."""
    name, _, source = key.partition("-")
    return name, source or None


def digest(name: str, source: str | None = None) -> str:
    """Digest of the table's entries for the files of a source; 16 hexadecimal digits."""
    return seals.spec_digest([asdict(file) for file in files(name, source).values()])[:16]


def own_files(name: str, source: str | None, raw: str | Path) -> list[Path]:
    """A user's files of a source, or their folder if there are none; [] if there is no source.

    Raises:
      DataError: for files that cannot be data (`files_below`).
    """
    if not table(name).local or source is None:
        return []
    folder = Path(raw) / files(name, source)["files"].path
    return [folder / file for file in files_below(folder)] or [folder]


def with_names(digest: str, name: str, files: Iterable[str | Path], raw: str | Path) -> str:
    """The given digest of contents; of a user's files one of their names, too: labels, perhaps."""
    if not table(name).local:
        return digest
    return seals.spec_digest([digest, *(os.path.relpath(file, raw) for file in files)])


def state(name: str, source: str | None, raw: str | Path) -> str:
    """Digest of the names, sizes and times of change of a user's files; 16 hexadecimal digits.

    "" for a data set whose files are published.
    """
    if not table(name).local:
        return ""
    paths = filter(Path.is_file, own_files(name, source, raw))
    stats = [(str(path.relative_to(raw)), path.stat()) for path in paths]
    return seals.spec_digest([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats])[:16]


def check_folder(name: str, source: object) -> None:
    """Raises ConfigError unless `source` can be the name of a folder of a user's files."""
    if not isinstance(source, str) or not re.fullmatch(r"\w[\w.-]*", source):
        raise ConfigError(
            f"a source of {name} is the name of a folder, of letters, digits, '_', '-' and '.', "
            f"got {source!r}"
        )


def check_mirror(mirror: str | None) -> None:
    """Raises ConfigError unless `mirror` is None, a folder, or an address of a web server.

    An address must not have a password, which logs, command lines and messages would show.
    """
    if mirror is None:
        return
    *password, host = mirror.partition("://")[2].partition("/")[0].split("@")
    if password:
        raise ConfigError(
            "mirror must be an address without a name and password, which logs would show; write "
            f"them into ~/.netrc, for machine {host}"
        )
    if not mirror.startswith(WEB) and not Path(mirror).expanduser().is_dir():
        raise ConfigError(f"mirror must be a folder that exists, or http(s)://, got {mirror!r}")


@cache
def table(name: str) -> Table:
    """The table of that name; an empty one if it does not exist."""
    path = FOLDER / f"{name}.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    archives = {key: _file(about, {}) for key, about in content.get("archives", {}).items()}
    found = {key: _file(about, archives) for key, about in content.get("files", {}).items()}
    folders = {key: RawFolder(**about) for key, about in content.get("folders", {}).items()}
    about = (content.get("sources", {}), content.get("default", ""), content.get("local", ""))
    return Table(found | folders, *about)


def _file(about: dict, archives: dict[str, RawFile]) -> RawFile:
    inside = {"archive": archives[about["archive"]]} if "archive" in about else {}
    return RawFile(**about | inside | {"urls": tuple(about.get("urls", ()))})
