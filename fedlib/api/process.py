"""What a call sets for its thread or the whole process, and sets back."""

import contextlib
import threading
from collections.abc import Iterator

import torch


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
    """The number of PyTorch's threads, which an executor changes for the whole process."""

    def __init__(self):
        self._lock, self._calls, self._before = threading.Lock(), 0, 0

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """The user's number at the start of each such block, and after all of them at a time."""
        with self._lock:
            if not self._calls:
                self._before = torch.get_num_threads()
            self._calls += 1
        torch.set_num_threads(self._before)
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                torch.set_num_threads(self._before)


threads = Threads()
