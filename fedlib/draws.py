"""The global generators of PyTorch, NumPy and Python, which belong to the whole process.

Runs draw from named streams (`fedlib.streams`). Modules draw their parameters from a global
generator: here it gets a seed for that, and what a user's code draws unnoticed is found.
"""

import contextlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib.errors import ConfigError

WORD = 2**32  # NumPy's global generator takes seeds below it
TRIES = 3  # of what a thread of the user's may disturb by a draw of its own
_LOCK = threading.RLock()


@contextlib.contextmanager
def aside(seed: int | None = None) -> Iterator[None]:
    """The global generators are as before after this block, which starts at `seed`, if given.

    Other threads wait, so that no two of them draw from the same seed.
    """
    with _LOCK:
        before, words, python = _of_torch(), np.random.get_state(), random.getstate()
        try:
            if seed is not None:
                torch.manual_seed(seed)  # also of GPUs that are not in use, once they are
                np.random.seed(seed % WORD)
                random.seed(seed)
            yield
        finally:
            np.random.set_state(words)
            random.setstate(python)
            torch.set_rng_state(before[0])
            torch.cuda.set_rng_state_all(before[1:])
            if seed is not None and not before[1:]:  # for a GPU that is first used later
                torch.cuda.manual_seed_all(torch.initial_seed())


class Apart(TorchDispatchMode):
    """In this block PyTorch draws the numbers of a seed, and no other thread draws in between.

    Functions on a CPU draw from another generator than the global one, unless they take none.
    """

    def __init__(self, seed: int):
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, overload = kwargs or {}, f"{func._schema.overload_name}_generator".lstrip("_")
        drawing = getattr(func.overloadpacket, overload, func)  # torch.randn has one of its own
        takes = any(x.name == "generator" for x in drawing._schema.arguments)
        places = [x.device for x in args if isinstance(x, torch.Tensor)] + [kwargs.get("device")]
        if not takes or any(torch.device(x or "cpu").type != "cpu" for x in places):
            return func(*args, **kwargs)
        return drawing(*args, **{"generator": self._generator, **kwargs})


@contextlib.contextmanager
def refuse(who: str, instead: str) -> Iterator[None]:
    """Raises ConfigError if this block draws from a global generator, and puts all back.

    Args:
      who: the subject of the message, such as "model".
      instead: what would be right.
    """
    with aside():
        before = positions()
        yield
        if drawn := [name for name, position in positions().items() if position != before[name]]:
            raise ConfigError(
                f"{who} draws from the global generator of {drawn[0]}, so that a run could not be "
                f"repeated; {instead}"
            )


def _of_torch() -> list[torch.Tensor]:
    """States of PyTorch's generators: of the CPU, then of each GPU that is in use."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *gpus]


def positions() -> dict[str, object]:
    """Where each global generator stands, in a form that can be compared."""
    kind, words, *rest = np.random.get_state(legacy=True)
    return {
        "PyTorch": [state.tolist() for state in _of_torch()],
        "NumPy": (kind, words.tolist(), rest),
        "Python": random.getstate(),
    }
