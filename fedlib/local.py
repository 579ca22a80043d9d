"""Local solvers: what a client does with a gradient, and what it remembers until the next round."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.tree import Tree


@dataclass(frozen=True)
class Schedule:
    """Factor of the learning rate as a function of time t.

    Attributes:
      kind: "constant" 1; "multi_step" `factor` to the power of milestones passed (t >= milestone);
        "sqrt" 1 / sqrt(t); "linear" 1 / t; "cosine" half a cosine from 1 to 0 at `period`.
      by: what t counts: "epoch", the local epochs this client has done (as an optimiser that
        lives for the whole run does); "round", the communication rounds.
      milestones, factor: of "multi_step".
      period: of "cosine", in the unit of t.
    """

    kind: str = "constant"
    by: str = "epoch"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    period: int = 200

    def __post_init__(self):
        """Raises ValueError for an unknown kind or unit of time."""
        if self.kind not in _SCHEDULES:
            raise ValueError(f"schedule must be one of {sorted(_SCHEDULES)}, got {self.kind!r}")
        if self.by not in ("epoch", "round"):
            raise ValueError(f"a schedule counts by 'epoch' or 'round', got {self.by!r}")
        if self.period < 1:
            raise ValueError(f"period must be at least 1, got {self.period}")
        object.__setattr__(self, "milestones", tuple(self.milestones))

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Factor at each time t (integers, any shape) -> same shape, float64"""
        return _SCHEDULES[self.kind](self, np.asarray(t, dtype=np.float64))


_SCHEDULES: dict[str, Callable[[Schedule, np.ndarray], np.ndarray]] = {
    "constant": lambda s, t: np.ones_like(t),
    "multi_step": lambda s, t: s.factor ** sum((t >= m) for m in s.milestones or (np.inf,)),
    "sqrt": lambda s, t: 1 / np.sqrt(np.maximum(t, 1)),
    "linear": lambda s, t: 1 / np.maximum(t, 1),
    "cosine": lambda s, t: (1 + np.cos(np.pi * np.minimum(t / s.period, 1))) / 2,
}


