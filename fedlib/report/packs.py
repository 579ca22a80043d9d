"""Packs: the inputs of a paper's tables and figures, small enough for a repository.

A pack is a folder with the tidy metrics and clients, as compressed Parquet, and the specification
of every table and figure. All of them can be made again from it, with the same numbers as from the
runs. An archive in the pack has the history and evaluation of every run, and tunings, so that they
can be gathered elsewhere; it shrinks small HDF5 files to a tenth. A pack has no data and no
weights.
"""

import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fedlib import seals
from fedlib.errors import DataError, plain
from fedlib.report import frames

FOLDER = "pack"  # in a paper's kept folder
SMALL = {"compression": "zstd", "compression_level": 19}
RUNS, TUNED = "runs", "tuned"  # in the pack, as in a folder of results
ARCHIVE = "runs.tar.xz"  # of these two
METRICS, CLIENTS, EXHIBITS = "metrics.parquet", "clients.parquet", "exhibits.json"
SHARED = ("federations", "runs")  # entries of many specifications, which a pack has once


class Packed(NamedTuple):
    """A table or figure of a pack.

    Attributes:
      stage: "table" or "figure".
      spec: specification of its job, see `fedlib.report.exhibits`.
      published: whether it shows the paper's own numbers.
    """

    stage: str
    spec: dict
    published: bool


def write(folder: Path, metrics: Path, clients: Path, exhibits: Sequence[Packed]) -> int:
    """Pack the two frames and the specifications of exhibits -> bytes of the pack"""
    for source, name in ((metrics, METRICS), (clients, CLIENTS)):
        made = seals.made(source)
        frames.write_parquet(frames.read_parquet(source), folder / name, made, **SMALL)
    seals.write_json(folder / EXHIBITS, _each_once(exhibits))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _each_once(exhibits: Sequence[Packed]) -> dict:
    """The content of `EXHIBITS`: what is `SHARED` is a list, and specifications have positions."""
    shared: dict[str, list[dict]] = {name: [] for name in SHARED}
    packed = []
    for exhibit in exhibits:
        positions = {}
        for name, every in shared.items():
            every += [one for one in exhibit.spec[name] if one not in every]
            positions[name] = [every.index(one) for one in exhibit.spec[name]]
        packed.append([*exhibit._replace(spec=exhibit.spec | positions)])
    return {"exhibits": packed, **shared}


def shut(folder: Path) -> None:
    """Put the runs and tunings of a pack into its archive; equal files give equal bytes."""
    found = [path for name in (RUNS, TUNED) for path in (folder / name).rglob("*")]
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(path for path in found if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(member, content)
    for name in (RUNS, TUNED):
        shutil.rmtree(folder / name, ignore_errors=True)


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """A temporary folder with the runs and tunings of a pack.

    Raises:
      DataError: if the archive is damaged, or would write outside the folder.
    """
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        try:
            _unpack(folder / ARCHIVE, Path(place))
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise DataError(f"{folder / ARCHIVE} is damaged: {plain(str(error))}") from None
        yield Path(place)


def _unpack(archive: Path, place: Path) -> None:
    """Write the files of an archive, which must all be of runs or tunings."""
    with tarfile.open(archive) as packed:
        for member in packed:
            parts = PurePosixPath(member.name).parts
            if not member.isfile() or parts[0] not in (RUNS, TUNED) or ".." in parts:
                raise DataError(f"{archive} has {plain(member.name)!r}, which is no file of a run")
            file = place.joinpath(*parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            with packed.extractfile(member) as content, file.open("wb") as out:
                shutil.copyfileobj(content, out)


def read(folder: Path) -> tuple[Path, Path, list[Packed]]:
    """Files of metrics and clients, whose digests are checked on reading, and the exhibits.

    Raises:
      DataError: if there is no pack, or its content was changed.
    """
    if not (folder / EXHIBITS).exists():
        raise DataError(f"{folder} has no {EXHIBITS}: `make keep` packs results")
    content = seals.read_json(folder / EXHIBITS)
    found = content.get("exhibits")
    if not isinstance(found, list) or not found or not all(map(_is_exhibit, found)):
        raise DataError(f"{folder / EXHIBITS} has no tables and figures, each with what it shows")
    if odd := next((text for text in _texts(content) if text != plain(text)), ""):
        raise DataError(f"{folder / EXHIBITS} has a text with control characters: {odd[:80]!r}")
    try:
        exhibits = [Packed(stage, _whole(spec, content), shown) for stage, spec, shown in found]
    except (LookupError, TypeError):
        raise DataError(
            f"{folder / EXHIBITS} has no list of federations and runs; the pack was changed, or is "
            "of another version"
        ) from None
    return folder / METRICS, folder / CLIENTS, exhibits


def _whole(spec: dict, content: dict) -> dict:
    """The specification with what its positions point to."""
    return spec | {name: [content[name][place] for place in spec[name]] for name in SHARED}


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value, names of entries included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        for one in inner:
            yield from _texts(one)


def _is_exhibit(value: object) -> bool:
    match value:
        case ["table" | "figure", dict(), bool()]:
            return True
    return False
