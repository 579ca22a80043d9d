"""How a learning rate changes over time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlib.errors import ConfigError
from fedlib.fields import Range, check


@dataclass(frozen=True)
class Schedule:
    """Factor of the learning rate as a function of time t.

    Attributes:
      kind: "constant" 1; "multi_step" `factor` to the power of milestones passed (t >= milestone);
        "cosine" half a cosine from 1 to 0 at `period`; "sqrt" 1 / sqrt(t) and "linear" 1 / t, from
        t = 1 on, as in FedEM's code.
      by: unit of t: "epoch", local epochs that the client has done (as an optimiser that lives for
        the whole run would count; a round with `steps` counts as one; where a method keeps no
        memory of its solvers, as IFCA and FedRolex, t is 0 again in every round); "round",
        communication rounds.
      milestones, factor: of "multi_step".
      period: of "cosine", in the unit of t.
    """

    kind: str = "constant"
    by: str = "epoch"
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    period: int = 200

    def __post_init__(self):
        """Raises ConfigError for values that give no learning rate, or bad milestones."""
        check(
            self,
            {"kind": tuple(sorted(_SCHEDULES)), "by": ("epoch", "round")},
            {"factor": Range(0), "period": Range(1)},
        )
        stepped = self.kind == "multi_step"
        if stepped and min(self.milestones, default=-1) < 0:
            raise ConfigError(f"milestones must be one or more times from 0, got {self.milestones}")

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Factor at each time t (integers, any shape) -> same shape, float64"""
        return _SCHEDULES[self.kind](self, np.asarray(t, dtype=np.float64))


_SCHEDULES: dict[str, Callable[[Schedule, np.ndarray], np.ndarray]] = {
    "constant": lambda s, t: np.ones_like(t),
    "multi_step": lambda s, t: s.factor ** sum((t >= m) for m in s.milestones),
    "linear": lambda s, t: 1 / np.maximum(t, 1),
    "sqrt": lambda s, t: 1 / np.sqrt(np.maximum(t, 1)),
    "cosine": lambda s, t: (1 + np.cos(np.pi * np.minimum(t / s.period, 1))) / 2,
}
