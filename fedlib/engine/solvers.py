"""Local solvers: a client's steps along gradients, and the memory of its solver between rounds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.device import move, place
from fedlib.engine.schedules import Schedule
from fedlib.errors import ConfigError
from fedlib.fields import Range, check
from fedlib.tree import Rows, Tree

Rate = float | Tensor


class Memory(NamedTuple):
    """The memory of the clients' solvers between rounds; part of a method's state."""

    # Momenta with the structure of the client's parameters, or () if the solver keeps none. They
    # are on the device, or in host memory if too large; see `fedlib.engine.device.place`.
    buffers: Rows
    epochs: Tensor  # [num_clients] int64, local epochs done; in host memory

    def afresh(self) -> "Memory":
        """Memory of new solvers that continue at the current learning rate, the same for all.

        Momenta are zero. Every client gets the count of the client that has trained most, because
        smaller counts, of clients that were absent, would give earlier learning rates.
        """
        rows = self.buffers
        empty = tree.by_kind(
            lambda client: tree.map(torch.zeros_like, rows[client]), tree.kinds(rows), len(rows)
        )
        return Memory(empty, torch.full_like(self.epochs, int(self.epochs.max())))

    def update(self, clients: list[int], buffers: Rows | tuple, epochs: int) -> "Memory":
        """This memory after `epochs` more epochs of `clients`; `buffers` is () without momenta."""
        rows = list(self.buffers)
        for client, row in zip(clients, buffers, strict=bool(buffers)):
            rows[client] = row
        done = self.epochs.clone()
        done[clients] += epochs
        return Memory(Rows(rows), done)


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Mini-batch training on a client's shard; subclasses define a step.

    Attributes:
      lr: learning rate, multiplied by `schedule`.
      batch_size: examples per step; the last batch of an epoch may be smaller.
      epochs: passes over the shard per call ...
      steps: ... or, if given, exactly this many batches.
      drop_last: leave the last, smaller batch out, unless it is the only one.
      weight_decay: L2 factor (the subclass says where it enters).
      keeps: "run" if momenta live for the whole run, "round" if they start at zero in each call.
      schedule: of the learning rate.
      clip_norm: largest Euclidean norm of a gradient, as in `torch.nn.utils.clip_grad_norm_`. It
        applies to each top-level entry of the parameters that has entries itself (one of several
        modules), and to all others together. 0 or None is off.
    """

    lr: float
    batch_size: int = 32
    epochs: int = 1
    steps: int | None = None
    drop_last: bool = False
    weight_decay: float = 0.0
    keeps: str = "run"
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None

    ranges: ClassVar[dict[str, Range]] = {
        **dict.fromkeys(("lr", "weight_decay", "clip_norm"), Range(0)),
        "batch_size": Range(1),
        **dict.fromkeys(("epochs", "steps"), Range(1, 1_000_000)),  # they are listed in memory
    }

    def __post_init__(self):
        """Raises ConfigError for values that cannot train."""
        check(self, {"keeps": ("run", "round")}, self.ranges)

    def refuse_both(self) -> "Solver":
        """This solver, as a user gives it; raises ConfigError if it has epochs and steps."""
        if self.steps is not None and self.epochs != 1:
            raise ConfigError(f"epochs must be left out beside steps, got {self.epochs}")
        return self

    def init(self, params: Tree) -> Tree:
        """Momenta before the first step of ONE client with parameters like `params`."""
        return ()

    def step_(self, params: dict, grads: dict, buffers: Tree, lr: Rate, scale: dict) -> None:
        """One update of one client, or of several stacked along a first dimension, in place.

        In place, because new memory for every step costs several times the arithmetic.

        Args:
          params: by name; overwritten.
          grads: by name; not overwritten, as parameters that are only added share one tensor.
          buffers: as from `init`; overwritten.
          lr: the current rate, or that of each stacked client [C].
          scale: factors of the rate of top-level entries of `params`, by name.
        """
        raise NotImplementedError

    def step(self, params: dict, grads: dict, buffers: Tree, lr: Rate) -> tuple:
        """(params, buffers) of ONE client after clipping and `step_`; changes no argument."""
        buffers = move(buffers, tree.leaves(params)[0].device)  # they may be in host memory
        params, buffers = tree.clone((params, buffers))
        self.step_(params, self.clip(grads), buffers, lr, {})
        return params, buffers

    def clip(self, grads: dict, stacked: bool = False) -> dict:
        """`grads` of one client, or of several `stacked` along a first dimension, clipped.

        As in PyTorch, the divisor is the norm plus a millionth.
        """
        if not self.clip_norm:
            return grads
        shrink = partial(_shrink, bound=self.clip_norm, stacked=stacked)
        groups = {name: shrink(own) for name, own in grads.items() if isinstance(own, dict)}
        return grads | shrink({n: g for n, g in grads.items() if n not in groups}) | groups

    def memory(self, params: Tree, num_clients: int) -> Memory:
        """Memory of `num_clients` clients.

        It is in host memory if it is too large for the device: then a round brings the rows of its
        clients to the device and back; see `fedlib.engine.device.place`.

        Args:
          params: of one client; if clients differ, the `Rows` of ALL of them.
        """

        def empty(client: int) -> Tree:
            return self.init(tree.of_client(params, client)) if self.keeps == "run" else ()

        buffers = tree.by_kind(empty, tree.kinds(params), num_clients)
        return Memory(place(buffers), torch.zeros(num_clients).long())

    def fresh(self, params: Tree, size: int) -> Rows | tuple:
        """Momenta before the first step of `size` clients; `params` [C, ...] or `Rows`.

        () without momenta, as walking through the empty rows of many clients takes time.
        """
        rows = tree.by_kind(lambda c: self.init(tree.take(params, c)), tree.kinds(params), size)
        return rows if any(rows) else ()

    def rates(self, epochs_done: Tensor, round: int) -> Tensor:
        """Learning rate of each client in each epoch of this call -> [C, epochs] float64"""
        done = epochs_done.numpy()[:, None]
        if self.schedule.by == "round":
            t = np.full((len(done), self.epochs), round)
        else:
            t = done + np.arange(self.epochs)
        return torch.from_numpy(self.lr * self.schedule(t))


