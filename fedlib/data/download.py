"""Downloads of raw files: from a user's mirror, the official addresses, or archives.

A file gets its name only after its size and checksums have been verified, so every file below
data/raw/ with an official name is complete. An interrupted transfer leaves NAME.part; the next
attempt, or the next run, continues it if the server can. A file without a published checksum is not
continued in another run, and only its receipt tells its content.
"""

import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedlib.data.archives import unpack
from fedlib.data.downloads import check_mirror, local
from fedlib.data.raw import CHUNK, LocalFolder, RawFile, RawFolder
from fedlib.errors import DataError
from fedlib.files import atomic, digest
from fedlib.locks import exclusive

if TYPE_CHECKING:
    import requests

ATTEMPTS = 3  # at one address without progress
PAUSE = 1.0  # seconds before the second attempt; doubles with every further one
TIMEOUT = (10, 20)  # seconds to connect, and between two packets
LARGEST = 4 << 30  # most bytes of a file of unknown size; the largest official file has 1 GB
INTERVAL = 5.0  # seconds between two lines of progress
MIRROR_WAYS = (
    'CONFIG="mirror=..." of make, --config mirror=... of snakemake, --mirror of this stage'
)
RETRIED = (408, 429, 500, 502, 503, 504)  # HTTP answers that may be better next time

Report = Callable[[str], None]


class _Failed(Exception):
    """Why an address does not give the file; another attempt would not help."""


class _Broken(Exception):
    """Why a transfer ended too early; it may be continued."""


