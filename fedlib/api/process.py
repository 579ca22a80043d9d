"""What a call sets for its thread or the whole process, and restores."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial

import torch

from fedlib.errors import ConfigError


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """PyTorch computes as by default in this block, whatever its caller has set for the thread.

    Raises:
      ConfigError: for another default type or device of the whole process.
    """
    if torch.get_default_dtype() != torch.float32 or torch.get_default_device().type != "cpu":
        found = f"{torch.get_default_dtype()} on {torch.get_default_device()}"
        raise ConfigError(
            f"PyTorch's defaults must be torch.float32 on cpu during a call, got {found}; device= "
            "and model.float() choose for fedlib"
        )
    # A cache of cast weights would outlive the steps that change them, as it is emptied at the end
    # of the outermost block: this one, around any in the forward of a model.
    uncast = partial(torch.autocast, enabled=False, cache_enabled=False)
    with uncast("cpu"), uncast("cuda"), torch.inference_mode(False), torch.enable_grad():
        yield


class Threads:
    """The number of PyTorch's threads, which an executor changes for the whole process."""

    def __init__(self):
        self._lock, self._calls, self._before = threading.Lock(), 0, 0

    @contextlib.contextmanager
    def keep(self) -> Iterator[None]:
        """The user's number holds when such a block begins, and again when all have ended."""
        with self._lock:
            here = torch.get_num_threads()
            self._before = self._before if self._calls else here
            self._calls += 1
        torch.set_num_threads(self._before)
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                # A callback may simulate, too: the run that called it goes on as before.
                torch.set_num_threads(here if self._calls else self._before)


threads = Threads()