@dataclass(frozen=True, kw_only=True)
class SGD(Solver):
    """As `torch.optim.SGD`: heavy-ball momentum without dampening, L2 weight decay.

    Attributes:
      momentum: factor of the velocity; 0 keeps none.
    """

    momentum: float = 0.0

    ranges: ClassVar = Solver.ranges | {"momentum": Range(0, 1, "[)")}

    def init(self, params: Tree) -> Tree:
        """One velocity per parameter, or nothing."""
        return _zeros(params) if self.momentum else ()

    def step_(self, params: dict, grads: dict, buffers: Tree, lr: Rate, scale: dict) -> None:
        """v = momentum v + g + weight_decay p; p = p - lr v."""
        trees = (params, grads, buffers) if self.momentum else (params, grads)
        for rate, (p, g, *v) in _by_rate(trees, lr, scale):
            velocities = v[0] if v else []
            if isinstance(rate, Tensor) and rate.dim():
                self._step_each(p, g, velocities, rate)
            else:
                self._step_all(p, g, velocities, float(rate))

    def _step_all(self, p: list[Tensor], g: list[Tensor], v: list[Tensor], rate: float) -> None:
        """One rate for all tensors: one pass over memory, by the kernel of torch.optim.SGD."""
        torch._fused_sgd_(
            p,
            _laid_out_like(p, g),
            v,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    def _step_each(self, p: list[Tensor], g: list[Tensor], v: list[Tensor], rate: Tensor) -> None:
        """A rate [C] for each stacked client."""
        if self.weight_decay:
            g = torch._foreach_add(g, p, alpha=self.weight_decay)
        if self.momentum:
            torch._foreach_mul_(v, self.momentum)
            torch._foreach_add_(v, g)
            g = v
        for weight, direction in zip(p, g, strict=True):
            weight.sub_(tree.along(rate, weight) * direction)


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

    ranges: ClassVar = Solver.ranges | {
        **dict.fromkeys(("beta1", "beta2"), Range(0, 1, "[)")),
        "eps": Range(0),
    }
    decays_gradient: ClassVar[bool] = True

    def init(self, params: Tree) -> Tree:
        """First moments "m", second moments "v" and steps done "t"."""
        # Every client has its own count, because clients do different numbers of steps.
        count = next(iter(tree.leaves(params)), torch.zeros(())).new_zeros(())
        return {"m": _zeros(params), "v": _zeros(params), "t": count}

    def step_(self, params: dict, grads: dict, buffers: Tree, lr: Rate, scale: dict) -> None:
        """Bias-corrected adaptive step; see Kingma and Ba, ICLR 2015, Algorithm 1."""
        t = buffers["t"].add_(1)
        for rate, lists in _by_rate((params, grads, buffers["m"], buffers["v"]), lr, scale):
            if t.dim() or (isinstance(rate, Tensor) and rate.dim()):
                self._step_each(*lists, t, rate)
            else:
                self._step_all(*lists, t, rate)

    def _step_all(self, p: list, g: list, m: list, v: list, t: Tensor, rate: Rate) -> None:
        """One rate and count for all tensors: one pass over memory, by a kernel of torch.optim."""
        step = torch._fused_adam_ if self.decays_gradient else torch._fused_adamw_
        step(
            p,
            _laid_out_like(p, g),
            m,
            v,
            [],
            [t.float()] * len(p),  # the kernels need float32, whatever the parameters are
            lr=rate,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def _step_each(self, ps: list, gs: list, ms: list, vs: list, t: Tensor, lr: Rate) -> None:
        """A rate or count [C] for each stacked client."""
        b1, b2 = self.beta1, self.beta2
        # `full_like` fills a tensor on the device; copying a number would wait for the device.
        rate = lr.to(t.dtype) if isinstance(lr, Tensor) else torch.full_like(t, lr)
        for p, g, m, v in zip(ps, gs, ms, vs, strict=True):
            if self.decays_gradient:
                g = g + self.weight_decay * p
            else:
                p.mul_(1 - self.weight_decay * tree.along(rate, p))
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            m_hat, v_hat = m / tree.along(1 - b1**t, m), v / tree.along(1 - b2**t, v)
            p.sub_(tree.along(rate, p) * m_hat / (v_hat.sqrt() + self.eps))


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """As `torch.optim.AdamW`: weight decay shrinks the parameters, apart from the gradient."""

    decays_gradient: ClassVar[bool] = False


SOLVERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def from_spec(spec: dict) -> Solver:
    """The solver that `Run.local` describes: {"solver": "sgd", "lr": 0.03, ...}.

    Raises:
      ConfigError: for an unknown solver or argument; the message names the choices.
    """
    arguments = dict(spec)
    name = arguments.pop("solver", None)
    if name not in [*SOLVERS]:
        raise ConfigError(f"local.solver must be one of {sorted(SOLVERS)}, got {name!r}")
    if "lr" not in arguments:
        raise ConfigError("local must have lr, the learning rate, such as 0.1")
    _refuse_unknown("local", arguments, SOLVERS[name], name)
    schedule = arguments.get("schedule")
    if isinstance(schedule, Mapping):
        _refuse_unknown("schedule", schedule, Schedule, "it")
        arguments["schedule"] = Schedule(**schedule)
    return SOLVERS[name](**arguments).refuse_both()


def _refuse_unknown(what: str, given: Mapping, kind: type, name: str) -> None:
    known = {f.name for f in fields(kind)}
    if unknown := sorted(given.keys() - known):
        raise ConfigError(f"{what} has unknown entries {unknown}; {name} takes {sorted(known)}")


def gradient(loss: Callable, params: Tree, *args: Tree) -> tuple[Tree, Tensor]:
    """(gradient, value) of a lifted `loss(params, *args)` with respect to `params`.

    Clients are independent, so the gradient of the sum of their losses [K] contains each client's.
    """
    inputs = tree.map(lambda x: x.detach().requires_grad_(), params)
    with torch.enable_grad():
        value = loss(inputs, *args)
        total = value.sum() if value.dim() else value
        flat = tree.leaves(inputs)
        grads = torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True)
    return tree.unflatten(grads, params), value.detach()


def _shrink(grads: Tree, bound: float, stacked: bool) -> Tree:
    """`grads` scaled down to the norm `bound` if theirs is larger; per client if `stacked`."""
    flat = [g.reshape(len(g), -1) if stacked else g.flatten() for g in tree.leaves(grads)]
    if not flat:
        return grads
    norms = [torch.linalg.vector_norm(g, dim=-1) for g in flat]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    factor = (bound / (norm + 1e-6)).clamp(max=1)
    return tree.map(lambda g: g * tree.along(factor, g), grads)


def _zeros(params: Tree) -> Tree:
    """New zeros in the shapes of `params`."""
    return tree.map(lambda p: torch.zeros_like(p, memory_format=torch.contiguous_format), params)


def _match_leaves(*trees: Tree) -> list[list[Tensor]]:
    """The corresponding leaves of trees of equal structure: a list for each tree."""
    matched = []
    tree.map(lambda *leaves: matched.append(leaves), *trees)  # by key: their order may differ
    return [[*own] for own in zip(*matched, strict=True)]


def _by_rate(trees: tuple, lr: Rate, scale: dict) -> Iterator[tuple[Rate, list[list[Tensor]]]]:
    """Each learning rate, and the leaves of each of `trees` that have it."""
    factors = {name: scale.get(name, 1.0) for name in trees[0]}
    for factor in sorted({*factors.values()}):
        names = [name for name in factors if factors[name] == factor]
        # None if a body has nothing to train.
        if lists := _match_leaves(*({name: x[name] for name in names} for x in trees)):
            yield lr * factor, lists


def _laid_out_like(p: list[Tensor], g: list[Tensor]) -> list[Tensor]:
    """Gradients `g` in the layout of `p`: fused kernels walk through all in storage order."""
    return [g if g.stride() == p.stride() else g.contiguous() for p, g in zip(p, g, strict=True)]
