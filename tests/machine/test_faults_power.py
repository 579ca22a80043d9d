"""Loss of power: what was not flushed is gone, and so are names that were not.

A shim between the stage and the file system notes what is flushed. Power fails before one of its
calls; then files have the content that they had when they were last flushed, and renamings are
undone that no flush of their folder followed, while deletions are not.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import stages
from faults import often

SPEC = {**stages.SPEC, "rounds": 4, "evaluate_every": 2}


class PowerLossError(BaseException):
    """Nobody handles it."""


class Disk:
    """What of a folder would be there after a loss of power, before the call number `moment`."""

    def __init__(self, moment: int | None = None):
        self.moment, self.calls = moment, 0
        self.flushed: dict[int, bytes] = {}  # by inode
        self.renamed: list[tuple[Path, Path, bytes | None]] = []  # and not flushed

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        """A block whose flushes, renamings and deletions go through this."""
        real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
        with pytest.MonkeyPatch.context() as patch:
            for name in real:
                patch.setattr(os, name, self._noting(real[name], getattr(self, f"_{name}")))
            yield

    def _noting(self, real, note):
        def call(*arguments, **options):
            self.calls += 1
            if self.moment is not None and self.calls >= self.moment:
                raise PowerLossError
            note(*arguments)
            return real(*arguments, **options)

        return call

    def _fsync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.renamed = [entry for entry in self.renamed if entry[1].parent != path]
        else:
            self.flushed[path.stat().st_ino] = path.read_bytes()

    def _replace(self, source, target) -> None:
        source, target = Path(source), Path(target)
        before = target.read_bytes() if target.exists() else None
        self.renamed.append((source, target, before))

    def _unlink(self, path) -> None:
        pass

    def fail(self, folder: Path) -> None:
        """Leave in the folder what is on the disk."""
        for path in filter(Path.is_file, folder.rglob("*")):
            path.write_bytes(self.flushed.get(path.stat().st_ino, b""))
        for source, target, before in reversed(self.renamed):
            if target.exists():
                target.replace(source)
            if before is not None:
                target.write_bytes(before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks names up in /proc")
def test_a_loss_of_power_at_any_moment_does_not_change_a_bit(tmp_path, tally):
    folder = stages.shards(tmp_path) / "run"
    arguments = stages.options(folder, SPEC)
    whole = Disk()
    with whole.under():
        assert stages.run_here("train", arguments) == 0
    right = (folder / "state.pt").read_bytes()
    assert whole.calls > 30  # three checkpoints and the results
    for moment in range(2, whole.calls + 1, often(9, 1)):
        shutil.rmtree(folder)
        disk = Disk(moment)
        with disk.under(), pytest.raises(PowerLossError):
            stages.run_here("train", arguments)
        disk.fail(folder)
        assert stages.run_here("train", arguments) == 0, moment
        assert (folder / "state.pt").read_bytes() == right
        tally("loss of power in training", "went on to the same bytes")


def test_names_are_flushed_before_what_they_replace_is_deleted(tmp_path):
    # Or else a checkpoint could name a state that is gone.
    folder = stages.shards(tmp_path) / "run"
    events = []
    disk = Disk()
    disk._replace = lambda source, target: events.append(("rename", Path(target).name))
    disk._unlink = lambda path: events.append(("delete", Path(path).name))

    def flushed(handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        events.append(("flush", "names" if path.is_dir() else "content"))

    disk._fsync = flushed
    with disk.under():
        assert stages.run_here("train", stages.options(folder, SPEC)) == 0
    renamed = [place for place, (what, _) in enumerate(events) if what == "rename"]
    assert len(renamed) == 3 * 2 + 2
    for place in renamed:
        assert events[place - 1] == ("flush", "content")
        assert events[place + 1] == ("flush", "names")
