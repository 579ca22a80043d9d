"""What PyTorch computes with a user's model: a module, its gradients by `backward`, and SGD.

Two clients take a few steps, on batches that the engine draws. State that a client of the engine
could not keep is refused.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import tree
from fedlib.api.model import whole
from fedlib.api.probe import HeadApart
from fedlib.engine.batches import draw_cohort
from fedlib.engine.device import DeviceData
from fedlib.engine.solvers import SGD
from fedlib.engine.task import Batch, Params, Task, log_probs, without_counts
from fedlib.engine.waves import Work, client_batches
from fedlib.errors import ConfigError

SIZES = (6, 7)  # examples of the two clients
# Each client has short batches, and so many steps that a fast executor repeats some.
SOLVER = SGD(lr=1e-3, batch_size=4, steps=5, momentum=0.9, weight_decay=0.01)
SETTINGS = {
    **{name: getattr(SOLVER, name) for name in ("lr", "momentum", "weight_decay")},
    **{"dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False},
}
ALONE = 3  # examples that are evaluated alone, too
# Allowed difference of a number after the steps, in parts of the largest step.
NEAR = {torch.float64: 1e-6, torch.float32: 1e-3}
OF_MODULES = frozenset(vars(nn.Module()))
NUMBERS = (bool, int, float, complex, str, np.generic)
REMEMBERS = (
    "its outputs change from call to call, on the same inputs, so that a run could not be "
    "repeated; keep what it remembers in floating-point buffers, and draw no random numbers"
)


class Outcome(NamedTuple):
    """What training and evaluation leave.

    Attributes:
      params: of each client, leaves [C, ...].
      own: outputs of each client's model on its examples [C, N, ...].
      shared: those of the first client's model.
    """

    params: Params
    own: Tensor
    shared: Tensor


@dataclass
class Plain:
    """A module as PyTorch trains it.

    Attributes:
      module: the user's, without dropout.
      places: of each parameter and buffer, by the engine's name: (a module's own dict, key in it).
      head: path of the head in the user's module, if it was taken apart.
    """

    module: nn.Module
    places: dict[str, tuple[dict, str]]
    head: str | None

    @classmethod
    def of(cls, task: Task, params: Params) -> "Plain":
        """A new module with these values."""
        made = without_counts(task.build().to(task.device, task.dtype))
        places = {
            f"{path}.{key}" if path else key: (where, key)
            for path, part in made.named_modules()
            for where in (part._parameters, part._buffers)
            for key in where
            if where[key] is not None
        }
        head = made.path if isinstance(made, HeadApart) else None
        plain = cls(whole(made), places, head)
        plain.put(params)
        return plain

    def put(self, params: Params) -> None:
        """Give the module these values."""
        values = self.values
        with torch.no_grad():
            for name, value in params.items():
                values[name].copy_(value)

    @property
    def values(self) -> dict[str, Tensor]:
        """All parameters and buffers."""
        return {name: where[key] for name, (where, key) in self.places.items()}

    def copies(self) -> dict[str, Tensor]:
        """Copies of all parameters and buffers."""
        return {name: value.detach().clone() for name, value in self.values.items()}

    def name_of(self, name: str) -> str:
        """A name of the engine as the user's module has it."""
        part, _, rest = name.partition(".")
        if self.head is None:
            return name
        return rest if part == "body" else ".".join(filter(None, [self.head, rest]))


def by_pytorch(name: str, task: Task, data: DeviceData, params: Params,
                plains: list[Plain]) -> Outcome:  # fmt: skip
    """What a plain loop leaves; ConfigError for state that clients cannot keep.

    Args:
      plains: a module for each client, which is trained, and one more.
    """
    *plains, again = plains
    work = Work(task, data, np.arange(len(SIZES)))
    drawn = draw_cohort(SIZES, SOLVER, 0, 0, "fit", clients=[*range(len(SIZES))])
    for client, plain in enumerate(plains):
        _train(name, task, plain, [*client_batches(work, client, drawn[client], SOLVER.batch_size)])
    fixed = plains[0].copies()
    again.put({name: fixed[name] for name in params})
    batch = next(client_batches(work, 0, drawn[0], SOLVER.batch_size))
    own = [_outputs(plain, _inputs(work, client)) for client, plain in enumerate(plains)]
    shared = [_outputs(plains[0], _inputs(work, client)) for client in range(len(SIZES))]
    if changed := [n for n, v in plains[0].values.items() if not _same(v, fixed[n])]:
        raise ConfigError(
            f"{name} changes {plains[0].name_of(changed[0])!r} in evaluation, too; write "
            "if self.training: above it"
        )
    for training in (False, True):
        first, second = (_outputs(x, batch.x, training) for x in (plains[0], again))
        if not close(first, second, NEAR[task.dtype] * size(second)):
            raise ConfigError(f"{name}: {REMEMBERS}")
    trained = [{n: x[n] for n in params} for x in (fixed, plains[1].copies())]
    padded = (nn.utils.rnn.pad_sequence(parts, batch_first=True) for parts in (own, shared))
    return Outcome(tree.stack(trained), *padded)


