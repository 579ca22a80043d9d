"""States on disk: with checksums, loaded without executing code, and resumable after any crash.

A checkpoint is two files. `state-<round>.pt` has the tensors. `checkpoint.json`, written after it,
has its name and checksum, the number of rounds done, and what identifies the run. A checkpoint of
another run is ignored, and the next `save` replaces it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

from fedlib import mapped, seals
from fedlib.errors import DataError, quote
from fedlib.files import atomic, digest

CPU = torch.device("cpu")


def save_tensors(path: str | Path, tensors: dict[str, Tensor]) -> str:
    """Write tensors by name, atomically; returns the SHA-256 of the file."""
    with atomic(path) as temporary:
        # Through a file object: given a name, torch would write that temporary name into it.
        with temporary.open("wb") as file:
            home = dict(zip(tensors, _copy(tensors.values(), [CPU] * len(tensors)), strict=True))
            torch.save({name: _compact(x) for name, x in home.items()}, _LettingGo(file))
    return digest(path)


class _LettingGo:
    """A file that frees the pages of mapped tensors (`fedlib.mapped`) after every write."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.flush = file.flush

    def write(self, data: bytes) -> int:
        """See `io.RawIOBase.write`."""
        written = self._file.write(data)
        mapped.let_go()
        return written


def _compact(value: Tensor) -> Tensor:
    """`value`, copied if it is a view, which would write its whole storage into the file.

    Tensors that share all their storage, such as clients' empty memories, are written once.
    """
    return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()


def load_tensors(path: str | Path, sha256: str) -> dict[str, Tensor]:
    """Tensors by name, mapped from the file, so that those that nobody reads take no memory.

    Raises:
      DataError: if the file is missing or its SHA-256 is not `sha256`.
    """
    if not Path(path).exists():
        raise DataError(f"{path} does not exist; run the training stage first")
    if seals.is_stand_in(path):
        raise DataError(
            f"{path} has no weights: the run was taken without them; copy them here, or delete "
            "this file to train it again"
        )
    found = digest(path)
    if found != sha256:
        raise DataError(
            f"{path} is truncated or corrupted: sha256 is {found[:12]}..., expected "
            f"{sha256[:12]}...; delete it and run again"
        )
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def flatten(state: Any) -> dict[str, Tensor]:
    """The leaves of a state by their path in it."""
    return {keystr(path): leaf for path, leaf in tree_flatten_with_path(state)[0]}


def restore(template: Any, tensors: dict[str, Tensor]) -> Any:
    """A state with the structure and devices of `template` and the values `tensors`.

    Raises:
      DataError: if the names differ, because another version of the method wrote the file.
    """
    paths, structure = tree_flatten_with_path(template)
    names = [keystr(path) for path, _ in paths]
    if sorted(names) != sorted(tensors):
        odd = sorted(set(names) ^ set(tensors))
        raise DataError(f"state does not fit the method: entries {quote(odd)} are on one side only")
    devices = [leaf.device for _, leaf in paths]
    return tree_unflatten(_copy([tensors[name] for name in names], devices), structure)


def _copy(tensors: Iterable[Tensor], devices: Iterable[torch.device]) -> list[Tensor]:
    """Each tensor on its device; the same tensor, such as clients share, is copied once."""
    pairs = [*zip(tensors, devices, strict=True)]
    different = {(id(x), device): x for x, device in pairs}
    copies = {(key, device): x.to(device) for (key, device), x in different.items()}
    return [copies[id(x), device] for x, device in pairs]


@dataclass
class Checkpoints:
    """The checkpoint of one run.

    Attributes:
      folder: of the checkpoint; no other process writes there.
      stamp: identifies the run (specification, code, shards); checkpoints with others are ignored.
      seconds: least time between two checkpoints; writing takes at most a few percent of a run.
      every: write after every `every` rounds instead (for tests).
      spent: returns the time and memory that the run has used so far, a JSON-able dict.
      report: called with lines of progress by what saves here.
    """

    folder: Path
    stamp: dict
    seconds: float = 20.0
    every: int | None = None
    spent: Callable[[], dict] = dict
    report: Callable[[str], None] = lambda line: None
    _last: float = field(default_factory=time.monotonic)
    _cost: float = 0.0

    @property
    def index(self) -> Path:
        """The file that names the valid checkpoint."""
        return self.folder / "checkpoint.json"

    @property
    def _remedy(self) -> str:
        return f"delete {self.folder} to start this run afresh"

    def due(self, round: int) -> bool:
        """Whether to save after `round` rounds."""
        if self.every:
            return round % self.every == 0
        return time.monotonic() - self._last >= max(self.seconds, 20 * self._cost)

    def save(self, round: int, tensors: dict[str, Tensor]) -> None:
        """Replace the checkpoint; a crash at any moment leaves the earlier one."""
        started = time.monotonic()
        file = self.folder / f"state-{round}.pt"
        sha256 = save_tensors(file, tensors)
        entry = {"file": file.name, "round": round, "sha256": sha256, "stamp": self.stamp}
        seals.write_json(self.index, entry | {"spent": self.spent()})
        for old in self.folder.glob("state-*.pt"):
            if old != file:
                old.unlink(missing_ok=True)
        self._last = time.monotonic()
        self._cost = self._last - started

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """(rounds done, tensors) of the run's checkpoint; None if the run has none.

        Raises:
          DataError: if it is damaged; the message says what to delete.
        """
        if (entry := self._entry()) is None:
            return None
        try:
            tensors = load_tensors(self.folder / entry["file"], entry["sha256"])
        except DataError as error:
            raise DataError(f"{error} ({self._remedy})") from None
        return entry["round"], tensors

    def save_state(self, done: int, state: Any) -> None:
        """`save` a tree of tensors."""
        self.save(done, flatten(state))

    def resume(self, template: Any) -> tuple[int, Any] | None:
        """(what was done, the tree of tensors that `save_state` saved); see `load`, `restore`."""
        found = self.load()
        return found and (found[0], restore(template, found[1]))

    def usage(self) -> dict:
        """What the run had spent at its checkpoint; {} if it has none.

        Raises:
          DataError: if it is damaged.
        """
        return (self._entry() or {}).get("spent", {})

    def _entry(self) -> dict | None:
        """The content of `checkpoint.json`; None if there is none of this run."""
        if not self.index.exists():
            return None
        entry = seals.read_json(self.index, self._remedy)
        return entry if entry.get("stamp") == self.stamp else None

    def clear(self, last: bool = True) -> None:
        """Remove temporary files of a killed process and, if `last`, the checkpoint of the run."""
        left = [*self.folder.glob(".state-*.pt"), *self.folder.glob(f".{self.index.stem}-*.json")]
        for file in (*left, *((self.index, *self.folder.glob("state-*.pt")) if last else ())):
            file.unlink(missing_ok=True)