def fetch(
    files: Iterable[RawFile | RawFolder | LocalFolder],
    raw: str | Path,
    *,
    mirror: str | None = None,
    report: Report = print,
) -> None:
    """Put every file in place below the folder `raw`; existing files are only verified.

    Args:
      files: of one data set; a `RawFolder` or `LocalFolder` must already have its files.
      raw: the folder data/raw.
      mirror: folder, file:// or http(s):// address that is tried first; it may have the files as
        DATASET/NAME or under the same paths as data/raw.
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
        missing = [file for file in missing if not _is_there(file, raw)]  # another job may be done
        packed: dict[RawFile, list[RawFile]] = {}
        reasons = []
        for file in missing:
            try:
                _get(file, raw, mirror, report)
            except _Failed as error:
                reasons.append(str(error))
                if file.archive is None:
                    raise _cannot_be_had(file, raw, reasons[-1:]) from None
                packed.setdefault(file.archive, []).append(file)
        for archive, members in packed.items():
            try:
                if not _is_there(archive, raw):
                    _get(archive, raw, mirror, report)
            except _Failed as error:
                raise _cannot_be_had(archive, raw, [*reasons, str(error)]) from None
            unpack(archive, members, raw)
            report(f"{archive.path}: unpacked {len(members)} files")


def receipt(
    dataset: str, files: Iterable[RawFile | RawFolder | LocalFolder], raw: str | Path
) -> dict:
    """Path, size and SHA-256 of each file, a JSON-able dict that depends on their content alone."""
    entries = [
        {"path": file.path, "size": path.stat().st_size, "sha256": digest(path)}
        for source in files
        for file in source.files(raw)
        for path in [Path(raw) / file.path]
    ]
    return {"dataset": dataset, "files": sorted(entries, key=lambda entry: entry["path"])}


def _is_there(file: RawFile, raw: Path) -> bool:
    path = raw / file.path
    if not path.exists():
        return False
    problem = file.mismatch(path)
    if problem:
        raise DataError(f"{path} {problem}; move it away or delete it, then run again")
    return True


def _get(file: RawFile, raw: Path, mirror: str | None, report: Report) -> None:
    """Put the file in place from the first address that has it; _Failed has all reasons."""
    reasons = []
    for address in [*_mirrored(file, mirror), *file.urls]:
        try:
            return _transfer(address, file, raw, report)
        except _Failed as error:
            reasons.append(f"  {address}: {error}")
            report(f"{file.path}: not from {address}: {error}")
    raise _Failed("\n".join(reasons))


def _mirrored(file: RawFile, mirror: str | None) -> list[str]:
    """Addresses at which a mirror may have the file."""
    if mirror is None:
        return []
    paths = dict.fromkeys([f"{file.dataset}/{file.name}", file.path])
    return [f"{mirror.rstrip('/')}/{path}" for path in paths]


def _cannot_be_had(file: RawFile, raw: Path, reasons: list[str]) -> DataError:
    facts = [f"{file.size:,} bytes"] if file.size is not None else []
    facts += [f"sha256 {file.sha256}"] if file.sha256 else []
    facts += [f"md5 {file.md5}"] if file.md5 and not file.sha256 else []
    tried = "\n".join(reason for reason in reasons if reason)
    return DataError(
        f"could not get {file.path}; tried\n{tried}\n"
        f"put {file.name} ({', '.join(facts) or 'no checksum is published'}) at {raw / file.path} "
        f"yourself, or name a folder or address that has it: {MIRROR_WAYS}"
    )


def _transfer(address: str, file: RawFile, raw: Path, report: Report) -> None:
    """Put the file in place from one address, or raise _Failed."""
    target = raw / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if address.startswith(("http://", "https://")):
        _download(address, file, part, report)
        part.replace(target)
    else:
        _copy(local(address), file, target)
        part.unlink(missing_ok=True)
    report(f"{file.path}: complete, from {address}")
    if not file.is_verifiable:
        report(f"{file.path}: no checksum is published; its sha256 is {digest(target)}")


def _copy(source: Path, file: RawFile, target: Path) -> None:
    if not source.is_file():
        raise _Failed("no such file")
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)
        problem = file.mismatch(temporary) or _not_what_its_name_says(file, temporary)
        if problem:
            raise _Failed(problem)


def _not_what_its_name_says(file: RawFile, path: Path) -> str:
    """The problem of a file without a published checksum; "" if none can be seen."""
    if file.is_verifiable or not file.name.endswith(".zip") or zipfile.is_zipfile(path):
        return ""
    return "is not a whole zip archive, perhaps a web page"


def _download(url: str, file: RawFile, part: Path, report: Report) -> None:
    """Complete `part` from an HTTP server in several attempts, verify it and sync it to disk."""
    if not file.is_verifiable:  # without a checksum, a wrong continuation would go unnoticed
        part.unlink(missing_ok=True)
    leftover = part.exists()  # from another run or server, so perhaps with other content
    failures = 0
    while True:
        before = _size(part)
        try:
            _receive(url, file, part, report)
        except _Broken as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= ATTEMPTS:
                raise _Failed(f"{error} ({failures} times)") from None
            report(f"{file.path}: {error}; trying again")
            time.sleep(PAUSE * 2 ** (failures - 1))
            continue
        problem = file.mismatch(part) or _not_what_its_name_says(file, part)
        if not problem:
            break
        part.unlink()
        if not leftover:
            raise _Failed(problem)
        leftover = False
        report(f"{file.path}: what was continued {problem}; starting afresh")
    with part.open("rb+") as content:
        os.fsync(content.fileno())


def _receive(url: str, file: RawFile, part: Path, report: Report) -> None:
    """Append the missing bytes to `part`, or raise _Broken or _Failed."""
    import requests  # only downloads need it

    start = _size(part)
    if start and start == file.size:
        return
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            _check_way(response, url, file)
            if response.status_code == 416:  # nothing is missing, or the part is too long
                return
            start = _starts_at(response, start)
            total = _total(response, start, file)
            progress = _Progress(file.path, start, total, report)
            with part.open("r+b" if start else "wb") as target:
                target.seek(start)
                # Raw bytes: some servers declare a .gz file as content that is to be unpacked.
                # As they arrive: a full chunk of a slow server would take too long.
                while chunk := response.raw.read1(CHUNK, decode_content=False):
                    progress.add(len(chunk))
                    target.write(chunk)
    except (
        requests.ConnectionError,
        requests.Timeout,
        requests.packages.urllib3.exceptions.HTTPError,
    ) as error:
        raise _Broken(_reason(error)) from None
    except requests.RequestException as error:
        raise _Failed(_reason(error)) from None
    if total is not None and _size(part) < total:
        raise _Broken(f"connection closed after {_size(part):,} of {total:,} bytes")


def _total(response: "requests.Response", start: int, file: RawFile) -> int | None:
    """Bytes of the whole file by the server or the publisher; _Failed if they disagree."""
    length = response.headers.get("Content-Length")
    if length is None:
        return file.size
    if not length.isdecimal():
        raise _Failed(f"sends no number as the length of the file: {length[:80]!r}")
    total = start + int(length)
    if file.size not in (None, total):
        raise _Failed(f"offers {total:,} bytes, the official file has {file.size:,}")
    if total > LARGEST:
        raise _Failed(f"offers {total:,} bytes, more than any file should have")
    return total


def _check_way(response: "requests.Response", url: str, file: RawFile) -> None:
    """Refuse a redirection from https to http for a file without a published checksum."""
    ways = [step.url for step in [*response.history, response]]
    open_ways = [way for way in ways if not way.startswith("https://")]
    if url.startswith("https://") and not file.is_verifiable and open_ways:
        raise _Failed(f"leads to {open_ways[0]}, which is not encrypted; no checksum is published")


def _starts_at(response: "requests.Response", start: int) -> int:
    """First byte of the answer to a request for the bytes from `start` on: `start` or 0."""
    status = f"HTTP {response.status_code} {response.reason}"
    if response.status_code in RETRIED:
        raise _Broken(status)
    if response.status_code == 200:
        return 0
    if response.status_code != 206:
        raise _Failed(status)
    found = response.headers.get("Content-Range", "")
    if not re.match(rf"bytes {start}-", found):
        raise _Failed(f"asked for bytes from {start} on, it sent {found or 'others'}")
    return start


class _Progress:
    """Reports progress every few seconds, and gives up on addresses that send too many bytes."""

    def __init__(self, name: str, start: int, total: int | None, report: Report):
        self.name, self.total, self.report = name, total, report
        self.start = self.done = start
        self.began = self.shown = time.monotonic()

    def add(self, num_bytes: int) -> None:
        """Count arrived bytes, and report them at intervals; _Failed for too many."""
        self.done += num_bytes
        most = LARGEST if self.total is None else self.total
        if self.done > most:
            raise _Failed(f"sends more than {most:,} bytes")
        now = time.monotonic()
        if now - self.shown < INTERVAL:
            return
        self.shown = now
        rate = (self.done - self.start) / (now - self.began)
        line = f"{self.name}: {self.done / 1e6:.1f} MB, {rate / 1e6:.2f} MB/s"
        if self.total:
            line += f", {self.done / self.total:.0%}, {(self.total - self.done) / rate:.0f} s left"
        self.report(line)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    """The cause of an error of the network library, without the names of its objects."""
    known = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
    return known.group(1) if known else f"{type(error).__name__}: {str(error)[:200]}"
