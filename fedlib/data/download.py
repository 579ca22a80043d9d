"""Downloads of raw files: from a user's mirror, the official addresses, or archives.

A file gets its name only after its size and checksums have been verified, so every file below
data/raw/ with an official name is complete. An interrupted transfer starts again. Of a file without
a published checksum only its receipt tells its content.
"""

import contextlib
import errno
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedlib import seals
from fedlib.data.downloads import WEB, check_mirror
from fedlib.data.raw import BROKEN, CHUNK, RawFile, RawFolder
from fedlib.errors import DataError
from fedlib.files import atomic, digest
from fedlib.locks import exclusive

if TYPE_CHECKING:
    import requests

ATTEMPTS = 3  # at one address
PAUSE = 1.0  # seconds before the second attempt; doubles with every further one
TIMEOUT = (10, 20)  # seconds to connect, and between two packets
LARGEST = 4 << 30  # most bytes of a file of unknown size; the largest official one has 1.5 GB
INTERVAL = 5.0  # seconds between two lines of progress
BUSY = 429  # the answer of HTTP to too many requests, of which a later one succeeds

Report = Callable[[str], None]

# Errors of a file that cannot be read, such as on a network disk that is gone.
UNREADABLE = errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ENOTCONN


class _Failed(Exception):
    """Why an address does not give the file."""


def fetch(
    files: Iterable[RawFile | RawFolder],
    raw: str | Path,
    *,
    mirror: str | None = None,
    report: Report = print,
) -> None:
    """Put every file in place below the folder `raw`; existing files are only verified.

    Args:
      files: of one data set; a `RawFolder` must already have its files.
      raw: the folder data/raw.
      mirror: folder or http(s):// address that is tried first; has the files under the same paths
        as data/raw.
      report: called with one line of text at a time.

    Raises:
      ConfigError: for a mirror that is neither a folder nor such an address.
      DataError: if an existing file is not the official one, or a file cannot be downloaded; the
        message has the reason for every address, and the place for a file added by hand.
    """
    raw = Path(raw)
    check_mirror(mirror)
    missing = [file for source in files for file in source.files(raw) if not _is_there(file, raw)]
    if not missing:
        return
    folder = raw / missing[0].dataset
    with exclusive(folder / ".download.lock", str(folder), wait=True, report=report):
        for file in missing:
            if not _is_there(file, raw):  # another job may have brought it
                _get(file, raw, mirror, report)


def receipt(dataset: str, files: Iterable[RawFile | RawFolder], raw: str | Path) -> dict:
    """Path, size and SHA-256 of each file, a JSON-able dict that depends on their content alone."""
    entries = [
        {"path": file.path, "size": path.stat().st_size, "sha256": digest(path)}
        for source in files
        for file in source.files(raw)
        for path in [Path(raw) / file.path]
    ]
    return {"dataset": dataset, "files": sorted(entries, key=lambda entry: entry["path"])}


def check_receipt(file: Path, sources: Iterable[RawFile | RawFolder], raw: Path) -> None:
    """Raises DataError unless raw files are those of the receipt.

    The content of files with a published checksum is not compared: who reads them verifies it.
    """
    files = [x for source in sources for x in source.files(raw) if (raw / x.path).exists()]
    now = receipt("", [x for x in files if not x.is_verifiable], raw)["files"]
    verified = [x.path for x in files if x.is_verifiable]
    then = [entry for entry in seals.read_json(file)["files"] if entry["path"] not in verified]
    if odd := [x["path"] for x in (*now, *then) if x not in now or x not in then]:
        raise DataError(f"{raw / odd[0]} is not what {file} lists; delete {file} and run again")


def _is_there(file: RawFile, raw: Path) -> bool:
    path = raw / file.path
    if not path.exists():
        return False
    if problem := file.mismatch(path):
        raise DataError(f"{path} {problem}; move it away or delete it, then run again")
    return True


