"""Jobs of this machine that do not import PyTorch or pandas each: forks of a process that has.

Started by the Snakefile when there is something to do. `FEDLIB_WARM=0` turns it off, and it is off
where a job would not find here what it needs: on a cluster, in environments of conda, where there
is a GPU, and on other systems than Linux. Nothing but the time depends on it: see `forkserver.py`.
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

# What the scripts of each server import, and nothing else: a result records what was loaded.
_EXHIBITS = (
    *("pandas", "pyarrow.dataset", "pyarrow.parquet", "h5py", "scipy.stats", "tabulate"),
    *("matplotlib.figure", "matplotlib.style", "matplotlib.backends.backend_agg"),
    *("matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg"),
)
KINDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("train", "evaluate"): ("torch", "h5py", "numpy.random"),
    ("partition",): ("h5py", "sklearn.datasets"),
    ("metrics", "table", "figure", "report"): _EXHIBITS,
}


def is_wanted(device: str) -> bool:
    """Whether jobs may be forked here.

    Args:
      device: of the configuration.
    """
    has_gpu = device != "cpu" and gpu.visible()
    asked = os.environ.get(VARIABLE) != "0"
    return asked and sys.platform == "linux" and hasattr(os, "pidfd_open") and not has_gpu


def start(*wanted: str) -> str:
    """Start the servers, which end with this process; the words that run a script through them.

    Args:
      wanted: scripts that will be run; all, if none is named.
    """
    servers, addresses = [], []
    for scripts, names in KINDS.items():
        if not wanted or set(wanted) & set(scripts):
            server, address = _server(names)
            servers.append(server)
            addresses += [f"{script}={address}" for script in scripts]
    os.environ[SERVERS] = " ".join(addresses)
    atexit.register(_stop, servers)
    return shlex.join([sys.executable, "-I", "-S", str(HERE / "forkclient.py")])


def _server(names: Iterable[str]) -> tuple[subprocess.Popen, str]:
    """A server that imports what is named, and listens by the time a job is started; its address.

    The address is in Linux's abstract namespace: it is no file, so that neither the length of
    TMPDIR nor what may be written there matters, and it is gone when the last process is. Everyone
    on the machine can connect; server and client answer their own user alone.
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


def _stop(servers: Iterable[subprocess.Popen]) -> None:
    """Let the servers end."""
    for server in servers:
        server.stdin.close()
    for server in servers:
        server.wait()
