"""What a call sets for its thread or the whole process, and sets back."""

import contextlib
import threading
from collections.abc import Iterator

import torch

from fedlib.errors import ConfigError
from fedlib.fields import typed

MOST = 1024  # threads; PyTorch ends the process for some larger numbers


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """PyTorch computes as by default in this block, whatever its caller has set for the thread."""
    with contextlib.ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


class Threads:
    """The number of PyTorch's threads while calls run, perhaps several side by side."""

    def __init__(self):
        self._lock, self._calls, self._before = threading.Lock(), 0, 0

    @contextlib.contextmanager
    def number(self, number: int | None) -> Iterator[None]:
        """PyTorch uses `number` threads in this block, and the earlier number after all blocks.

        Raises:
          ConfigError: unless it is None or a number that PyTorch can use.
        """
        number = typed("threads", number, int | None)
        if number is not None and not 1 <= number <= MOST:
            raise ConfigError(f"threads must be in [1, {MOST}], got {number}")
        with self._lock:
            if not self._calls:
                self._before = torch.get_num_threads()
            self._calls += 1
        torch.set_num_threads(number or self._before)
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                torch.set_num_threads(self._before)


threads = Threads()