def _get(file: RawFile, raw: Path, mirror: str | None, report: Report) -> None:
    """Put the file in place from the first address that has it, or from its archive."""
    mirrored = [] if mirror is None else [f"{mirror.rstrip('/')}/{file.path}"]
    tried = ""
    for address in [*mirrored, *file.urls]:
        try:
            return _transfer(address, file, raw, report)
        except _Failed as error:
            tried += f"  {address}: {error}\n"
            report(f"{file.path}: not from {address}: {error}")
    if file.archive is not None:
        if not _is_there(file.archive, raw):
            _get(file.archive, raw, mirror, report)
        _unpack(file, raw)
        return report(f"{file.path}: unpacked")
    facts = [f"{file.size:,} bytes"] if file.size is not None else []
    facts += [f"sha256 {file.sha256}"] if file.sha256 else []
    raise DataError(
        f"could not get {file.path}; tried\n{tried}"
        f"put {file.name} ({', '.join(facts) or 'no checksum is published'}) at {raw / file.path} "
        'yourself, or name a folder or address that has it: CONFIG="mirror=..."'
    )


def _transfer(address: str, file: RawFile, raw: Path, report: Report) -> None:
    """Put the file in place from one address, or raise _Failed."""
    target = raw / file.path
    with atomic(target) as temporary:
        if address.startswith(WEB):
            _download(address, file, temporary, report)
        elif (there := Path(address).expanduser()).is_file():
            _copy(there, temporary)
        else:
            raise _Failed("no such file")
        if problem := file.mismatch(temporary):
            raise _Failed(problem)
    report(f"{file.path}: complete, from {address}")
    if not file.is_verifiable:
        report(f"{file.path}: no checksum is published; its sha256 is {digest(target)}")


def _copy(source: Path, target: Path) -> None:
    """Copy a file of a mirror, or raise _Failed if it cannot be read."""
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        if error.errno in UNREADABLE:
            raise _Failed(error.strerror) from None
        raise


def _download(url: str, file: RawFile, target: Path, report: Report) -> None:
    """Write the answer of an HTTP server to `target`, in several attempts."""
    import requests  # only downloads need it

    broken = requests.RequestException, requests.packages.urllib3.exceptions.HTTPError
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _receive(url, file, target, report)
        except broken as error:
            answer = getattr(error, "response", None)
            refused = answer is not None and answer.status_code < 500 and answer.status_code != BUSY
            if refused or attempt == ATTEMPTS:
                raise _Failed(f"{type(error).__name__}: {error!s:.200}") from None
            report(f"{file.path}: {type(error).__name__}; trying again")
            time.sleep(PAUSE * 2 ** (attempt - 1))


def _receive(url: str, file: RawFile, target: Path, report: Report) -> None:
    """Write the answer to `target`; raises an error of requests or urllib3, or _Failed."""
    import requests

    headers, done = {"Accept-Encoding": "identity"}, 0
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        _check_answer(response, url, file)
        response.raise_for_status()
        total, most = response.raw.length_remaining or file.size, file.size or LARGEST
        told = time.monotonic()
        with target.open("wb") as content:
            # Raw bytes: some servers declare a .gz file as content that is to be unpacked.
            # As they arrive: a full chunk of a slow server would take too long.
            while chunk := response.raw.read1(CHUNK, decode_content=False):
                done += len(chunk)
                if done > most:
                    raise _Failed(f"sends more than {most:,} bytes")
                content.write(chunk)
                if (now := time.monotonic()) - told >= INTERVAL:
                    told, of = now, f" of {total / 1e6:.1f}" if total else ""
                    report(f"{file.path}: {done / 1e6:.1f}{of} MB")


def _check_answer(response: "requests.Response", url: str, file: RawFile) -> None:
    """Refuse ways from https to http for a file without a published checksum."""
    open_ways = [x.url for x in (*response.history, response) if not x.url.startswith("https://")]
    if url.startswith("https://") and not file.is_verifiable and open_ways:
        raise _Failed(f"leads to {open_ways[0]}, which is not encrypted; no checksum is published")


def _unpack(file: RawFile, raw: Path) -> None:
    """Put a member of an archive in place; what else the archive has, nobody looks at."""
    path = raw / file.archive.path
    try:
        with _member(path, file.member) as content, atomic(raw / file.path) as temporary:
            with temporary.open("wb") as target:
                shutil.copyfileobj(content, target, CHUNK)
            if problem := file.mismatch(temporary):
                raise DataError(f"{file.member} in {path} {problem}")
    except KeyError:
        raise DataError(f"{path} has no {file.member}") from None
    except BROKEN as error:
        raise DataError(f"{path} is broken ({error}); delete it and run again") from None


@contextlib.contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """The content of a member of an archive."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive, archive.open(name) as content:
            yield content
    else:
        with tarfile.open(path) as archive:
            yield archive.extractfile(name)
