"""An environment for each peer: `benchmarks/.venvs/<peer>`, from `benchmarks/peers/<peer>.txt`.

Peers that compute with PyTorch are lent the project's own build of it, through links: everybody
runs the same kernels, and nobody installs its gigabytes again.
"""

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
VENVS = FOLDER / ".venvs"
ROOT = FOLDER.parent
LENT = ("torch", "torchvision")
OWN = ("numpy", "pillow")  # what torchvision needs too, but a peer may want in another version


def python(peer: str) -> Path:
    """The interpreter of a peer's environment, whether or not it is there."""
    return VENVS / peer / "bin" / "python"


def requirements(peer: str) -> Path:
    """What is installed for a peer."""
    return FOLDER / "peers" / f"{peer}.txt"


def install(peer: str, lends: bool) -> str | None:
    """Make the environment of `peer`, unless it is there and up to date.

    Args:
      peer: which one.
      lends: whether it computes with the project's PyTorch.

    Returns:
      Nothing, or the first line that says why it cannot be had.
    """
    stamp = VENVS / peer / ".installed"
    wanted = hashlib.sha256(requirements(peer).read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    shutil.rmtree(VENVS / peer, ignore_errors=True)
    commands = [[sys.executable, "-m", "venv", str(VENVS / peer)]]
    pip = [str(python(peer)), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    commands += [[*pip, "-r", str(requirements(peer))]]
    for number, command in enumerate(commands):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return first_error(done.stderr)
        if number == 0 and lends:
            lend(peer)
    stamp.write_text(wanted)
    return None


def lend(peer: str) -> None:
    """Let the environment of `peer` see the project's PyTorch and what that needs."""
    folder = VENVS / peer / "lent"
    folder.mkdir()
    for name in needed(LENT):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if ".." not in file.parts}
        for top in tops - {"__pycache__"}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(distribution.locate_file(top)).resolve())
    [packages] = (VENVS / peer).glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{folder}\n")


def needed(names: tuple[str, ...]) -> list[str]:
    """Installed distributions that `names` need, themselves included and `OWN` excluded."""
    found, waiting = [], list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name in OWN:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform, or an extra nobody asked for
        found.append(name)
        asked = [line for line in distribution.requires or () if _is_needed(name, line)]
        waiting += [re.match(r"[\w.-]+", line)[0] for line in asked]
    return found


def _is_needed(name: str, requirement: str) -> bool:
    """Whether it is no extra; CUDA's parts are extras of one package, and PyTorch wants them."""
    return "extra ==" not in requirement or name.startswith("cuda-")


def first_error(text: str) -> str:
    """The first line of `text` that speaks of an error, or its last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error", line, re.IGNORECASE)]
    return (errors or lines[-1:] or ["no message"])[0]
