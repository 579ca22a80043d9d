"""Raw files: what each is called, how to recognise it, and where it comes from.

A data set lists its raw files as `RawFile`s and reads them through `RawFile.read`, which refuses
any content but the official one. `fedlib.data.download` is what puts the files in place. What
another program makes, under names that depend on its options, is a `RawFolder`; what a user has, a
`LocalFolder`.
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
    """Something below data/raw/, at a path with "/"."""

    path: str

    @property
    def dataset(self) -> str:
        """The data set it belongs to: the first folder of its path."""
        return PurePosixPath(self.path).parts[0]


@dataclass(frozen=True)
class RawFile(_Below):
    """An official file of a data set, or an archive of such files.

    Attributes:
      path: below data/raw/, with "/" ("mnist/raw/t10k-labels-idx1-ubyte.gz"); its first part is
        the name of the data set.
      size: bytes, or None if the publisher does not say.
      sha256: hexadecimal digest of the content, or as many of its first digits as are published.
      md5: likewise, where the publisher or torchvision states it; "" otherwise. If neither digest
        is published, any content is taken for the official one; the receipt says what it was.
      urls: where the file itself can be had, official address first, then mirrors.
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
        """Raises ValueError for a name that could lead out of the folder it belongs to."""
        for name in (self.path, self.member):
            if not is_inside(name):
                raise ValueError(f"{name!r} must be a relative path without '..'")

    @property
    def name(self) -> str:
        """File name without folders."""
        return PurePosixPath(self.path).name

    @property
    def is_verifiable(self) -> bool:
        """Whether a digest is published, so that the official content can be recognised."""
        return bool(self.sha256 or self.md5)

    def files(self, raw: str | Path) -> list["RawFile"]:
        """This file, wherever the folder `raw` is; as `RawFolder.files`."""
        return [self]

    def mismatch(self, path: str | Path) -> str:
        """Why the file at `path` is not the official one; "" if it is."""
        path = Path(path)
        if not path.is_file():
            return "is not a plain file"
        with path.open("rb") as file:
            return self._compare(path.stat().st_size, iter(lambda: file.read(CHUNK), b""))

    def read(self, raw: str | Path) -> bytes:
        """The content of the file below the folder `raw`, verified before it is interpreted.

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
        """Where the file lies, its content verified; for one that is too large to be read at once.

        Raises:
          DataError: if it is missing or not the official content.
        """
        path = Path(raw) / self.path
        if not path.exists():
            raise self._missing(path)
        problem = "" if path.is_file() else "is not a plain file"
        if self.is_verifiable:
            problem = self.mismatch(path)
        if problem:
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
    """Files that another program makes: neither their names nor their content are known.

    Attributes:
      path: of the folder, below data/raw/, with "/"; its first part is the name of the data set.
      pattern: of the files' names, such as "*.json".
      maker: which program makes them, for the message when there are none.
    """

    pattern: str
    maker: str

    def files(self, raw: str | Path) -> list[RawFile]:
        """The files that are there, sorted by name.

        Raises:
          DataError: if there are none, or a folder has such a name.
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
    """Files that a user has put in place: all that is below a folder, hidden ones aside.

    Attributes:
      path: of the folder, below data/raw/, with "/"; its first part is the name of the data set.
    """

    def files(self, raw: str | Path) -> list[RawFile]:
        """The files that are there, sorted by path.

        Raises:
          DataError: if there are none.
        """
        names = local_files(Path(raw) / self.path)
        if not names:
            raise DataError(f"{Path(raw) / self.path} has no files; put your data there")
        return [RawFile(f"{self.path}/{name}", None, "") for name in names]


def local_files(folder: Path) -> list[str]:
    """Paths, with "/", of what a folder and its folders have, sorted; without hidden files.

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
    """Whether a path, with "/", stays in the folder that it is relative to."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name
