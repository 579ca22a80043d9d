"""A Slurm cluster of one node, in a scratch folder: `python tests/slurm_node.py FOLDER`.

It runs in namespaces of its own: /etc/slurm there is a folder in FOLDER, and what is left when the
first process ends is killed by the kernel. Nothing of the machine is changed, and a Slurm of its
own goes on. Needs root, Debian's packages slurm-wlm and munge, and unshare and nsenter.

    with Node(folder) as node:
        node.run(["sinfo"])
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "nsenter", "mount")
ETC = Path("/etc/slurm")  # where job steps look: what starts them drops SLURM_CONF
PARTITION = "main"
START_SECONDS = 60

# A job that is requeued waits until its credential has expired: 10 s, not two minutes. Memory is
# what the processes of a step have resident, sampled every second; a job that exceeds what it asked
# for is killed. Clusters do that by control groups, which a container may not have.
CONF = """\
ClusterName=scratch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PriorityType=priority/basic
OverTimeLimit=0
KillWait={kill_wait}
MinJobAge=3600
ReturnToService=2
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={megabytes} State=UNKNOWN
PartitionName={partition} Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    """Why there can be no such cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "a scratch Slurm cluster is started by root"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing or not ETC.is_dir():
        return f"needs {', '.join(missing) or ETC} (Debian: slurm-wlm, munge)"
    probe = ["unshare", "-mpf", "--mount-proc", "mount", "-t", "tmpfs", "none", str(ETC)]
    if subprocess.run(probe, capture_output=True).returncode:
        return "namespaces are not allowed here"
    return ""


class Node:
    """A running cluster.

    Attributes:
      folder: of its state and logs.
      inside: words that run a command where the cluster is.
    """

    def __init__(self, folder: Path):
        """Not started yet."""
        self.folder, self.inside = folder, []

    def __enter__(self) -> "Node":
        """Start, and wait until the node takes jobs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = ["unshare", "-mpf", "--mount-proc", "--kill-child=SIGKILL"]
        with (self.folder / "start.log").open("w") as log:
            self._unshare = subprocess.Popen(
                [*own, sys.executable, __file__, str(self.folder)], stdout=log, stderr=log
            )
        ends = time.monotonic() + START_SECONDS
        while not (self.folder / "ready").exists():
            if self._unshare.poll() is not None or time.monotonic() > ends:
                self.__exit__()
                raise RuntimeError(self._logs())
            time.sleep(0.1)
        pid = self._unshare.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        self.inside = ["nsenter", "-t", first, "-m", "-p", "env"]
        return self

    def __exit__(self, *_) -> None:
        """Kill all that runs in it."""
        self._unshare.kill()
        self._unshare.wait()

    def run(self, command: Sequence[str], cwd: Path, **options) -> subprocess.CompletedProcess:
        """As `subprocess.run`, in the cluster; output is text."""
        return subprocess.run(
            [*self.inside, "env", f"--chdir={cwd}", *command], text=True, **options
        )

    def start(self, command: Sequence[str], cwd: Path, **options) -> subprocess.Popen:
        """As `subprocess.Popen`, in the cluster; output is text."""
        return subprocess.Popen(
            [*self.inside, "env", f"--chdir={cwd}", *command], text=True, **options
        )

    def said(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        return self.run(command, self.folder, check=True, stdout=subprocess.PIPE).stdout

    def _logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("*.log")))


def main(folder: Path) -> None:
    """Within the namespaces, as their first process: start the daemons, then wait for the end."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    for name in ("state", "spool", "etc"):
        (folder / name).mkdir(exist_ok=True)
    host = socket.gethostname().partition(".")[0]
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    text = CONF.format(
        folder=folder,
        host=host,
        ports=_free_ports(),
        cpus=os.cpu_count(),
        megabytes=free * 8 // 10,
        kill_wait=20,
        partition=PARTITION,
    )
    (folder / "etc" / "slurm.conf").write_text(text)
    subprocess.run(["mount", "--bind", folder / "etc", ETC], check=True)
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    # A folder for tests may be open to others, which munge would refuse: hence --force.
    words = [f"--{name}-file={folder / f'munge.{name}'}" for name in ("key", "pid", "log", "seed")]
    words.append(f"--socket={folder / 'munge.socket'}")
    subprocess.run(["munged", "--force", *words], check=True)
    subprocess.run(["slurmctld"], check=True)
    subprocess.run(["slurmd"], check=True)
    while subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True).stdout != b"idle\n":
        time.sleep(0.1)
    (folder / "ready").touch()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:  # as the first process, adopt and bury what daemons leave behind
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def _free_ports() -> list[int]:
    """Two ports that nobody listens at now."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
