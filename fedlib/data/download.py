"""Downloads of raw files: from a user's mirror, the official addresses, or archives.

A file gets its name only after its size and checksums have been verified, so every file below
data/raw/ with an official name is complete. An interrupted transfer starts again. Of a file without
a published checksum only its receipt tells its content.
"""

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

ATTEMPTS = 3  # at one address
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
    """Why a transfer ended too early; another attempt may succeed."""


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
    with atomic(target) as temporary:
        if address.startswith(("http://", "https://")):
            _download(address, file, temporary, report)
        elif local(address).is_file():
            shutil.copyfile(local(address), temporary)
        else:
            raise _Failed("no such file")
        if problem := file.mismatch(temporary) or _not_what_its_name_says(file, temporary):
            raise _Failed(problem)
    report(f"{file.path}: complete, from {address}")
    if not file.is_verifiable:
        report(f"{file.path}: no checksum is published; its sha256 is {digest(target)}")


def _not_what_its_name_says(file: RawFile, path: Path) -> str:
    """The problem of a file without a published checksum; "" if none can be seen."""
    if file.is_verifiable or not file.name.endswith(".zip") or zipfile.is_zipfile(path):
        return ""
    return "is not a whole zip archive, perhaps a web page"


def _download(url: str, file: RawFile, target: Path, report: Report) -> None:
    """Write the answer of an HTTP server to `target`, in several attempts."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _receive(url, file, target, report)
        except _Broken as error:
            if attempt == ATTEMPTS:
                raise _Failed(f"{error} ({attempt} times)") from None
            report(f"{file.path}: {error}; trying again")
            time.sleep(PAUSE * 2 ** (attempt - 1))


def _receive(url: str, file: RawFile, target: Path, report: Report) -> None:
    """Write the answer to `target`, or raise _Broken or _Failed."""
    import requests  # only downloads need it

    headers, done = {"Accept-Encoding": "identity"}, 0
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            _check_answer(response, url, file)
            total, most = response.raw.length_remaining or file.size, file.size or LARGEST
            began = told = time.monotonic()
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
                        rate = done / 1e6 / (now - began)
                        report(f"{file.path}: {done / 1e6:.1f}{of} MB, {rate:.2f} MB/s")
    except (
        requests.ConnectionError,
        requests.Timeout,
        requests.packages.urllib3.exceptions.HTTPError,
    ) as error:
        raise _Broken(_reason(error)) from None
    except requests.RequestException as error:
        raise _Failed(_reason(error)) from None


def _check_answer(response: "requests.Response", url: str, file: RawFile) -> None:
    """Refuse errors, and ways from https to http for a file without a published checksum."""
    ways = [step.url for step in [*response.history, response]]
    open_ways = [way for way in ways if not way.startswith("https://")]
    if url.startswith("https://") and not file.is_verifiable and open_ways:
        raise _Failed(f"leads to {open_ways[0]}, which is not encrypted; no checksum is published")
    if response.status_code != 200:
        failed = _Broken if response.status_code in RETRIED else _Failed
        raise failed(f"HTTP {response.status_code} {response.reason}")


def _reason(error: Exception) -> str:
    """The cause of an error of the network library, without the names of its objects."""
    known = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
    return known.group(1) if known else f"{type(error).__name__}: {str(error)[:200]}"
