"""Raw files: their names, checksums and addresses.

A data set lists its raw files as `RawFile`s and reads them through `RawFile.read`, which refuses
any content but the official one. `fedlib.data.download` puts the files in place. A `RawFolder` has
the files of another program, whose names depend on its options; a `LocalFolder` has a user's.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedlib.errors import DataError

CHUNK = 1 << 20  # bytes read at a time


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
        any content is accepted; the receipt has its digest.
      urls: addresses of the file itself, the official one first, then mirrors.
      archive: the archive that contains it, for a file that is published inside one.
      member: its name in that archive.
    """

    size: int | None
    sha256: str
    md5: str = ""
    urls: tuple[str, ...] = ()
    archive: "RawFile | None" = None
    member: str = ""

    def __post_init__(self):
        """Raises ValueError for a name that could lead out of its folder."""
        for name in (self.path, self.member):
            if not is_inside(name):
                raise ValueError(f"{name!r} must be a relative path without '..'")

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

    def mismatch(self, path: str | Path) -> str:
        """Why the file at `path` is not the official one; "" if it is."""
        path = Path(path)
        if not path.is_file():
            return "is not a plain file"
        if self.size is None and not self.is_verifiable:
            return ""
        with path.open("rb") as file:
            return self._compare(path.stat().st_size, iter(lambda: file.read(CHUNK), b""))

    def read(self, raw: str | Path) -> bytes:
        """The verified content of the file below the folder `raw`.

        Raises:
          DataError: if it is missing or not the official content.
        """
        path = Path(raw) / self.path
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise self._missing(path) from None
        except OSError as error:
            raise self._wrong(path, f"cannot be read ({error.strerror})") from None
        problem = self._compare(len(content), [content])
        if problem:
            raise self._wrong(path, problem)
        return content

    def locate(self, raw: str | Path) -> Path:
        """Path of the verified file, for a file that is too large to be read at once.

        Raises:
          DataError: if it is missing or not the official content.
        """
        path = Path(raw) / self.path
        if not path.exists():
            raise self._missing(path)
        if problem := self.mismatch(path):
            raise self._wrong(path, problem)
        return path

    def _missing(self, path: Path) -> DataError:
        return DataError(f"{path} does not exist; run the download stage of {self.dataset} first")

    def _wrong(self, path: Path, problem: str) -> DataError:
        return DataError(f"{path} {problem}; delete it and run the download stage again")

    def _compare(self, size: int, chunks: Iterable[bytes]) -> str:
        if self.size not in (None, size):
            return f"has {size:,} bytes, the official file has {self.size:,}"
        expected = {"sha256": self.sha256, "md5": self.md5}
        found = {name: hashlib.new(name, usedforsecurity=False) for name in expected}
        for chunk in chunks:
            for content in found.values():
                content.update(chunk)
        for name, value in expected.items():
            if not found[name].hexdigest().startswith(value):
                return f"has {name} {found[name].hexdigest()}, the official file has {value}"
        return ""


@dataclass(frozen=True)
class RawFolder(_Below):
    """Files that another program makes; their names and contents are not known beforehand.

    Attributes:
      path: of the folder, below data/raw/, with "/"; its first part is the name of the data set.
      pattern: of the files' names, such as "*.json".
      maker: the program that makes them, for error messages.
    """

    pattern: str
    maker: str

    def files(self, raw: str | Path) -> list[RawFile]:
        """The files in the folder, sorted by name.

        Raises:
          DataError: if there are none, or a folder has a name like theirs.
        """
        folder = Path(raw) / self.path
        paths = sorted(folder.glob(self.pattern))
        for path in paths:
            if not path.is_file():
                raise DataError(f"{path} is not a plain file; put there what {self.maker} makes")
        names = [path.name for path in paths]
        if not names:
            raise DataError(f"{folder} has no {self.pattern}; put there what {self.maker} makes")
        return [RawFile(f"{self.path}/{name}", None, "") for name in names]


@dataclass(frozen=True)
class LocalFolder(_Below):
    """A user's files: all files below a folder except hidden ones.

    Attributes:
      path: of the folder, below data/raw/, with "/"; its first part is the name of the data set.
    """

    def files(self, raw: str | Path) -> list[RawFile]:
        """The files below the folder, sorted by path.

        Raises:
          DataError: if there are none.
        """
        names = local_files(Path(raw) / self.path)
        if not names:
            raise DataError(f"{Path(raw) / self.path} has no files; put your data there")
        return [RawFile(f"{self.path}/{name}", None, "") for name in names]


def local_files(folder: Path) -> list[str]:
    """Sorted paths, with "/", of all files below a folder except hidden ones.

    Raises:
      DataError: for a name with control characters, such as a line end.
    """
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = sorted(p.as_posix() for p in found if not any(x.startswith(".") for x in p.parts))
    for name in names:
        if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
            raise DataError(f"{folder} has {name!r}, a name with control characters; rename it")
    return names


def is_inside(name: str) -> bool:
    """Whether a relative path, with "/", stays in its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name
