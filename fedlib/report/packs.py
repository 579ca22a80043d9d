"""Packs: the inputs of a paper's tables and figures, small enough for a repository.

A pack is a folder with the tidy metrics and clients, as compressed Parquet, and the specification
of every table and figure. All of them can be made again from it, with the same numbers as from the
runs. An archive in the pack has the history and evaluation of every run, and tunings, so that they
can be taken elsewhere; it shrinks small HDF5 files to a tenth. A pack has no data and no
weights.
"""

import io
import lzma
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedlib import seals
from fedlib.errors import DataError, plain, quote
from fedlib.report import frames
from fedlib.report.metrics import definitions
from fedlib.report.metrics.runs import COLUMNS
from fedlib.results import CLIENT_COLUMNS
from fedlib.spec.exhibits import OF_PREDICTIONS

FOLDER = "pack"  # in a paper's kept folder
SMALL = {"compression": "zstd", "compression_level": 19}
RUNS, ARCHIVE = "runs", "runs.tar.xz"  # a folder in the archive
# Files of the archive, which are those of a folder of results.
_RUN, _SEED = r"(?:(?!\.+/)[a-z0-9_.-]{1,100}/){3}", r"seed\d{1,20}/"
MEMBER = re.compile(
    rf"runs/{_RUN}{_SEED}(?:history|evaluation)\.h5|tuned/{_RUN}(?:{_SEED})?(?:choice|trials)\.json"
)
METRICS, CLIENTS, EXHIBITS = "metrics.parquet", "clients.parquet", "exhibits.json"
# Metrics in [0, 1].
FRACTIONS = {*(m.__name__ for m in definitions.METRICS), *OF_PREDICTIONS} - {"loss", "brier"}
# Entries of many specifications, which a pack has once; and what they are called by.
SHARED = {"federations": ("name",), "runs": ("federation", "label")}


class Entry(NamedTuple):
    """A table or figure of a pack.

    Attributes:
      stage: "table" or "figure".
      spec: specification of its job, see `fedlib.report.exhibits`.
      published: whether it shows the paper's own numbers.
    """

    stage: str
    spec: dict
    published: bool


def write(folder: Path, metrics: Path, clients: Path, exhibits: Sequence[Entry]) -> int:
    """Pack the two frames and the specifications of exhibits -> bytes of the pack"""
    for source, name in ((metrics, METRICS), (clients, CLIENTS)):
        made = seals.origin(source)
        frames.write_parquet(frames.read_parquet(source), folder / name, made, **SMALL)
    seals.write_json(folder / EXHIBITS, _each_once(exhibits))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def file_names(file: Path, forms: Mapping[str, Sequence[str]]) -> set[str]:
    """Names of the files of all exhibits in a list, in these forms; none if there is no list."""
    listed = seals.recall(file).get("exhibits", ())
    return {f"{spec['name']}.{form}" for stage, spec, _ in listed for form in forms[stage]}


def _each_once(exhibits: Sequence[Entry]) -> dict:
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


def write_archive(folder: Path, results: Path, files: Iterable[Path]) -> None:
    """Put sealed files of a folder of results into the archive; equal files give equal bytes."""
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(files):
            content = seals.verify(path)
            member = tarfile.TarInfo(path.relative_to(results).as_posix())
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def below(source: Path, name: str) -> list[Path]:
    """Paths of that name in a folder, but for hidden folders, which a killed process may leave."""
    return [source / x for x in sorted(glob(f"**/{name}", root_dir=source, recursive=True))]


@contextmanager
def unpack_runs(source: Path) -> Iterator[Path]:
    """A temporary folder with the runs and tunings of all packs in a folder, or of one pack.

    Errors about its files name them by the path of the archive.

    Raises:
      DataError: if there are none, or the archive is damaged or no pack's.
    """
    archives = below(source, ARCHIVE)
    if not archives:
        raise DataError(
            f"{source} has no {ARCHIVE}: runs are taken from what is kept, such as "
            "docs/results/pfedmoe/full; results of other machines are copied, see docs/workflow.md"
        )
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        try:
            for archive in archives:
                _unpack(archive, Path(place))
            yield Path(place)
        except DataError as error:
            name = str(archives[0] if len(archives) == 1 else source)
            raise DataError(str(error).replace(place, name)) from None


def _unpack(archive: Path, place: Path) -> None:
    """Write the files of an archive, which must all be of runs or tunings."""
    try:
        content = io.BytesIO(lzma.decompress(archive.read_bytes()))
        with tarfile.open(fileobj=content, mode="r:") as packed:
            for member in packed:
                file = place / member.name
                known = MEMBER.fullmatch(member.name) and member.isfile()
                own = packed.extractfile(member).read() if known else b""
                if not known or (file.exists() and file.read_bytes() != own):
                    what = "another pack has with other content" if known else "is no file of a run"
                    raise DataError(f"{archive} has {plain(member.name)!r:.200}, which {what}")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(own)
    except DataError:
        raise
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
        raise DataError(f"{archive} is damaged: {plain(str(error))}") from None


