"""Made-up raw files in the official formats, and an HTTP server that can be told to misbehave."""

import contextlib
import csv
import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedlib.data import downloads
from fedlib.data.build import build
from fedlib.data.examples import TEST, TRAIN, Examples
from fedlib.data.raw import RawFile
from fedlib.federation import Federation

# Official files, which are tested only if the variable names their folder, such as data/raw.
REAL_RAW = Path(__file__).resolve().parents[1] / os.environ.get("FEDLIB_RAW", "no folder")


NOWHERE = Path("/no/such/folder")


def federation(
    dataset: str,
    kind: str,
    raw: Path = NOWHERE,
    *,
    seed: int = 1,
    params: dict | None = None,
    **fields,
) -> Federation:
    """The federation of a data set, read with `params`, and a partition with these fields."""
    partition = {"kind": kind, **fields}
    declared = {"dataset": dataset, "params": params or {}, "partition": partition, "seed": seed}
    return build(declared, raw)


def numbered(labels, num_train: int | None = None, **known) -> Examples:
    """Examples with these labels whose inputs [M, 1, 1, 1] are their own row numbers.

    Args:
      labels: of all classes, or give `num_classes`.
      num_train: of the official training part, which comes first; None for no official parts.
      known: other fields of `Examples`.
    """
    y = np.asarray(labels)
    if num_train is not None:
        sizes = [num_train, len(y) - num_train]
        known["part"] = np.repeat(np.array([TRAIN, TEST], np.uint8), sizes)
    known = {"num_classes": int(y.max()) + 1} | known
    return Examples(np.arange(len(y))[:, None, None, None], y, **known)


# As many labels of each class as CIFAR-10 has: row r is the (r // 10)-th example of class r % 10.
CIFAR10 = numbered(np.arange(60_000) % 10, 50_000)


def owned(built: Federation, split: str = "train", group: str = "seen") -> list[np.ndarray]:
    """Rows of each member of a group in one split."""
    return [built.split(split).of(client) for client in built.ids(group)]


def class_counts(labels: np.ndarray, owners: list[np.ndarray], num_classes: int = 10) -> np.ndarray:
    """Examples of each class in each owner's rows -> [C, L]"""
    return np.stack([np.bincount(labels[rows], minlength=num_classes) for rows in owners])


def made_up_texts(*, seed: int = 0, **params) -> Federation:
    """The made-up federation of texts, whose server and probe own some."""
    return federation("synthetic_text", "natural", seed=seed, params=params)


def make_up(monkeypatch, raw: Path, dataset: str, **contents: bytes) -> None:
    """Put made-up raw files in place of the official ones, by their keys in the table."""
    files = downloads.table(dataset).files
    for key, content in contents.items():
        made_up = official(files[key].path, content)
        put(raw, made_up, content)
        monkeypatch.setitem(files, key, made_up)


def make_up_cifar10(monkeypatch, raw: Path, num: int) -> None:
    """CIFAR-10 with `num` images in each of its six batches."""
    names = downloads.files("cifar10")
    contents = {name: cifar10_batch(num, first=num * i) for i, name in enumerate(names)}
    make_up(monkeypatch, raw, "cifar10", **contents)