def mixes(name: str, work: Work, plain: Plain, shared: Tensor) -> bool:
    """Whether the output for an example depends on the others of its batch.

    Raises:
      ConfigError: if that for a single example has another shape.
    """
    first, second = (_inputs(work, client) for client in range(len(SIZES)))
    near = NEAR[work.task.dtype] * size(shared)
    try:
        alone = torch.cat([_outputs(plain, x[None]) for x in first[:ALONE]])
        pooled = _outputs(plain, torch.cat([first, second]))
    except Exception:  # as batch normalisation, which refuses a single example
        return True
    if alone.shape != shared[0, :ALONE].shape:
        raise ConfigError(f"{name} gives another shape for a batch of one: does it squeeze?")
    together = torch.cat([shared[0, : SIZES[0]], shared[1]])
    return not (close(alone, shared[0, :ALONE], near) and close(pooled, together, near))


def check_alike(name: str, plains: list[Plain], params: Params) -> None:
    """Raises ConfigError if modules differ in more than the `params`, which each client has."""
    for key, value in plains[0].values.items():
        if key not in params and not _same(value, plains[1].values[key]):
            kind, why = f" of {value.dtype}", "clients keep floating-point buffers only"
            if value.is_floating_point():
                kind, why = "", "it is frozen; give start='given', or a function that keeps it"
            raise ConfigError(
                f"{name}: {plains[0].name_of(key)!r}{kind} has other values each time the model is "
                f"made, and {why}"
            )


def _train(name: str, task: Task, plain: Plain, batches: list[Batch]) -> None:
    """Train a module in place."""
    module, numbers, before = plain.module.train(), {}, plain.copies()
    weights = [x for x in module.parameters() if x.requires_grad]
    velocities = [torch.zeros_like(x) for x in weights]
    for step, batch in enumerate(batches):
        with torch.enable_grad():
            loss = loss_of(log_probs(module(batch.x.clone())), batch)
            module.zero_grad()
            loss.backward()
        grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in weights]
        # What torch.optim.SGD calls, which itself would import a compiler for seconds.
        torch._fused_sgd_(weights, grads, velocities, **SETTINGS)
        if step == 0:
            numbers = attributes(module)
    for key, value in plain.values.items():
        if not value.is_floating_point() and not _same(value, before[key]):
            raise ConfigError(
                f"{name} changes {plain.name_of(key)!r} of {value.dtype} in training, and clients "
                "keep floating-point buffers only: torch.zeros(()) instead of an integer; batch "
                "normalisation counts if its momentum is None"
            )
    after = attributes(module)
    if changed := sorted(key for key in numbers if after.get(key) != numbers[key]):
        raise ConfigError(
            f"{name} changes its attribute {changed[0]} in training, which all clients would "
            "share; keep it in a buffer, as in register_buffer('t', torch.zeros(()))"
        )


def loss_of(outputs: Tensor, batch: Batch) -> Tensor:
    """A loss that any log-probabilities have: labels do not matter here -> []"""
    flat = outputs.flatten(1)
    return -batch.mean(flat.gather(1, (batch.index % flat.shape[1])[:, None])[:, 0])


def _inputs(work: Work, client: int) -> Tensor:
    return work.data.inputs(work.data.rows_of("train", client))


@torch.no_grad()
def _outputs(plain: Plain, x: Tensor, training: bool = False) -> Tensor:
    """Log-probabilities, computed by a module whose buffers stay."""
    before = plain.copies() if training else {}
    outputs = log_probs(plain.module.train(training)(x.clone()))
    plain.put(before)
    return outputs


def attributes(module: nn.Module) -> dict[str, Any]:
    """Numbers in attributes of a module and its parts, and in lists and dicts there, by path."""
    found = {}

    def note(path: str, value: Any, depth: int) -> None:
        if isinstance(value, NUMBERS):
            found[path] = value
        elif isinstance(value, np.ndarray):
            found[path] = value.tobytes()
        elif depth and isinstance(value, dict | list | tuple):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in [*pairs]:
                note(f"{path}[{key!r}]", inner, depth - 1)

    for path, part in module.named_modules():
        for key, value in vars(part).items():
            if not key.startswith("_") or key not in OF_MODULES:
                note(f"{path}.{key}" if path else key, value, 2)
    return found


def size(outputs: Tensor) -> float:
    """The largest of some outputs, which differences are compared with."""
    return 1 + float(outputs.abs().nan_to_num(0).max())


def close(a: Tensor, b: Tensor, allowed: float) -> bool:
    """Whether numbers differ by no more than is allowed; both may be infinite or NaN."""
    return bool((((a - b).abs() <= allowed) | (a == b) | (a.isnan() & b.isnan())).all())


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and close(a.double(), b.double(), 0.0)
