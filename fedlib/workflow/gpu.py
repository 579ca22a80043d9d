"""The device of a job, and turns at the GPUs of a machine.

Snakemake decides *how many* jobs may use a GPU at a time (its resource `gpu`, which the default
profile sets to two for each card, or to `FEDLIB_GPU_SLOTS`). It does not decide *which* GPU. A job
takes a free slot of a card by locking a file, which the kernel unlocks however the job ends.

    with device("auto", gpus=1) as name:    # "cuda", with one card visible, or "cpu"
        ...

Jobs of a scheduler such as Slurm do not wait for each other where it gives each its own cards.
"""

import contextlib
import glob
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedlib import locks
from fedlib.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda")
# Two small convolutional runs on an H200 each took 1.3 times as long as one alone, six took five
# times as long (benchmarks/README.md, "A GPU"). profiles/default has the same number.
JOBS_PER_CARD = 2
# Set by schedulers, with the number of the job. They give a job cards of its own, which may be
# called "0" there, whichever they are.
SCHEDULED = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "LSB_JOBINDEX", "FLUX_JOB_ID")
# Set by Slurm in what `srun` starts. If it sees a single card, called "0", that may be its own.
TASK = ("SLURM_STEP_ID", "SLURM_LOCALID")
POLL = 0.2  # seconds between attempts to get a slot
SHARE = "FEDLIB_GPU_JOBS"  # how many jobs may use the card, read by `fedlib.engine.device`


@contextlib.contextmanager
def device(wanted: str = "auto", gpus: int | None = None, wait: bool = True) -> Iterator[str]:
    """Yields "cpu" or "cuda"; leases a card, which becomes the only visible one.

    Enter it before this process uses CUDA, which reads the list of visible devices once.

    Args:
      wanted: "cpu"; "cuda", which fails without a GPU; or "auto", a GPU if there is one.
      gpus: number that the workflow granted this job; with 0, "auto" is the CPU. None for a stage
        run by hand.
      wait: whether to wait for a free card, see `lease`.

    Raises:
      ConfigError: for "cuda" without a GPU that PyTorch can use.
    """
    if wanted == "cpu" or (wanted == "auto" and gpus == 0):
        yield "cpu"
        return
    devices = visible()
    with contextlib.ExitStack() as stack:
        works = False
        if devices:
            stack.enter_context(lease(devices, slots_per_device(len(devices)), wait=wait))
            import torch  # not at the top, because the CPU needs no import of PyTorch here

            works = torch.cuda.is_available()
        yield "cuda" if _is_usable(wanted, devices, works) else "cpu"


def choose_device(wanted: str) -> str:
    """The device for all jobs: "cpu", with a line, where PyTorch cannot use what GPUs there are.

    Otherwise every job would take its turn at a GPU, and compute on the CPU. Another process asks
    PyTorch, as this one must not use CUDA.

    Raises:
      ConfigError: if "cuda" is wanted, and there is no GPU that PyTorch can use.
    """
    devices = visible()
    if wanted == "cpu" or (wanted == "auto" and not devices):
        return wanted
    asked = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    works = bool(devices) and not subprocess.run(asked, stderr=subprocess.DEVNULL).returncode
    return wanted if _is_usable(wanted, devices, works) else "cpu"


@contextlib.contextmanager
def lease(devices: Sequence[str], per_device: int = 1, wait: bool = True) -> Iterator[str]:
    """Wait for a free slot of one of `devices`, and hold it; yields the device.

    During the lease `CUDA_VISIBLE_DEVICES` names only that device. Every device gets a first job
    before any gets a second.

    Args:
      devices: names as in `CUDA_VISIBLE_DEVICES`.
      per_device: jobs that may share a device.
      wait: whether to wait; otherwise the first device is used beside its jobs.
    """
    # The lock files are this user's on this machine, so that two checkouts take turns too. A
    # scheduler's job that was given cards has files of its own there; otherwise all may see all.
    names = SCHEDULED + TASK if len(devices) == 1 else SCHEDULED
    known = os.environ if os.environ.get("CUDA_VISIBLE_DEVICES") else {}
    owner = "".join(f"{known[name]}." for name in names if known.get(name))
    folder = Path(tempfile.gettempdir()) / f"fedlib-gpu-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    slots = [(name, f"{owner}{name}.{k}") for k in range(per_device) for name in devices]
    with contextlib.ExitStack() as held:
        name = _take_slot(slots, folder, held)
        if name is None and wait:
            print(f"waiting for one of {len(slots)} GPU slots ({folder})", file=sys.stderr)
        while name is None and wait:
            time.sleep(POLL)
            name = _take_slot(slots, folder, held)
        yield held.enter_context(_environment(name or devices[0], per_device))


def _take_slot(
    slots: Sequence[tuple[str, str]], folder: Path, held: contextlib.ExitStack
) -> str | None:
    """The device of the first free slot, locked until `held` is closed; None if there is none."""
    for name, slot in slots:
        path = re.sub(r"[^A-Za-z0-9.-]", "_", slot)
        with contextlib.ExitStack() as opened:
            if locks.take(opened.enter_context((folder / path).open("a"))):
                held.enter_context(opened.pop_all())
                return name
    return None


@contextlib.contextmanager
def _environment(name: str, per_device: int) -> Iterator[str]:
    """Yields `name`; in this block the environment has this device alone, and its jobs' number."""
    own = {"CUDA_VISIBLE_DEVICES": name, SHARE: str(per_device)}
    before = {variable: os.environ[variable] for variable in own.keys() & os.environ}
    os.environ.update(own)
    try:
        yield name
    finally:
        for variable in own:
            os.environ.pop(variable, None)
        os.environ.update(before)


def visible() -> tuple[str, ...]:
    """The GPUs that this process may use, with names as in `CUDA_VISIBLE_DEVICES`.

    It loads neither PyTorch nor a driver.
    """
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        # Numbered from 0, whatever the nodes are called: a container may have /dev/nvidia2 alone.
        nodes = [path for path in glob.glob("/dev/nvidia*") if re.fullmatch(r"\D+\d+", path)]
        return tuple(map(str, range(len(nodes))))
    names = [*map(str.strip, chosen.split(",")), "-1"]
    # CUDA ignores devices after an invalid one.
    return tuple(filter(None, names[: names.index("-1")]))


def slots_per_device(num_devices: int) -> int:
    """Jobs that share a card; ConfigError, see `slots`."""
    return max(1, math.ceil(slots(num_devices) / num_devices))


def slots(num_devices: int) -> int:
    """Jobs on all cards at a time, from `FEDLIB_GPU_SLOTS`; without it, two on each card.

    Raises:
      ConfigError: if the variable is not a number.
    """
    text = os.environ.get("FEDLIB_GPU_SLOTS") or str(JOBS_PER_CARD * num_devices)
    if not text.isdecimal():
        raise ConfigError(
            f"FEDLIB_GPU_SLOTS must be a whole number of jobs, got {text!r}; "
            "unset it for two on each GPU"
        )
    return int(text)


def _is_usable(wanted: str, devices: Sequence[str], works: bool) -> bool:
    """Whether PyTorch `works` on a GPU; ConfigError if "cuda" is wanted and it does not."""
    if not works:
        named = f"GPU {', '.join(devices)}"
        if wanted == "cuda":
            found = f"{named}, but this PyTorch cannot use it" if devices else "no GPU"
            raise ConfigError(
                f"device is cuda, but this machine has {found}; use device: auto or cpu"
            )
        if devices:
            print(f"this PyTorch cannot use {named}, so jobs run on the CPU", file=sys.stderr)
    return works
