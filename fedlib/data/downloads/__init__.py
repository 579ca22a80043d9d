"""Which raw files each data set consists of, and where they come from: tables, no code.

`<name>.toml` lists the files of a data set, or of pretrained weights (`<model>_weights`), each with
what a `RawFile` has. A data set without a table needs no files. A table with `[sources]` says which
files each of its sources consists of, and which source is the `default`.

A job that downloads is given a digest of its part of a table; a job that reads, the receipt of what
was downloaded. So neither depends on the other's code.
"""

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fedlib.data.raw import RawFile, RawFolder
from fedlib.errors import ConfigError
from fedlib.files import canonical_json

FOLDER = Path(__file__).parent


class Table(NamedTuple):
    """The content of a table.

    Attributes:
      files: by key.
      sources: keys of the files of each source; empty for a data set that has but one.
      default: the source where none is named; "" without sources.
    """

    files: dict[str, RawFile | RawFolder]
    sources: dict[str, list[str]]
    default: str


def names() -> list[str]:
    """Whatever has a table, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def weights() -> list[str]:
    """Pretrained weights: downloads like data sets, but nothing can be trained on them."""
    return [name for name in names() if name.endswith("_weights")]


def files(name: str, source: str | None = None) -> dict[str, RawFile | RawFolder]:
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
    source = made.default if source is None else source
    if source not in list(made.sources):
        known = ", ".join(made.sources) or "none"
        raise ConfigError(f"{name} has no source {source!r}; choose one of {known}")
    return {key: made.files[key] for key in made.sources[source]}


def of_sources(name: str, sources: Iterable[str]) -> tuple[RawFile | RawFolder, ...]:
    """The files of these sources, each once; without any, of the default."""
    chosen = [files(name, source) for source in sources] or [files(name)]
    return tuple(dict.fromkeys(file for one in chosen for file in one.values()))


def digest(name: str, sources: Iterable[str]) -> str:
    """Digest of all that the tables say of these files; 16 hexadecimal digits."""
    content = canonical_json([asdict(file) for file in of_sources(name, sources)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@cache
def table(name: str) -> Table:
    """The table of that name, an empty one if there is none."""
    path = FOLDER / f"{name}.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    archives = {key: _file(about, {}) for key, about in content.get("archives", {}).items()}
    found = {key: _file(about, archives) for key, about in content.get("files", {}).items()}
    folders = {key: RawFolder(**about) for key, about in content.get("folders", {}).items()}
    return Table(found | folders, content.get("sources", {}), content.get("default", ""))


def _file(about: dict, archives: dict[str, RawFile]) -> RawFile:
    known = {"size": None, "sha256": "", **about}
    if "archive" in known:
        known["archive"] = archives[known["archive"]]
    return RawFile(**known | {"urls": tuple(known.get("urls", ()))})
