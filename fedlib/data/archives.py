"""Archives of raw files: only wanted members are unpacked, and each is verified.

An archive that is truncated or encrypted, leads out of its folder or unpacks to more than any disk
holds leaves no file behind.
"""

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from gzip import BadGzipFile
from pathlib import Path
from typing import IO

from fedlib.data.raw import CHUNK, RawFile, is_inside
from fedlib.errors import DataError
from fedlib.files import atomic

DENSEST = 100  # most unpacked bytes per packed byte; texts and images have less than 20

# Errors for archives that are truncated, changed, encrypted or in a format unknown to Python.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, EOFError, zlib.error, lzma.LZMAError)
BROKEN += (NotImplementedError, RuntimeError)


def unpack(archive: RawFile, members: Iterable[RawFile], raw: str | Path) -> None:
    """Verify the `members` of an archive below the folder `raw`, and put them in place there.

    Raises:
      DataError: if the archive is broken, has a path that leads outside or a link in place of a
        member, or if a member is missing or not the official one.
    """
    path = Path(raw) / archive.path
    wanted = {file.member: file for file in members}
    read = _read_zip if zipfile.is_zipfile(path) else _read_tar
    try:
        for name, content in read(path, wanted):
            file = wanted.pop(name)
            with atomic(Path(raw) / file.path) as temporary:
                with temporary.open("wb") as target:
                    _extract(content, target, file, path)
                problem = file.mismatch(temporary)
                if problem:
                    raise DataError(f"{name} in {path} {problem}")
    except BROKEN as error:
        raise DataError(f"{path} is broken or unsafe ({error}); delete it and run again") from None
    if wanted:
        raise DataError(f"{path} has no {', '.join(wanted)}")


def _extract(content: IO[bytes], target: IO[bytes], file: RawFile, archive: Path) -> None:
    """Copy a member up to its permitted size: a small archive can unpack to any size."""
    most = DENSEST * archive.stat().st_size if file.size is None else file.size
    done = 0
    while chunk := content.read(CHUNK):
        done += len(chunk)
        if done > most:
            raise DataError(f"{file.member} in {archive} has more than {most:,} bytes; delete it")
        target.write(chunk)


def _read_tar(path: Path, wanted: Mapping[str, object]) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the wanted members, in the order of the archive."""
    with tarfile.open(path) as archive:
        for member in archive:
            tarfile.data_filter(member, str(path.parent))  # refuses paths that lead outside
            _check_member(member.name, is_file=member.name not in wanted or member.isreg())
            if member.name in wanted:
                yield member.name, archive.extractfile(member)


def _read_zip(path: Path, wanted: Mapping[str, object]) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the wanted members, in the order of the archive."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            _check_member(member.filename, is_file=not is_link)
            if member.filename in wanted:
                with archive.open(member) as content:
                    yield member.filename, content


def _check_member(name: str, *, is_file: bool) -> None:
    if not is_inside(name):
        raise tarfile.TarError(f"{name} leads outside")
    if not is_file:
        raise tarfile.TarError(f"{name} is not a plain file")