class Memory(NamedTuple):
    """What the clients' solvers remember between rounds; part of a method's state."""

    buffers: Tree  # leaves [num_clients, ...]: momenta; () where the solver keeps none
    epochs: Tensor  # [num_clients] int64, local epochs done

    def forget(self) -> "Memory":
        """The same counts with empty buffers, as after making a new optimiser."""
        return self._replace(buffers=tree.map(torch.zeros_like, self.buffers))


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Mini-batch training on a client's shard; subclasses say what a step is.

    Attributes:
      lr: learning rate, multiplied by `schedule`.
      batch_size: examples per step; the last batch of an epoch may be smaller.
      epochs: passes over the shard per call ...
      steps: ... or, if given, exactly this many batches.
      drop_last: leave the last, smaller batch out, unless it is the only one.
      weight_decay: L2 factor (see the subclass for where it enters).
      keeps: "run" if momenta live for the whole run, "round" if they start at zero in each call.
      schedule: of the learning rate.
    """

    lr: float
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None
    drop_last: bool = False
    weight_decay: float = 0.0
    keeps: str = "run"
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self):
        """Raises ValueError for values that cannot train."""
        if not self.lr >= 0:
            raise ValueError(f"lr must be at least 0, got {self.lr}")
        for name in ("batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1 or absent, got {self.steps}")
        if self.keeps not in ("run", "round"):
            raise ValueError(f"keeps must be 'run' or 'round', got {self.keeps!r}")

    def init(self, params: Tree) -> Tree:
        """Momenta before the first step, for parameters with leaves [C, ...] -> leaves [C, ...]"""
        return ()

    def step(self, params: dict, grads: dict, buffers: Tree, lr: Tensor, scale: dict) -> tuple:
        """One update of ONE client.

        Args:
          params, grads: by name.
          buffers: as `init` makes them.
          lr: [] the current rate.
          scale: factors of the rate of top-level entries of `params`, by name.

        Returns:
          (params, buffers) after the step.
        """
        raise NotImplementedError

    def memory(self, params: Tree, num_clients: int) -> Memory:
        """Memory of `num_clients` clients who train models shaped like `params`."""
        device = next(iter(tree.leaves(params))).device
        buffers = self.init(tree.broadcast(params, num_clients)) if self.keeps == "run" else ()
        return Memory(buffers, torch.zeros(num_clients, dtype=torch.int64, device=device))

    def rates(self, epochs_done: Tensor, round: int) -> Tensor:
        """Learning rate of each client in each epoch of this call -> [C, epochs] float64"""
        done = epochs_done.cpu().numpy()[:, None]
        if self.schedule.by == "round":
            t = np.full((len(done), self.epochs), round)
        else:
            t = done + np.arange(self.epochs)
        return torch.from_numpy(self.lr * self.schedule(t))


@dataclass(frozen=True, kw_only=True)
class SGD(Solver):
    """As `torch.optim.SGD`: heavy-ball momentum without dampening, L2 weight decay.

    Attributes:
      momentum: factor of the buffer; 0 keeps none.
    """

    momentum: float = 0.0

    def init(self, params: Tree) -> Tree:
        """One velocity per parameter, or nothing."""
        return tree.map(torch.zeros_like, params) if self.momentum else ()

    def step(self, params: dict, grads: dict, buffers: Tree, lr: Tensor, scale: dict) -> tuple:
        """v = momentum v + g + weight_decay p; p = p - lr v."""
        if self.weight_decay:
            grads = tree.add(grads, params, self.weight_decay)
        if self.momentum:
            grads = buffers = tree.add(grads, buffers, self.momentum)
        return _descend(params, grads, lr, scale), buffers


@dataclass(frozen=True, kw_only=True)
class Adam(Solver):
    """As `torch.optim.Adam`: weight decay is added to the gradient.

    Attributes:
      beta1, beta2: decay of the first and second moment.
      eps: added to the root of the second moment.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, params: Tree) -> Tree:
        """(first moments, second moments, steps done)."""
        first = next(iter(tree.leaves(params)))
        # One count per client: some have done more steps than others.
        count = torch.zeros(first.shape[:1], dtype=first.dtype, device=first.device)
        zeros = tree.map(torch.zeros_like, params)
        return {"m": zeros, "v": tree.map(torch.zeros_like, params), "t": count}

    def step(self, params: dict, grads: dict, buffers: Tree, lr: Tensor, scale: dict) -> tuple:
        """Bias-corrected adaptive step; see Kingma and Ba, ICLR 2015, Algorithm 1."""
        if self._decay_in_gradient():
            grads = tree.add(grads, params, self.weight_decay)
        else:
            params = _descend(params, tree.map(lambda p: self.weight_decay * p, params), lr, scale)
        b1, b2, t = self.beta1, self.beta2, buffers["t"] + 1
        m = tree.map(lambda m, g: b1 * m + (1 - b1) * g, buffers["m"], grads)
        v = tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, buffers["v"], grads)
        update = tree.map(
            lambda m, v: (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + self.eps), m, v
        )
        return _descend(params, update, lr, scale), {"m": m, "v": v, "t": t}

    def _decay_in_gradient(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """As `torch.optim.AdamW`: weight decay shrinks the parameters, apart from the gradient."""

    def _decay_in_gradient(self) -> bool:
        return False


SOLVERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def from_spec(spec: dict) -> Solver:
    """The solver that `Run.local` describes: {"solver": "sgd", "lr": 0.03, ...}.

    Raises:
      ValueError: for an unknown solver or an argument it does not have; names the choices.
    """
    arguments = dict(spec)
    name = arguments.pop("solver", None)
    if name not in SOLVERS:
        raise ValueError(f"local.solver must be one of {sorted(SOLVERS)}, got {name!r}")
    known = {f.name for f in fields(SOLVERS[name])}
    unknown = sorted(arguments.keys() - known)
    if unknown:
        raise ValueError(f"local has unknown entries {unknown}; {name} takes {sorted(known)}")
    if "schedule" in arguments:
        arguments["schedule"] = Schedule(**arguments["schedule"])
    return SOLVERS[name](**arguments)


def _descend(params: dict, direction: dict, lr: Tensor, scale: dict) -> dict:
    """Each top-level entry moved by -lr * scale[entry] * direction."""
    return {
        name: tree.add(params[name], direction[name], -(lr * scale.get(name, 1.0)))
        for name in params
    }
