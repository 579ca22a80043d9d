"""Raw files: their names, checksums and addresses.

A data set lists its raw files as `RawFile`s and reads them through `RawFile.read`, which refuses
any content but the official one. `fedlib.data.download` puts the files in place. A `RawFolder` has
the files of a user or of another program.
"""

import fnmatch
import lzma
import os
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath

from fedlib.errors import DataError
from fedlib.files import digest

CHUNK = 1 << 20  # bytes read at a time

# Errors for archives that are truncated, changed, encrypted or in a format unknown to Python.
BROKEN = (tarfile.TarError, zipfile.BadZipFile, BadGzipFile, EOFError, zlib.error, lzma.LZMAError)
BROKEN += (NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class _Below:
    """A file or folder below data/raw/, at a path with "/"."""

    path: str

    @property
    def dataset(self) -> str:
        """Name of its data set: the first folder of the path."""
        return PurePosixPath(self.path).parts[0]


@dataclass(frozen=True)
class RawFile(_Below):
    """An official file of a data set, or an archive of such files.

    Attributes:
      path: below data/raw/, with "/" ("mnist/raw/t10k-labels-idx1-ubyte.gz"); its first part is
        the name of the data set.
      size: bytes, or None if the publisher does not say.
      sha256: hexadecimal digest of the content, or as many of its first digits as are published.
      md5: likewise, if the publisher or torchvision states it; "" otherwise. Without either digest
        any content but a web page is accepted; the receipt has its digest.
      urls: addresses of the file itself, the official one first, then mirrors.
      archive: the archive that contains it, for a file that is published inside one.
      member: its name in that archive.
    """

    size: int | None = None
    sha256: str = ""
    md5: str = ""
    urls: tuple[str, ...] = ()
    archive: "RawFile | None" = None
    member: str = ""

    @property
    def name(self) -> str:
        """File name without folders."""
        return PurePosixPath(self.path).name

    @property
    def is_verifiable(self) -> bool:
        """Whether a digest is published, by which the content can be verified."""
        return bool(self.sha256 or self.md5)

    def files(self, raw: str | Path) -> list["RawFile"]:
        """This file alone; the counterpart of `RawFolder.files`."""
        return [self]

    def mismatch(self, path: Path) -> str:
        """Why the file at `path` is not the official one; "" if it is."""
        if not path.is_file():
            return "is not a plain file"
        if self.size not in (None, size := path.stat().st_size):
            return f"has {size:,} bytes, the official file has {self.size:,}"
        if not self.is_verifiable:
            if self.name.endswith(".zip") and not zipfile.is_zipfile(path):
                return "is not a whole zip archive, perhaps a web page"
            with path.open("rb") as file:  # mirrors and proxies may answer with a page of theirs
                start = file.read(100).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
            return "is a web page" if start.startswith((b"<!doctype html", b"<html")) else ""
        name, value = ("sha256", self.sha256) if self.sha256 else ("md5", self.md5)
        found = digest(path, name)
        same = found.startswith(value)
        return "" if same else f"has {name} {found}, the official file has {value}"

    def read(self, raw: str | Path) -> bytes:
        """The verified content of the file below the folder `raw`.

        Raises:
          DataError: as `locate`.
        """
        return self.locate(raw).read_bytes()

    def locate(self, raw: str | Path) -> Path:
        """Path of the verified file.

        Raises:
          DataError: if it is missing or not the official content.
        """
        if not (path := Path(raw) / self.path).exists():
            raise DataError(f"{path} does not exist; run the download stage of {self.dataset}")
        if problem := self.mismatch(path):
            raise DataError(f"{path} {problem}; delete it and run the download stage again")
        return path


@dataclass(frozen=True)
class RawFolder(_Below):
    """Files whose names and contents are not known beforehand, except hidden ones.

    Attributes:
      path: of the folder, below data/raw/, with "/"; its first part is the name of the data set.
      pattern: of the files' names, such as "*.json".
      what: they are, for error messages.
    """

    pattern: str = "*"
    what: str = "your data"

    def files(self, raw: str | Path) -> list[RawFile]:
        """The files in the folder, sorted by path.

        Raises:
          DataError: if there are none.
        """
        folder = Path(raw) / self.path
        if not (names := files_below(folder, self.pattern)):
            raise DataError(f"{folder} has no files {self.pattern}; put there {self.what}")
        return [RawFile(f"{self.path}/{name}") for name in names]


def files_below(folder: Path, pattern: str = "*") -> list[str]:
    """Sorted paths, with "/", of all files below a folder except hidden ones.

    Unlike `Path.rglob`, links to folders are followed, but not back to a folder on the way there.

    Raises:
      DataError: for a folder in it that cannot be read, a link to nothing, or a name that is not
        UTF-8, which no table could show.
    """
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        if not os.access(place, os.X_OK):  # as of mode 0444, which shows their names
            raise DataError(f"{place} has files that cannot be opened; chmod +x this folder")
        folders[:] = [x for x in folders if x[0] != "." and not _leads_back(Path(place, x))]
        found += (Path(place, x) for x in fnmatch.filter(names, pattern) if x[0] != ".")
    if lost := [path for path in found if path.is_symlink() and not path.exists()]:
        raise DataError(f"{lost[0]} is a link to a file that does not exist; remove it")
    shown = sorted(path.relative_to(folder).as_posix() for path in found if path.is_file())
    if strange := [name for name in shown if name != name.encode(errors="ignore").decode()]:
        raise DataError(f"{folder}: the name of {strange[0]!a} is not UTF-8; give it another")
    return shown


def _refuse(error: OSError) -> None:
    """Raises DataError for a folder that cannot be read; one that is not there has no files."""
    if not isinstance(error, FileNotFoundError):
        raise DataError(f"{error.filename} is no readable folder ({error.strerror}); make it one")


def _leads_back(folder: Path) -> bool:
    """Whether a folder is a link to one that contains it, perhaps through other links."""
    to = folder.resolve()
    return folder.is_symlink() and any(x.resolve().is_relative_to(to) for x in folder.parents)
