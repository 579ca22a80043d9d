"""Servers that fork jobs, to save every job the import of PyTorch or pandas.

The Snakefile starts them if there is something to do. `FEDLIB_WARM=0` turns them off. They are also
off on clusters, in conda environments, where jobs may use a GPU, and on systems other than Linux.
Only the time depends on them: see `forkserver.py`.
"""

import atexit
import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from fedlib.workflow import gpu
from fedlib.workflow.forkclient import SERVERS

VARIABLE = "FEDLIB_WARM"
HERE = Path(__file__).resolve().parent

# Imports of each server's scripts, and no others, because a result records its loaded libraries.
KINDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("tune", "train", "evaluate"): ("torch", "h5py", "numpy.random"),
    ("partition",): ("h5py", "sklearn.datasets"),
    ("metrics", "table", "figure", "report"): (
        *("pandas", "pyarrow.dataset", "pyarrow.parquet", "h5py", "scipy.stats", "tabulate"),
        *("matplotlib.figure", "matplotlib.style", "matplotlib.backends.backend_agg"),
        *("matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg"),
    ),
}


def is_wanted(device: str) -> bool:
    """Whether jobs may be forked here.

    Args:
      device: of the configuration.
    """
    has_gpu = device != "cpu" and gpu.visible()
    asked = os.environ.get(VARIABLE) != "0"
    return asked and sys.platform == "linux" and hasattr(os, "pidfd_open") and not has_gpu


def start() -> str:
    """Start the servers, which end with this process -> the command that runs a script in them."""
    addresses = []
    for scripts, names in KINDS.items():
        server, address = _server(names)
        atexit.register(server.communicate)  # which closes its standard input, so that it ends
        addresses += [f"{script}={address}" for script in scripts]
    os.environ[SERVERS] = " ".join(addresses)
    return shlex.join([sys.executable, "-I", "-S", str(HERE / "forkclient.py")])


def _server(names: Iterable[str]) -> tuple[subprocess.Popen, str]:
    """A server that imports the named modules, and its address; it listens at once.

    The address is in Linux's abstract namespace: it is not a file, does not depend on TMPDIR, and
    ends with the last process. All users of the machine can connect, but server and client accept
    only their own user.
    """
    address = f"fedlib-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen(128)
        server = subprocess.Popen(
            [sys.executable, HERE / "forkserver.py", str(listener.fileno()), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    return server, address
