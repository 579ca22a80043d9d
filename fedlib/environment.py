"""The software and the hardware that this process runs on, for the record of a result."""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_REPORTED = ("numpy", "h5py", "torch", "torchvision", "pandas", "pyarrow", "matplotlib")


def environment(device: object = None) -> dict:
    """Versions and hardware of this process, as a JSON-able dict.

    It lists only packages that are already imported, so the call is cheap. `gpu` is the name of
    `device`, a `torch.device`, or of the first GPU that PyTorch sees if that is none; None without
    a GPU. `clean` says whether the checkout had no changes; None if git does not know.
    """
    torch = sys.modules.get("torch")
    gpu = None
    if torch is not None and torch.cuda.is_available():
        on_gpu = device is not None and device.type == "cuda"
        gpu = torch.cuda.get_device_name(device if on_gpu else 0)
    commit, clean = _checkout(ROOT)
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _REPORTED if name in sys.modules},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "gpu": gpu,
        "commit": commit,
        "clean": clean,
    }


def cache_folder() -> Path:
    """Folder for caches of code and of checks on this machine, for all checkouts of a user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedlib"


def memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def git(folder: Path, *words: str) -> str | None:
    """What a command of git prints about a folder; None if it fails, or without git."""
    command = ["git", "-c", "safe.directory=*", *words]  # the checkout may be another user's
    # Variables such as GIT_DIR name another repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    how = {"env": own, "capture_output": True, "text": True, "timeout": 60}
    try:
        done = subprocess.run(command, cwd=folder, **how)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def _checkout(root: Path) -> tuple[str | None, bool | None]:
    """The commit of a checkout, and whether nothing has changed since; None without git.

    The answers are those of the first call, shortly after this process read the code.
    """
    if not (root / ".git").exists():
        return None, None
    changes = git(root, "--no-optional-locks", "status", "--porcelain")  # blocks no other git there
    return git(root, "rev-parse", "HEAD"), None if changes is None else not changes
