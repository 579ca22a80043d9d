"""A federation: one data set cut into clients, in memory and on disk.

All examples are in one pool. Each split lists the rows of the pool that each client owns
(compressed sparse rows). A client is a list of row numbers and a batch is `x[rows]`, so clients of
different sizes cost nothing. Images stay uint8 here and are scaled on the device.

This module does not import PyTorch: partitioning, metrics and figures do not need it.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlib import hdf5, seals
from fedlib.errors import DataError, brief
from fedlib.files import atomic, canonical_json

SPLITS = ("train", "val", "test")
GROUPS = ("seen", "unseen", "server", "probe")
CLIENTS = GROUPS[:2]  # the other two own the server's data; documents do not call them clients
NAMES = ("client_name", "class_name", "column_name")
OPTIONAL = ("side", "cluster", "truth", *NAMES)  # arrays that most shard files do not have
FORMAT = 1  # of the shard file; a reader refuses any other

# Errors of HDF5, NumPy and JSON for a damaged file.
DAMAGE = (AttributeError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError)


class Tokens(NamedTuple):
    """The tokens of a text."""

    vocabulary: int  # tokens are 0 ... vocabulary - 1
    pad: int  # token that fills up short texts


@dataclass(frozen=True)
class Split:
    """Rows of the pool by owner: client c owns `rows[offsets[c]:offsets[c + 1]]`.

    Attributes:
      rows: [M_split] int64.
      offsets: [C + 1] int64, starting at 0.
    """

    rows: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lists(cls, owned: list) -> "Split":
        """The split in which client c owns the row numbers `owned[c]`."""
        parts = [np.asarray(rows, dtype=np.int64) for rows in owned]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int64), *parts]), offsets)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Examples per client -> [C] int64"""
        return np.diff(self.offsets)

    def of(self, client: int) -> np.ndarray:
        """Rows of one client -> [N] int64"""
        return self.rows[self.offsets[client] : self.offsets[client + 1]]


@dataclass(frozen=True)
class Federation:
    """Examples and their owners.

    Attributes:
      x: [M, ...] inputs; uint8 for images (channels first) and characters [M, T], int32 or int64
        for tokens [M, T], float32 otherwise.
      y: [M] int64 labels; [M, T] for sequences, uint8 for long texts, to save memory.
      num_classes: L.
      train, val, test: the rows of each client; `val` may be empty.
      group: [C] uint8, an index into `GROUPS`: a client that takes part in training (seen) or does
        not (unseen); the server, which owns data for its own training, validation and tests; or a
        probe, which owns the data on which the server measures models.
      client_id: [C] int64, the client's number before empty clients were dropped.
      mean, std: per channel or feature; a uint8 input becomes (x / 255 - mean) / std on the device.
        Other inputs are (given - mean) / std already. Empty for those that are as they were given.
      spec: the declaration this was built from (`fedlib.spec.Data`), as a JSON-able dict.
      side: [M] int64 side information of each example, such as the number of the angle by which an
        image was turned; None without side information.
      cluster: [C] int64 true cluster of each client, such as the number of its permutation of the
        labels; None without clusters.
      tokens: of texts: the size of the vocabulary and the padding token; None for other inputs.
      truth: [M, L] float32, p(y | x) of the client that owns the example, known for synthetic data;
        None otherwise. Only tests use it: a prediction is right with the probability of its label.
      client_name: [C] words, or int64 numbers, that a user calls the clients; None for `client_id`.
      class_name: [L] words that a user calls the classes; None for numbers.
      column_name: [F] words, or numbers as words, that a user calls the columns of a table of
        inputs; None for others.
      left_out: number of clients without training or test examples, which are left out; 0 in a
        federation of a file, whose manifest has it.
    """

    x: np.ndarray
    y: np.ndarray
    num_classes: int
    train: Split
    val: Split
    test: Split
    group: np.ndarray
    client_id: np.ndarray
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    spec: dict = field(default_factory=dict)
    side: np.ndarray | None = None
    cluster: np.ndarray | None = None
    tokens: Tokens | None = None
    truth: np.ndarray | None = None
    client_name: np.ndarray | None = None
    class_name: np.ndarray | None = None
    column_name: np.ndarray | None = None
    left_out: int = 0

    def __post_init__(self):
        """Raises DataError unless every row belongs to at most one client and one split.

        Also for inputs that are not finite, and for labels, groups, side information, clusters,
        tokens or a truth that do not fit the rest.
        """
        clients = self.num_clients
        for name in SPLITS:
            offsets = getattr(self, name).offsets
            if len(offsets) != clients + 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
                raise DataError(f"offsets of split {name} do not describe {clients} clients")
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} labels")
        if len(self.client_id) != clients:
            raise DataError(f"{clients} groups but {len(self.client_id)} client ids")
        if len(self.y) and not 0 <= int(self.y.min()) <= int(self.y.max()) < self.num_classes:
            raise DataError(
                f"labels must be in [0, {self.num_classes}), "
                f"got {int(self.y.min())} to {int(self.y.max())}"
            )
        if np.issubdtype(self.x.dtype, np.floating):
            self._check_finite()
        for name, length in (("side", len(self.x)), ("cluster", clients), ("truth", len(self.x))):
            known = getattr(self, name)
            if known is not None and (len(known) != length or known.min(initial=0) < 0):
                got = f"{len(known)}, from {known.min(initial=0)}"
                raise DataError(f"{name} must have {length} rows of numbers from 0, got {got}")
        lengths = clients, self.num_classes, self.x.shape[-1]
        for name, length in zip(NAMES, lengths, strict=True):
            names = getattr(self, name)
            if names is not None and not len({*names.tolist()}) == len(names) == length:
                raise DataError(f"{name} must have {length} different names, got {names.tolist()}")
        if self.truth is not None and not np.allclose(self.truth.sum(1), 1, atol=1e-5):
            raise DataError("truth must be probabilities that sum to 1 for every input")
        if clients and int(self.group.max()) >= len(GROUPS):
            raise DataError(f"group must be below {len(GROUPS)}, got {int(self.group.max())}")
        if self.tokens is not None:
            _check_tokens(self.x, *self.tokens)
        self._check_ownership()

    @property
    def num_clients(self) -> int:
        """C, the number of owners in all groups; every per-client state has a row for each.

        `ids` tells how many of them are clients. Server and probe have rows, too, so a model that
        is trained on their data is indexed like any client's.
        """
        return len(self.group)

    def ids(self, group: str) -> np.ndarray:
        """Positions of the owners of `group`, one of `GROUPS` -> [C_group] int64"""
        return np.flatnonzero(self.group == GROUPS.index(group))

    @property
    def called(self) -> list[int | str]:
        """What users call each client: its name if it has one, otherwise its number -> [C]"""
        return (self.client_id if self.client_name is None else self.client_name).tolist()

    def split(self, name: str) -> Split:
        """The split called `name`: "train", "val" or "test"."""
        return getattr(self, name)

    @property
    def class_histogram(self) -> np.ndarray:
        """Examples of each class owned by each client, all splits together -> [C, L] int64

        Counts label elements, so a sequence of 80 characters counts 80 times.
        """
        histogram = np.zeros((self.num_clients, self.num_classes), np.int64)
        for split in map(self.split, SPLITS):
            for client in range(self.num_clients):
                labels = self.y[split.of(client)].ravel()
                histogram[client] += np.bincount(labels, minlength=self.num_classes)
        return histogram

    @cached_property
    def optimum(self) -> np.ndarray | None:
        """Best possible expected accuracy of each client on its test examples -> [C]; see `truth`

        NaN for a client without test examples; None if the truth is not known.
        """
        if self.truth is None:
            return None
        best = self.truth.max(1).astype(np.float64)
        own = [best[self.test.of(client)] for client in range(self.num_clients)]
        return np.array([values.mean() if len(values) else np.nan for values in own])

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every array's content, which does not depend on the HDF5 library."""
        return {name: array_digest(array) for name, array in self._arrays().items()}

    def manifest(self) -> dict:
        """A description of the shards, for the workflow and for readers."""
        asked = self.spec.get("partition", {}).get("num_clients")  # tells who is left out
        return {
            "format": FORMAT,
            **self._settings(),
            "num_examples": len(self.x),
            "client_id": self.client_id.tolist(),
            **{x: names.tolist() for x in NAMES if (names := getattr(self, x)) is not None},
            "group": [GROUPS[g] for g in self.group],
            "sizes": {name: self.split(name).sizes.tolist() for name in SPLITS},
            "class_histogram": [" ".join(map(str, row)) for row in self.class_histogram.tolist()],
            "digests": self.digests,
            **({"tokens": self.tokens._asdict()} if self.tokens else {}),
            **({"left_out": self.left_out} if self.left_out and not asked else {}),
        }

    def save(
        self, shards: str | Path, manifest: str | Path, made: seals.Made | None = None
    ) -> None:
        """Write the shard file, and the manifest with its digests, each atomically.

        Args:
          made: origin of the files, noted in the shard file only, so that the manifest depends on
            nothing but the shards.
        """
        with atomic(shards) as temporary:
            with hdf5.create(temporary, userblock_size=seals.USERBLOCK) as file:
                for name, array in self._arrays().items():
                    file.create_dataset(name, data=array)
                settings = self._settings()
                spec = canonical_json(settings.pop("spec"))
                file.attrs.update(format=FORMAT, **settings, spec=spec)
                if self.tokens is not None:
                    file.attrs["tokens"] = self.tokens
            seals.write_json(manifest, self.manifest())
            if made:
                seals.note_hdf5(temporary, made._replace(beside=seals.contents(manifest)))

    @classmethod
    def load(cls, shards: str | Path, manifest: str | Path | None = None) -> "Federation":
        """The federation in a shard file, checked against its manifest if one is given.

        Raises:
          DataError: if the file is missing, truncated, of another format, or does not match the
            manifest.
        """
        advice = "delete it and run again: the workflow rebuilds it from the raw files"
        try:
            with hdf5.open_file(shards) as file:
                if int(file.attrs["format"]) != FORMAT:
                    raise DataError(
                        f"it has format {file.attrs['format']}, this version reads {FORMAT}"
                    )
                splits = {
                    name: Split(hdf5.read(file[f"{name}/rows"]), hdf5.read(file[f"{name}/offsets"]))
                    for name in SPLITS
                }
                tokens = file.attrs.get("tokens")
                federation = cls(
                    x=hdf5.read(file["x"]),
                    y=hdf5.read(file["y"]),
                    num_classes=int(file.attrs["num_classes"]),
                    group=hdf5.read(file["group"]),
                    client_id=hdf5.read(file["client_id"]),
                    mean=tuple(map(float, file.attrs["mean"])),
                    std=tuple(map(float, file.attrs["std"])),
                    spec=json.loads(file.attrs["spec"]),
                    tokens=None if tokens is None else Tokens(*map(int, tokens)),
                    **splits,
                    **{name: hdf5.read(file[name]) for name in OPTIONAL if name in file},
                )
        except FileNotFoundError:
            raise DataError(f"{shards} does not exist; run the partition stage first") from None
        except DataError as error:
            raise DataError(f"{shards}: {error}; {advice}") from None
        except DAMAGE as error:
            told = f"{shards} is truncated or corrupted ({brief(error)}); {advice}"
            raise DataError(told) from error
        if manifest is not None:
            content = seals.read_json(manifest, advice, has=("digests", "spec"))
            federation._verify(content, shards, advice)
        return federation

    def _verify(self, manifest: dict, shards: str | Path, advice: str) -> None:
        expected, mine = manifest["digests"], self.digests
        wrong = [n for n in sorted(expected | mine) if expected.get(n) != mine.get(n)]
        settings = self._settings() | {"tokens": self.tokens and self.tokens._asdict()}
        wrong += [name for name, value in settings.items() if manifest.get(name) != value]
        if wrong:
            raise DataError(
                f"{shards} does not match its manifest: {', '.join(wrong)} differ; {advice}"
            )

    def _settings(self) -> dict:
        """The content of a shard file except its arrays."""
        return {
            "spec": self.spec,
            "num_classes": self.num_classes,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {"x": self.x, "y": self.y, "group": self.group, "client_id": self.client_id}
        for name in SPLITS:
            split = self.split(name)
            arrays |= {f"{name}/rows": split.rows, f"{name}/offsets": split.offsets}
        optional = {name: getattr(self, name) for name in OPTIONAL}
        return arrays | {name: hdf5.plain(x) for name, x in optional.items() if x is not None}

    def _check_finite(self) -> None:
        if len(wrong := np.flatnonzero(~np.isfinite(self.x.reshape(len(self.x), -1)).all(1))):
            row = int(wrong[0])
            splits = [self.split(name) for name in SPLITS]
            owners = [c for c in range(self.num_clients) for x in splits if row in x.of(c)]
            raise DataError(
                f"inputs must be finite numbers; row {row}, of client {min(owners, default=None)}, "
                f"has NaN or infinity ({len(wrong)} such rows)"
            )

    def _check_ownership(self) -> None:
        owners = np.zeros(len(self.x), np.int64)
        for name in SPLITS:
            rows = self.split(name).rows
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self.x):
                raise DataError(f"split {name} names rows outside the pool of {len(self.x)}")
            owners += np.bincount(rows, minlength=len(self.x))
        if np.any(owners > 1):
            row = int(np.argmax(owners > 1))
            raise DataError(f"row {row} must have one owner and one split, got {owners[row]}")


def _check_tokens(x: np.ndarray, vocabulary: int, pad: int) -> None:
    """Raises DataError unless `x` and the padding are tokens of the vocabulary."""
    if x.dtype not in (np.int32, np.int64):
        raise DataError(f"tokens must be int32 or int64, got {x.dtype}")
    least, most = (int(found) for found in (x.min(initial=pad), x.max(initial=pad)))
    if not 0 <= least <= most < vocabulary:
        raise DataError(f"tokens must be in [0, {vocabulary}), got {least} to {most}")


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's type, shape and content."""
    content = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
