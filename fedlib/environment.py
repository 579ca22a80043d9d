"""The software and the hardware that this process runs on, for the record of a result."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_REPORTED = ("numpy", "h5py", "torch", "torchvision", "pandas", "pyarrow", "matplotlib")


def environment() -> dict:
    """Versions and hardware of this process, as a JSON-able dict.

    It lists only packages that are already imported, so the call is cheap. `gpu` is the name of the
    device that PyTorch sees, or None. `clean` says whether the checkout had no changes; None if git
    does not know.
    """
    versions = {name: _version(name) for name in _REPORTED if name in sys.modules}
    torch = sys.modules.get("torch")
    gpu = None
    if torch is not None and torch.cuda.is_available():
        gpu = torch.cuda.get_device_name(0)
    return {
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "gpu": gpu,
        "threads": torch.get_num_threads() if torch is not None else _threads(),
        "commit": _commit(ROOT),
        "clean": _is_clean(ROOT),
    }


def cache_folder() -> Path:
    """Folder for measurements and checks of this machine, shared by all checkouts of a user."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fedlib"


def memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refresh_index() -> None:
    """Make git record which files are unchanged.

    Otherwise each job of a fresh clone reads all files, because git does not trust records that are
    as new as the files.
    """
    _status(ROOT)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return getattr(sys.modules[name], "__version__", None)


def _threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit(root: Path) -> str | None:
    """The commit that is checked out, read from git's files; None outside a repository."""
    try:
        folder = root / ".git"
        if folder.is_file():  # a worktree: "gitdir: <path>"
            folder = root / folder.read_text().partition(":")[2].strip()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        reference = head.removeprefix("ref: ")
        common = folder / "commondir"
        if common.is_file():
            folder = folder / common.read_text().strip()
        loose = folder / reference
        if loose.is_file():
            return loose.read_text().strip()
        for line in (folder / "packed-refs").read_text().splitlines():
            if line.endswith(" " + reference):
                return line.partition(" ")[0]
    except OSError:
        pass
    return None


@cache
def _is_clean(root: Path) -> bool | None:
    """Whether the checkout has no changed or new files since its commit; None without git.

    The answer is that of the first call, shortly after this process read the code.
    """
    found = _status(root, "--no-optional-locks")  # does not block other uses of git there
    return None if found is None else not found


def _status(root: Path, *options: str) -> bytes | None:
    """Git's list of changed and new files of a checkout; None without git."""
    if not (root / ".git").exists():
        return None
    command = ["git", *options, "status", "--porcelain"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout
