"""The work items: what every contender computes. Plain data, NumPy only.

An item is FedAvg, or FedEM, with SGD without momentum and one local epoch, on made-up examples:
what is measured does not depend on their values. Sizes of the clients, cohorts and sizes of the
batches are the same for everybody; each contender may order a client's examples as it likes.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedlib import streams

SEED = 0
LR = 0.01


class Goals(NamedTuple):
    """What is asked of the engine; None is nothing.

    Attributes:
      peer: samples/s, as a multiple of the best peer's.
      floor: likewise, of the centralised floor's.
      fedem: likewise, of FedEM's loop.
      pfedmm: how much longer than FedAvg pFedMM with three heads may take.
    """

    peer: float | None = None
    floor: float | None = None
    fedem: float | None = None
    pfedmm: float | None = None


@dataclass(frozen=True)
class Item:
    """One piece of work.

    Attributes:
      name, title: short and long.
      model: one of `benchmarks.models.MODELS`.
      shape: of one input.
      num_classes: L.
      num_clients: of the federation, all of them seen.
      examples: of all clients together.
      spread: standard deviation of the logarithm of a client's size; 0 makes all equal.
      cohort: clients in a round.
      batch_size: of the local steps.
      num_experts: of FedEM; 1 is FedAvg.
      executors: of ours that are worth measuring on a CPU.
      goals, goals_per_core: with all cores, and with one, which is what a job of the workflow has.
      official: what FedEM's official code and the plain loop on the item `plain_of` did, in
        samples/s, on one and the same machine; None for FedAvg.
      plain_of: item whose plain loop says how fast this machine is.
    """

    name: str
    title: str
    model: str
    shape: tuple[int, ...]
    num_classes: int
    num_clients: int
    examples: int
    spread: float
    cohort: int
    batch_size: int
    num_experts: int = 1
    executors: tuple[str, ...] = ("loop",)
    goals: Goals = Goals()
    goals_per_core: Goals = Goals()
    official: tuple[float, float] | None = None
    plain_of: str | None = None

    @property
    def rate(self) -> float:
        """Fraction of the clients in a round."""
        return self.cohort / self.num_clients

    def sizes(self) -> np.ndarray:
        """Examples of each client, at least two -> [C] int64; they add up to `examples`."""
        draw = streams.generator(SEED, self.model, "sizes")
        shares = np.exp(self.spread * draw.standard_normal(self.num_clients))
        spare = self.examples - 2 * self.num_clients
        ends = np.round(np.cumsum(shares) / shares.sum() * spare).astype(np.int64)
        return 2 + np.diff(ends, prepend=0)

    def offsets(self) -> np.ndarray:
        """First example of each client in the pool, and the end -> [C + 1] int64"""
        return np.cumsum([0, *self.sizes()])

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """The pool: inputs [M, *shape] float32, labels [M] int64; client after client."""
        draw = streams.generator(SEED, self.model, "examples")
        x = draw.standard_normal((self.examples, *self.shape), dtype=np.float32)
        return x, draw.integers(0, self.num_classes, self.examples)

    def clients(self, round: int) -> np.ndarray:
        """Clients of a round, as `engine.participation.sample` draws them -> [cohort] int64"""
        if self.cohort == self.num_clients:
            return np.arange(self.num_clients)
        draw = streams.generator(SEED, round, "cohort")
        return np.sort(draw.choice(np.arange(self.num_clients), size=self.cohort, replace=False))


@dataclass(frozen=True)
class _Federation:
    """Fields that items share."""

    fields: dict = field(default_factory=dict)

    def __call__(self, name: str, title: str, **changes) -> Item:
        return Item(name=name, title=title, **self.fields | changes)


TRACED = ("loop", "traced")  # one by one on a CPU

# Uneven as a pachinko or Dirichlet partition leaves them: the largest has three to four times
# the mean. Batch normalisation needs batches of two, so the clients of W3 are equal.
_CNN = _Federation(
    {
        "model": "emnist_cnn",
        "shape": (1, 28, 28),
        "num_classes": 62,
        "num_clients": 100,
        "examples": 11_800,
        "spread": 0.5,
        "cohort": 10,
        "executors": TRACED,
    }
)
_SMALL = _Federation(
    {
        "num_clients": 300,
        "examples": 18_000,
        "spread": 0.5,
        "cohort": 300,
        "batch_size": 32,
        "executors": (*TRACED, "batched"),
    }
)
_DEEP = _Federation(
    {
        "shape": (3, 32, 32),
        "num_classes": 10,
        "num_clients": 20,
        "examples": 20 * 512,
        "spread": 0.0,
        "cohort": 20,
        "batch_size": 128,
    }
)

# The goals are those of the project. The two rates of FedEM's official code (omarfoq/FedEM, data in
# memory) and of the plain loop were taken together, on two cores of an AMD EPYC with AVX-512.
ITEMS = {
    item.name: item
    for item in (
        _CNN(
            "W1a",
            "EMNIST CNN, batches of 32",
            batch_size=32,
            goals=Goals(peer=1.8, pfedmm=1.15),
            goals_per_core=Goals(floor=0.95, pfedmm=1.2),
        ),
        _CNN(
            "W1b",
            "EMNIST CNN, batches of 128",
            batch_size=128,
            goals=Goals(peer=1.8, floor=0.8, pfedmm=1.15),
            goals_per_core=Goals(pfedmm=1.2),
        ),
        _SMALL(
            "W2a",
            "MLP 784-200-62",
            model="mlp",
            shape=(784,),
            num_classes=62,
            goals=Goals(peer=1.6),
            goals_per_core=Goals(peer=1.7),
        ),
        _SMALL(
            "W2b",
            "logistic regression 60-2",
            model="linear",
            shape=(60,),
            num_classes=2,
            goals=Goals(peer=6.0),
            goals_per_core=Goals(peer=8.0),
        ),
        _SMALL(
            "W2c",
            "LeNet-5",
            model="lenet5",
            shape=(1, 28, 28),
            num_classes=10,
            goals=Goals(peer=1.0),
            goals_per_core=Goals(peer=1.3),
        ),
        _DEEP(
            "W3a",
            "MobileNet-v2 at 32 x 32",
            model="mobilenet_v2",
            goals=Goals(peer=2.5, floor=0.8, pfedmm=1.15),
        ),
        _DEEP("W3b", "ResNet-20 at 32 x 32", model="resnet20", goals=Goals(peer=1.3)),
        _CNN(
            "W4a",
            "FedEM with 3 experts on W1a",
            batch_size=32,
            num_experts=3,
            goals_per_core=Goals(fedem=1.4),
            official=(465, 3020),
            plain_of="W1a",
        ),
        _CNN(
            "W4b",
            "FedEM with 3 experts on W1b",
            batch_size=128,
            num_experts=3,
            official=(527, 3261),
            plain_of="W1b",
        ),
    )
}
OFFICIAL_GOAL = 3.0  # of FedEM's official code, scaled to this machine by the plain loop