def rows_of_csv(rows: list[list[str]]) -> str:
    """Rows as the publishers of texts write them: every field in quotes, no header."""
    content = io.StringIO()
    csv.writer(content, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return content.getvalue()


# A vocabulary of 30 word pieces in BERT's order: special ones, whole words, what goes on a word.
WORD_PIECES = """[PAD] [UNK] [CLS] [SEP] [MASK] . , ! & ; i we you am is not a the day film
happy sad good bad cafe ##s ##ly ##er un ##happy""".split()


def make_up_sent140(monkeypatch, raw: Path, train: list, test: list) -> None:
    """Sentiment140 with these (published label, text) and the vocabulary above."""

    def content(pairs: list) -> bytes:
        about = ["Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", "somebody"]
        rows = [[label, str(n), *about, text] for n, (label, text) in enumerate(pairs)]
        return rows_of_csv(rows).encode("latin-1")

    pieces = "".join(f"{piece}\n" for piece in WORD_PIECES).encode()
    files = {"train": content(train), "test": content(test), "vocabulary": pieces}
    make_up(monkeypatch, raw, "sent140", **files)


# The bytes in GPT-2's order and its signs for them, and what six merges make of them.
BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES += [byte for byte in range(256) if byte not in BYTES]
SIGNS = [chr(byte if place < 188 else 256 + place - 188) for place, byte in enumerate(BYTES)]
MERGES = ["g o", "o d", "go od", "b a", "ba d", "Ġ good"]
BYTE_PAIRS = [*SIGNS, *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]


def make_up_yelp(monkeypatch, raw: Path, train: list, test: list) -> None:
    """Yelp Review Full with these (published label, text as it is in the file) and merges."""
    numbers = {token: number for number, token in enumerate(BYTE_PAIRS)}
    merges = "".join(f"{line}\n" for line in ["#version: 0.2", *MERGES])
    files = {"vocabulary": json.dumps(numbers).encode(), "merges": merges.encode()}
    for name, pairs in (("train", train), ("test", test)):
        files[name] = rows_of_csv([list(pair) for pair in pairs]).encode()
    make_up(monkeypatch, raw, "yelp", **files)


def needs(dataset: str, source: str | None = None):
    """Skips a test unless the real raw files of a data set are there."""
    files = downloads.files(dataset, source).values()
    missing = [file.path for file in files if not (REAL_RAW / file.path).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"no {missing[:1]} below {REAL_RAW}")


def leaf(raw: Path, part: str, name: str, writers: dict[str, list[int]]) -> None:
    """A file as LEAF writes it; an image is numbered by its first pixel, its label likewise."""
    data = {}
    for writer, numbers in writers.items():
        x = np.ones((len(numbers), 784))
        x[:, 0] = np.array(numbers) / 255
        data[writer] = {"x": x.tolist(), "y": [n % 62 for n in numbers]}
    sizes = [len(numbers) for numbers in writers.values()]
    content = {"users": list(writers), "num_samples": sizes, "user_data": data}
    path = raw / "femnist/data" / part / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def official(path: str, content: bytes, **other) -> RawFile:
    """The description of a file with this content."""
    sha256, md5 = (hashlib.new(name, content).hexdigest() for name in ("sha256", "md5"))
    return RawFile(path, len(content), sha256, md5, **other)


def put(raw: Path, file: RawFile, content: bytes) -> Path:
    """Write `content` where the raw file `file` belongs."""
    path = raw / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx(array: np.ndarray) -> bytes:
    """A gzipped idx file of unsigned bytes."""
    return _idx(array, 0x08, np.uint8)


def idx_int(array: np.ndarray) -> bytes:
    """A gzipped idx file of 32-bit integers."""
    return _idx(array, 0x0C, ">i4")


def _idx(array: np.ndarray, code: int, dtype: object) -> bytes:
    header = struct.pack(">BBBB", 0, 0, code, array.ndim)
    header += struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(dtype).tobytes(), mtime=0)


def images(num: int, first: int = 0, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """`num` images [num, 28, 28] that can be told apart by their first two pixels, and labels."""
    x = np.zeros((num, 28, 28), np.uint8)
    numbers = np.arange(first, first + num)
    x[:, 0, 0], x[:, 0, 1] = numbers % 256, numbers // 256
    return x, numbers % classes


def cifar10_batch(num: int, first: int = 0) -> bytes:
    """A CIFAR-10 batch of `num` images whose first two bytes number them."""
    return _cifar(first, num, lambda numbers: {"labels": (numbers % 10).tolist()})


def cifar100_batch(num: int, first: int = 0) -> bytes:
    """A batch of CIFAR-100, numbered likewise; class f has superclass f // 5."""

    def labels(numbers):
        fine = numbers * 7 % 100
        return {"fine_labels": fine.tolist(), "coarse_labels": (fine // 5).tolist()}

    return _cifar(first, num, labels)


def _cifar(first: int, num: int, labels: Callable[[np.ndarray], dict]) -> bytes:
    data = np.zeros((num, 3072), np.uint8)
    numbers = np.arange(first, first + num)
    data[:, 0], data[:, 1] = numbers % 256, numbers // 256
    # Protocol 3 is the first that has bytes, and so needs no codec to rebuild an array.
    return pickle.dumps({"data": data, **labels(numbers)}, protocol=3)


def tar(members: dict[str, bytes]) -> bytes:
    """An archive of these members."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def zipped(members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of these members, packed like this."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` by path; see the attributes for what it can do wrong.

    Attributes:
      content: bytes by path ("/mnist/a.gz").
      encoding: the Content-Encoding that it claims, if any.
      cuts: for each coming request, how many bytes it sends before it hangs up.
      statuses: for each coming request, an HTTP error to answer with, or None.
      script: a function that yields the bytes of every answer, piece by piece; None for content.
      requests: paths of all requests so far.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content, self.encoding = {}, None
        self.cuts, self.statuses, self.requests, self.script = [], [], [], None

    def url(self, path: str = "") -> str:
        """Address of a path on this server."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests.append(self.path)
        if server.script:
            with contextlib.suppress(ConnectionError):
                self.wfile.writelines(server.script())
            return None
        status = server.statuses.pop(0) if server.statuses else None
        if status or self.path not in server.content:
            return self.send_error(status or 404)
        whole = server.content[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(whole)))
        if server.encoding:
            self.send_header("Content-Encoding", server.encoding)
        self.end_headers()
        self.wfile.write(whole[: server.cuts.pop(0) if server.cuts else None])

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving():
    """A `Server` that runs until the end of the block."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
