"""What a run does, found by doing a round of it with a handful of made-up examples.

A rehearsal is a round, an evaluation during training and a final evaluation of a few clients with
batches of two examples, while operations are counted as in `fedlib.run.cost`. It keeps who computed
what on which examples, with the operations for each example. These do not depend on the number of
examples, on rounds or on the batch size; so one batch of one client of each kind is computed. Large
tensors are left without their numbers, see `fedlib.forecast.unreal`. In a final evaluation
operations may grow in proportion to the number of clients, as where all their models are asked
together; so that evaluation is done with twice as many clients, too. No data are read.

A rehearsal cannot know how long clients train who may stop early (see `STOPS_AFTER` in
`fedlib.forecast.costs`), or about rounds that differ from the last one, which is the one it does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum, auto
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from fedlib import tree
from fedlib.data.sizes import Sizes
from fedlib.engine import ambient
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Loop
from fedlib.engine.waves import Work, pad
from fedlib.federation import GROUPS, Federation
from fedlib.forecast.made_up import made_up, simulation
from fedlib.forecast.unreal import Unreal
from fedlib.results import SHARED
from fedlib.run import evaluate, scoring
from fedlib.run.cost import FORMULAS, Operations
from fedlib.run.simulate import Simulation
from fedlib.tree import Rows

BATCH = 2  # examples in a rehearsed batch: one is too few for batch normalisation
SMALL, LARGE = 2 * BATCH, 3 * BATCH  # examples of clients: unequal, so that epochs and steps differ
SCORED = 2  # examples of every other split
CLIENTS_EACH = 2  # of each group, or as many as there are architectures
MANY = 1000  # clients, more than any method singles out
ATTEMPTS = 50  # rounds until somebody does a local step: those of L2SGD are drawn
NORM = torch.ops.aten._native_batch_norm_legit_no_training


class Phase(StrEnum):
    """When in a run: in a round, an evaluation during training, or the final evaluation."""

    ROUND = auto()
    EVALUATION = auto()
    FINAL = auto()


class Kind(StrEnum):
    """A kind of computation: local steps, or scoring; as executors call them."""

    FOLD = auto()
    SCORE = auto()


class Part(NamedTuple):
    """A part of a run: what some owners compute on their examples.

    Attributes:
      phase, kind: when, and what.
      group: of the owners, one of `fedlib.federation.GROUPS`.
      split: of the examples.
      epochs: of local steps over the examples, 0 where the number of steps is fixed; 1 of scoring.
      steps: of each owner, where their number is fixed; else 0.
      batch: examples of a batch, 0 for the run's own batch size.
    """

    phase: Phase
    kind: Kind
    group: str
    split: str
    epochs: float
    steps: float
    batch: int


class Load(NamedTuple):
    """What a part takes.

    Attributes:
      share: of the group's owners who do it, 2 if all of them do so twice.
      flops: floating-point operations by example.
      numbers: results of matrix products and convolutions by example, which memory must hold.
      growth: further operations by example for each seen client; 0 before the final evaluation.
    """

    share: float
    flops: float
    numbers: float
    growth: float = 0.0


class Rehearsed(NamedTuple):
    """What is known of a run after its rehearsal.

    Attributes:
      loads: of all that is done in the phases of the run.
      shared, each: numbers in the state, and of them for each owner in the federation.
      personal: numbers that the final evaluation needs for each client who trains for it.
      shared_test: operations by example where clients are scored on each other's test examples.
      whole: whether the models of all clients of a round exist at once, see `Cohort.fit`.
      busy: share of the rounds in which clients do local steps.
      brief: epochs that final protocols may take for each that was rehearsed.
      finalists: the most clients of a group that are prepared for final protocols, or 0 for all.
    """

    loads: dict[Part, Load]
    shared: float
    each: float
    personal: float
    shared_test: float
    whole: bool
    busy: float
    brief: float
    finalists: int

    def packed(self) -> dict:
        """As JSON can hold it."""
        return {**self._asdict(), "loads": [[*pair] for pair in self.loads.items()]}

    @classmethod
    def unpacked(cls, packed: dict) -> "Rehearsed":
        """What was `packed`."""
        loads = {
            Part(Phase(phase), Kind(kind), *part): Load(*load)
            for (phase, kind, *part), load in packed["loads"]
        }
        return cls(**{**packed, "loads": loads})

    def of(self, phase: Phase, kind: Kind) -> list[tuple[Part, Load]]:
        """What is done of one kind in one phase."""
        return [pair for pair in self.loads.items() if pair[0][:2] == (phase, kind)]

    def flops_by_example(self, phase: Phase, kind: Kind) -> float:
        """Operations by example of one kind in one phase, on average."""
        weighted = [(load.share * (part.epochs or 1), load) for part, load in self.of(phase, kind)]
        total = sum(weight for weight, _ in weighted)
        return sum(weight * load.flops for weight, load in weighted) / total if total else 0.0


def rehearse(spec: dict, views: Sequence[Sequence[str]], sizes: Sizes) -> Rehearsed:
    """What the run `spec` does.

    Args:
      spec: as `fedlib.spec.Run.spec` gives it.
      views: what its final evaluation scores, see `fedlib.run.evaluate.final`.
      sizes: of its federation: of them shapes and groups are used.

    Raises:
      ConfigError: for a run that cannot be built.
    """
    with Unreal():
        return _rehearsed(spec, views, sizes)


def _rehearsed(spec: dict, views: Sequence[Sequence[str]], sizes: Sizes) -> Rehearsed:
    tally, counts = Tally(), {"train": (SMALL, LARGE), "scored": SCORED}
    local = spec["local"] | {"batch_size": BATCH}
    few = simulation(spec | {"local": local}, sizes, tally, **counts, clients=CLIENTS_EACH)
    method, state = few.method, few.init()
    before = _numbers(state)
    tally.phase = Phase.ROUND
    tried, state, whole = _rounds(few, state)
    tally.phase = Phase.EVALUATION
    state, _ = scoring.during_training(method, state, _everyone(few))
    brief = method.briefly()
    # To be scored on everybody's test examples, clients are prepared as for their own.
    own_views = [(*view[:2], "test" if view[2] == SHARED else view[2]) for view in views]
    _final(few, state, own_views, tally)
    del state
    number, owners = few.federation.ids("seen").size, few.federation.num_clients
    more = DeviceData(made_up(sizes, 2 * number, **counts), few.data.dtype, few.data.device)
    twice = replace(few, data=more, executor=Tally())
    state = twice.init()
    each = (_numbers(state) - before) / (twice.federation.num_clients - owners)
    loads = _with_growth(tally.loads(few.federation), number, twice, state, own_views)
    tests = [load.flops for part, load in loads.items() if _is_final_test(part)]
    return Rehearsed(
        loads=loads,
        shared=before - owners * each,
        each=each,
        personal=method.personal_numbers(),
        shared_test=max(tests, default=0.0) if any(view[2] == SHARED for view in views) else 0.0,
        whole=whole,
        busy=1 / tried,
        brief=_longer(method, brief) if brief else 1.0,
        finalists=_finalists(method, sizes),
    )


def _final(few: Simulation, state: Any, views: list, tally: "Tally") -> None:
    """Rehearse the final evaluation."""
    tally.phase = Phase.FINAL
    evaluate.final(few.method.briefly() or few.method, state, _everyone(few), views=views)


def _everyone(few: Simulation) -> scoring.CohortOf:
    """All clients of a group, after the last round."""
    return partial(few.everyone, round=few.course.rounds)


def _with_growth(
    loads: dict[Part, Load], number: int, twice: Simulation, state: Any, views: list
) -> dict[Part, Load]:
    """Loads of `number` clients, with their growth as found by the final evaluation of `twice`."""
    tally = twice.executor
    _final(twice, state, views, tally)
    of_twice = tally.loads(twice.federation)

    def grown(part: Part, load: Load) -> Load:
        other = of_twice.get(part)
        if part.phase != Phase.FINAL or other is None or other.share != load.share:
            return load
        growth = max(0.0, other.flops - load.flops) / number
        return load._replace(flops=load.flops - growth * number, growth=growth)

    return {part: grown(part, load) for part, load in loads.items()}


def _is_final_test(part: Part) -> bool:
    return (part.phase, part.kind, part.split) == (Phase.FINAL, Kind.SCORE, "test")


class Tally(Loop):
    """Notes who computes what, and how many operations that takes.

    One client of each kind does it, a single step or batch: further ones take as many operations by
    example. Clients who train keep their models; those who score have the scores of that one.

    Attributes:
      phase: under which it is noted; None notes nothing.
    """

    name = "tally"

    def __init__(self):
        super().__init__()
        self.phase: Phase | None = None
        self._noted: dict[Part, Counter] = defaultdict(Counter)

    def fold(self, work: Work, drawn: list, batch_size: int, step, carry, per_client):
        """See `Executor.fold`."""
        sizes = work.data.federation.train.sizes[work.ids]
        steps = [len(batches.steps) for batches in drawn]
        done = np.array([sum(step.size for step in batches.steps) for batches in drawn])
        epochs, number = _course(sizes, batch_size, steps)
        batch = 0 if batch_size == BATCH else batch_size
        for one, kind in _one_of_each_kind(work, done):
            first = drawn[one.start]
            first = replace(first, steps=first.steps[:1], keys=first.keys[:1])
            own, args = tree.take((carry, per_client), one)
            _, counter = _counted(super().fold, work.of(one), [first], batch_size, step, own, args)
            times = float(done[kind].sum() / first.steps[0].size)
            part = Kind.FOLD, "train", epochs, number, batch
            self._note(work.of(kind), part, done[kind].sum(), times, counter)
        return carry

    def each(self, work: Work, fn, per_client, split: str, batch_size: int):
        """See `Executor.each`."""
        sizes = work.data.federation.split(split).sizes[work.ids]
        if not sizes.any():
            return super().each(work, fn, per_client, split, batch_size)
        parts: list = [None] * len(sizes)
        for one, kind in _one_of_each_kind(work, sizes):
            args = tree.take(per_client, one)
            scores, counter = _counted(super().each, work.of(one), fn, args, split, batch_size)
            times = float(sizes[kind].sum() / sizes[one.start])
            part = Kind.SCORE, split, 1, 0, batch_size
            self._note(work.of(kind), part, sizes[kind].sum(), times, counter)
            for position in kind:
                parts[position] = scores[0, np.arange(sizes[position]) % scores.shape[1]]
        return pad(parts, sizes)

    def _note(
        self, work: Work, what: tuple, examples: int, times: float, counter: "_Counting"
    ) -> None:
        if self.phase is None:
            return
        kind, *rest = what
        part = Part(self.phase, kind, GROUPS[work.data.federation.group[work.ids[0]]], *rest)
        noted = {"flops": times * counter.flops, "numbers": times * counter.numbers}
        self._noted[part].update(noted, owners=len(work.ids), examples=int(examples))

    def loads(self, federation: Federation) -> dict[Part, Load]:
        """Everything that was noted, by example."""
        return {
            part: Load(
                share=noted["owners"] / len(federation.ids(part.group)),
                flops=noted["flops"] / noted["examples"],
                numbers=noted["numbers"] / noted["examples"],
            )
            for part, noted in self._noted.items()
        }


def _one_of_each_kind(work: Work, amounts: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(a client who does something, all of its kind), by position, for each kind of clients."""
    kinds = np.zeros(len(amounts)) if work.kinds is None else work.kinds
    for kind in np.unique(kinds):
        everyone = np.flatnonzero(kinds == kind)
        busy = everyone[amounts[everyone] > 0]
        if len(busy):
            yield slice(busy[0], busy[0] + 1), everyone


