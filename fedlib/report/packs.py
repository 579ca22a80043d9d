"""Packs: what the tables and figures of a paper are made of, small enough for a repository.

A pack is a folder with the tidy metrics and clients, as Parquet at its smallest, and the
specification of every table and figure: everything can be drawn again from it, with the same
numbers as from the runs. An archive in it has the history and the evaluation of every run, and what
was tuned, so that these can be gathered elsewhere: small HDF5 files shrink to a tenth in it. It has
no data, and no weights unless they are asked for.
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

FOLDER = "pack"  # in that of what is kept of a paper
SMALL = {"compression": "zstd", "compression_level": 19}
RUNS, TUNED = "runs", "tuned"  # in it, as in a folder of results
ARCHIVE = "runs.tar.xz"  # of these two
METRICS, CLIENTS, EXHIBITS = "metrics.parquet", "clients.parquet", "exhibits.json"


class Packed(NamedTuple):
    """A table or figure of a pack.

    Attributes:
      stage: "table" or "figure".
      spec: as its job is given it, see `fedlib.report.exhibits`.
      published: whether it shows the paper's own numbers.
    """

    stage: str
    spec: dict
    published: bool


def write(folder: Path, metrics: Path, clients: Path, exhibits: Sequence[Packed]) -> int:
    """Pack the frames in two files, and what is made of them -> bytes of the pack"""
    for source, name in ((metrics, METRICS), (clients, CLIENTS)):
        made = seals.made(source)
        frames.write_parquet(frames.read_parquet(source), folder / name, made, **SMALL)
    seals.write_json(folder / EXHIBITS, {"exhibits": [list(exhibit) for exhibit in exhibits]})
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def shut(folder: Path) -> None:
    """Put the runs of a pack, and what was tuned, into its archive; equal ones have equal bytes."""
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
    """A folder with the runs of a pack, and what was tuned, while it is needed.

    Raises:
      DataError: if the archive is damaged, or would write elsewhere.
    """
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        try:
            _unpack(folder / ARCHIVE, Path(place))
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise DataError(f"{folder / ARCHIVE} is damaged: {plain(str(error))}") from None
        yield Path(place)


def _unpack(archive: Path, place: Path) -> None:
    """Write the files of an archive that are of runs or tunings; nothing else may be in it."""
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
    """Files of metrics and clients, which check themselves when they are read, and the exhibits.

    Raises:
      DataError: if there is no pack, or what is in it was changed.
    """
    if not (folder / EXHIBITS).exists():
        raise DataError(f"{folder} has no {EXHIBITS}: `make keep` packs results")
    found = seals.read_json(folder / EXHIBITS).get("exhibits")
    if not isinstance(found, list) or not found or not all(map(_is_exhibit, found)):
        raise DataError(f"{folder / EXHIBITS} has no tables and figures, each with what it shows")
    if odd := next((text for text in _texts(found) if text != plain(text)), ""):
        raise DataError(f"{folder / EXHIBITS} has a text with control characters: {odd[:80]!r}")
    return folder / METRICS, folder / CLIENTS, [Packed(*one) for one in found]


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