def read(folder: Path, paper: str | None = None) -> tuple[Path, Path, list[Entry]]:
    """Files of metrics and clients, and the exhibits.

    Args:
      paper: whose pack it must be; None for any.

    Raises:
      DataError: if there is no pack, its content was changed or makes no sense, or it is of another
        paper.
    """
    if not (folder / EXHIBITS).exists():
        raise DataError(f"{folder} has no {EXHIBITS}: `make keep` packs results")
    content = seals.read_json(folder / EXHIBITS)
    found = content.get("exhibits")
    if not isinstance(found, list) or not found or not all(map(_is_exhibit, found)):
        raise DataError(f"{folder / EXHIBITS} has no tables and figures, each with what it shows")
    try:
        exhibits = [Entry(stage, _whole(spec, content), shown) for stage, spec, shown in found]
    except (LookupError, TypeError):
        raise DataError(
            f"{folder / EXHIBITS} has no list of federations and runs; the pack was changed, or is "
            "of another version"
        ) from None
    others = {exhibit.spec.get("paper") for exhibit in exhibits} - {paper}
    if paper and others:
        raise DataError(f"{folder} is a pack of {quote(others.pop())}, and not of {paper}")
    _check_numbers(folder)
    return folder / METRICS, folder / CLIENTS, exhibits


@contextmanager
def join(source: Path) -> Iterator[Path]:
    """The pack of a folder; several packs in it become one, with the numbers of all.

    Each table and figure has the runs of all packs that have it.

    Raises:
      DataError: if two have other runs or data of the same name, or another scale, or if the runs
        of a table or figure have no seed in common.
    """
    places = below(source, FOLDER) or [source]
    if len(places) == 1:
        yield places[0]
        return
    found, every = [read(place) for place in places], {}
    for exhibit in (x for *_, exhibits in found for x in exhibits):
        exhibit.spec.pop("metrics", None)  # the digest of one pack's
        key = exhibit.stage, exhibit.spec.get("name")
        try:
            every[key] = _both(every[key], exhibit) if key in every else exhibit
        except (AttributeError, LookupError, TypeError) as error:
            raise DataError(f"packs in {source} cannot be drawn together: {error!r}") from error
    both = [pd.concat([frames.read_parquet(x[i]) for x in found]).drop_duplicates() for i in (0, 1)]
    there = {*both[0][["federation", "label", "seed"]].itertuples(index=False, name=None)}
    for spec in (exhibit.spec for exhibit in every.values()):
        runs = [(run["federation"], run["label"]) for run in spec["runs"]]
        spec["seeds"] = [x for x in spec["seeds"] if {(*run, x) for run in runs} <= there]
        if not spec["seeds"]:
            raise DataError(f"packs in {source} share no seed for {spec['name']}; draw one of them")
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        for rows, name in zip(both, (METRICS, CLIENTS), strict=True):
            frames.write_parquet(rows, Path(place) / name, **SMALL)
        seals.write_json(Path(place) / EXHIBITS, _each_once([*every.values()]))
        yield Path(place)


def _both(one: Entry, other: Entry) -> Entry:
    """An exhibit with the runs, data and seeds of two; see `join`."""
    mine, theirs = one.spec, other.spec
    for what in ("paper", "scale", "folder_note"):
        if mine[what] != theirs[what]:
            both = f"{mine[what]!r} and {theirs[what]!r}"
            raise DataError(f"packs of one {what} are drawn together, got {both}")
    seeds = sorted({*mine["seeds"], *theirs["seeds"]})
    spec = dict(mine, seeds=seeds, params=_params(mine["params"], theirs["params"]))
    for entry, names in SHARED.items():
        every = {tuple(x[name] for name in names): x for x in mine[entry]}
        for x in theirs[entry]:
            if every.setdefault(key := tuple(x[name] for name in names), x) != x:
                raise DataError(f"two packs have {'/'.join(key)}, with other settings")
        spec[entry] = [*every.values()]
    return Entry(one.stage, spec, one.published or other.published)


def _params(mine: dict, theirs: dict) -> dict:
    """The parameters of an exhibit of two packs, each of which has those of its own runs."""
    both = {k: theirs[k] | x for k, x in mine.items() if isinstance(x, dict) and theirs.get(k)}
    if isinstance(mine.get("of"), list):  # titles, to which each pack adds its user's methods
        both["of"] = [*dict.fromkeys([*mine["of"], *theirs["of"]])]
    if rows := [*(mine.get("rows") or ()), *(theirs.get("rows") or ())]:
        named: dict[object, dict] = {}  # rows of a method have its labels and homes in each pack
        for row in rows:
            key = (row["title"], row.get("again")) if "labels" in row else str(row)
            lists = {x: named.get(key, row)[x] + row[x] for x in ("labels", "home") if x in row}
            named[key] = row | {name: [*dict.fromkeys(x)] for name, x in lists.items()}
        both["rows"] = [*named.values()]
    return theirs | mine | both


def _check_numbers(folder: Path) -> None:
    """Raise DataError if a frame has a number twice, or a fraction outside of [0, 1]."""
    tidy = frames.read_parquet(folder / METRICS, COLUMNS)
    clients = frames.read_parquet(folder / CLIENTS, CLIENT_COLUMNS)
    fractions = tidy.loc[tidy["metric"].isin(FRACTIONS), "value"]
    each = CLIENT_COLUMNS[: CLIENT_COLUMNS.index("count")]
    for file, frame, keys, values in (
        (METRICS, tidy, [x for x in COLUMNS if x != "value"], fractions),
        (CLIENTS, clients, [*each], clients["accuracy"]),
    ):
        if (twice := frame.duplicated(keys)).any():
            first = ", ".join(map(str, frame.loc[twice, keys].iloc[0]))
            raise DataError(f"{folder / file} has the number of {first} twice")
        if (odd := (values < 0) | (values > 1)).any():
            raise DataError(f"{folder / file} must have fractions, got {values[odd].iloc[0]}")


def _whole(spec: dict, content: dict) -> dict:
    """The specification with what its positions point to."""
    return spec | {name: [content[name][place] for place in spec[name]] for name in SHARED}


def _is_exhibit(value: object) -> bool:
    match value:
        case ["table" | "figure", dict(), bool()]:
            return True
    return False