class _Counting(Operations):
    """Counts operations, and the numbers that matrix products and convolutions result in."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _is_composite(func):
            return super().__torch_dispatch__(func, types, args, kwargs)
        output = func(*args, **(kwargs or {}))
        if formula := FORMULAS.get(func.overloadpacket):
            self.flops += 2 * formula(args, output)
            self.numbers += output.numel() if isinstance(output, torch.Tensor) else 0
        return output


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator may be made of products; batch normalisation takes long to take apart."""
    made_of = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return made_of and func.overloadpacket is not NORM


def _counted(fn: Callable, *args) -> tuple[Any, _Counting]:
    # Spelled-out recurrence instead of torch's fused LSTM, which has no formula.
    with _Counting() as counter, ambient.stacked_experts(True):
        return fn(*args), counter


def _course(sizes: np.ndarray, batch_size: int, steps: list[int]) -> tuple[float, float]:
    """(epochs, 0) where the steps of clients follow from their examples, or (0, steps)."""
    each = -(-sizes // batch_size)
    epochs = sum(steps) / max(int(each.sum()), 1)
    fixed = len({*steps}) == 1 and len({*each.tolist()}) > 1
    return (0.0, float(steps[0])) if fixed and steps[0] else (epochs, 0.0)


def _rounds(few: Simulation, state: Any) -> tuple[int, Any, bool]:
    """The rounds until somebody did a local step, the state after them; see `Journal.whole`."""
    first = max(few.course.rounds - 1, 0)
    for tried in range(1, ATTEMPTS + 1):
        cohort = few.cohort(few.federation.ids("seen"), first + tried - 1)
        state = few.method.round(state, cohort)
        others = sum(journal.examples for journal in cohort.journal.others.values())
        if cohort.journal.examples or others or not few.method.clients_train:
            return tried, state, cohort.journal.whole
    return 1, state, cohort.journal.whole


def _numbers(state: Any) -> int:
    """Numbers in a state in which every client has trained.

    Until then clients may share the tensors of their rows. What else several share counts once.
    """
    parts: list = []
    tree.map_clients(parts.append, state)
    others = {id(x): x for x in parts if type(x) is not Rows}
    shared = sum(x.untyped_storage().nbytes() // x.element_size() for x in others.values())
    return shared + sum(tree.numel(x) for x in parts if type(x) is Rows)


def _finalists(method: Any, sizes: Sizes) -> int:
    """How many clients are prepared for the final protocols, 0 for all."""
    narrow = sizes._replace(shape=[1] * len(sizes.shape), labels=[], tokens=None)
    chosen = method.finalists(made_up(narrow, MANY, (1, 1), 1), "seen")
    return 0 if len(chosen) == MANY else len(chosen)


def _longer(method: Any, brief: Any) -> float:
    """How many times as many epochs the method may take as its brief form."""
    pairs = ((v, getattr(brief, n)) for n, v in vars(method).items() if isinstance(v, int))
    return max((long / short for long, short in pairs if short and long > short), default=1.0)
