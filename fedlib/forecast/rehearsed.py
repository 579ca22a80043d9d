"""The result of a rehearsal: the operations of each part of a run, and the numbers it keeps."""

from enum import StrEnum, auto
from typing import NamedTuple


class Phase(StrEnum):
    """A phase of a run: a round, an evaluation during training, or the final evaluation."""

    ROUND = auto()
    EVALUATION = auto()
    FINAL = auto()


class Kind(StrEnum):
    """A kind of computation, named as in executors: local steps (fold) or scoring."""

    FOLD = auto()
    SCORE = auto()


class Part(NamedTuple):
    """A part of a run: one kind of computation of some owners on their examples.

    Attributes:
      phase, kind: of the computation.
      group: of the owners, one of `fedlib.federation.GROUPS`.
      split: of the examples.
      epochs: of local steps over the examples, 0 if the number of steps is fixed; 1 for scoring.
      steps: of each owner, if their number is fixed; else 0.
      batch: examples in a batch; 0 for the run's own batch size.
    """

    phase: Phase
    kind: Kind
    group: str
    split: str
    epochs: float
    steps: float
    batch: int


class Load(NamedTuple):
    """The work of a part.

    Attributes:
      share: of the group's examples; 2 if all of them are used twice. Of its owners, if the number
        of steps is fixed.
      flops: floating-point operations per example.
      numbers: results of matrix products and convolutions per example that are kept at once: of
        local steps those of a forward pass, of scoring the largest.
      growth: further operations per example for each seen client; 0 before the final evaluation.
      lasting: further `share` for each round after the first, if clients train once for each round.
    """

    share: float
    flops: float
    numbers: float
    growth: float = 0.0
    lasting: float = 0.0


class Rehearsed(NamedTuple):
    """The result of a rehearsal.

    Attributes:
      loads: of all parts of the run.
      shared: numbers in the state that owners share.
      each: further ones of each owner, by group.
      carried: most numbers that a client changes in local steps: its models and their momenta.
      sent: numbers that a client sends in a round.
      largest: numbers of each owner in the largest `Rows` of the state.
      personal: numbers that the final evaluation needs for each client that trains for it.
      shared_test: operations per example if clients are scored on each other's test examples.
      whole: whether the models of all clients of a round exist at once, see `Cohort.fit`.
      busy: share of the rounds in which clients do local steps.
      brief: most epochs of final protocols for each rehearsed epoch.
      finalists: most clients of a group that are prepared for final protocols; 0 for all.
    """

    loads: dict[Part, Load]
    shared: float
    each: dict[str, float]
    carried: float
    sent: float
    largest: float
    personal: float
    shared_test: float
    whole: bool
    busy: float
    brief: float
    finalists: int

    def packed(self) -> dict:
        """A form that fits into JSON."""
        return {**self._asdict(), "loads": [[*pair] for pair in self.loads.items()]}

    @classmethod
    def unpacked(cls, packed: dict) -> "Rehearsed":
        """Undo `packed`."""
        loads = {
            Part(Phase(phase), Kind(kind), *part): Load(*load)
            for (phase, kind, *part), load in packed["loads"]
        }
        return cls(**{**packed, "loads": loads})

    def of(self, phase: Phase, kind: Kind) -> list[tuple[Part, Load]]:
        """The parts of one phase and kind, with their loads."""
        return [pair for pair in self.loads.items() if pair[0][:2] == (phase, kind)]

    def flops_by_example(self, phase: Phase, kind: Kind) -> float:
        """Mean operations per example of one kind in one phase."""
        weighted = [(load.share * (part.epochs or 1), load) for part, load in self.of(phase, kind)]
        total = sum(weight for weight, _ in weighted)
        return sum(weight * load.flops for weight, load in weighted) / total if total else 0.0
