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

import math
from collections import Counter as Sums
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum, auto
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedlib import tree
from fedlib.data.sizes import Sizes
from fedlib.engine import scratch
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Loop
from fedlib.engine.task import Params, Task
from fedlib.engine.waves import Work, pad
from fedlib.federation import GROUPS, Federation
from fedlib.forecast.counting import Counted, Counter
from fedlib.forecast.made_up import made_up, simulation
from fedlib.forecast.unreal import Unreal
from fedlib.results import SHARED
from fedlib.run import evaluate, scoring
from fedlib.run.simulate import Simulation
from fedlib.tree import Rows

BATCH = 2  # examples in a rehearsed batch: one is too few for batch normalisation
# Examples of clients: unequal, so that epochs and steps differ, and enough to hold out a part.
SMALL, LARGE = 20 * BATCH, 21 * BATCH
SCORED = 2  # examples of every other split
CLIENTS_EACH = 2  # of each group, or as many as there are architectures
# Settings of methods: no operations of a server are counted, and of many clients somebody has every
# expert.
REHEARSED = {"server_epochs": 1, "expert_set": "all"}
MANY = 1000  # clients, more than any method singles out
ATTEMPTS = 50  # rounds until somebody does a local step: those of L2SGD are drawn


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
      share: of the group's examples it is done on, 2 if that is all of them twice; of its owners
        where the number of steps is fixed.
      flops: floating-point operations by example.
      numbers: results of matrix products and convolutions by example, which memory must hold.
      growth: further operations by example for each seen client; 0 before the final evaluation.
      lasting: further `share` for each round after the first, where clients train once for each.
    """

    share: float
    flops: float
    numbers: float
    growth: float = 0.0
    lasting: float = 0.0


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
    with Unreal(), _in_memory():
        return _rehearsed(spec, views, sizes)


@contextmanager
def _in_memory() -> Iterator[None]:
    """What all clients keep goes to no file, however large it is: nobody touches its memory."""
    before, scratch.ROOM_SHARE = scratch.ROOM_SHARE, math.inf
    try:
        yield
    finally:
        scratch.ROOM_SHARE = before


def _rehearsed(spec: dict, views: Sequence[Sequence[str]], sizes: Sizes) -> Rehearsed:
    tally, counts = Tally(), {"train": (SMALL, LARGE), "scored": SCORED}
    local = spec["local"] | {"batch_size": BATCH}
    few = _brief(simulation(spec | {"local": local}, sizes, tally, **counts, clients=CLIENTS_EACH))
    method, state = few.method, few.init()
    before = _numbers(state)
    tally.phase = Phase.ROUND
    tried, state, whole = _rounds(few, state)
    tally.phase = Phase.EVALUATION
    everyone = partial(few.everyone, round=few.course.rounds)
    state, _ = scoring.during_training(method, state, everyone)
    brief = method.briefly()
    # To be scored on everybody's test examples, clients are prepared as for their own.
    own_views = [(*view[:2], "test" if view[2] == SHARED else view[2]) for view in views]
    _final(few, state, own_views, 1)
    loads = _with_lasting(few, state, own_views)
    del state
    number, owners = few.federation.ids("seen").size, few.federation.num_clients
    more = DeviceData(made_up(sizes, 2 * number, **counts), few.data.dtype, few.data.device)
    twice = replace(few, data=more, executor=Tally(tally.counter))
    state = twice.init()
    each = (_numbers(state) - before) / (twice.federation.num_clients - owners)
    loads = _with_growth(loads, number, twice, state, own_views)
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


def _brief(few: Simulation) -> Simulation:
    """With models drawn once, and as `REHEARSED` has it."""
    has = {name: value for name, value in REHEARSED.items() if hasattr(few.method, name)}
    few = replace(few, method=replace(few.method, **has))
    for value in vars(few.method).values():
        for task in value if isinstance(value, tuple) else (value,):
            if isinstance(task, Task):
                object.__setattr__(task, "init", _drawn_once(task))
    return few


def _drawn_once(task: Task) -> Callable[[int], Params]:
    """`task.init` with the same numbers for all seeds."""
    draw = cache(partial(task.init, 0))
    return lambda seed: {name: value.detach() for name, value in draw().items()}


def _final(few: Simulation, state: Any, views: list, rounds: int) -> None:
    """Rehearse the final evaluation after so many rounds."""
    few.executor.phase = Phase.FINAL
    everyone = partial(few.everyone, round=rounds)
    evaluate.final(few.method.briefly() or few.method, state, everyone, views=views)


def _with_lasting(few: Simulation, state: Any, views: list) -> dict[Part, Load]:
    """All loads, those of clients who train for as many rounds as others did as `lasting`."""
    loads = few.executor.loads(few.federation)
    if not few.federation.ids("unseen").size:
        return loads
    longer = replace(few, executor=Tally(few.executor.counter))
    _final(longer, state, views, 2)
    of_two = longer.executor.loads(few.federation)

    def lasting(part: Part, load: Load) -> Load:
        return load._replace(lasting=of_two[part].share - load.share if part in of_two else 0.0)

    return {part: lasting(part, load) for part, load in loads.items()}


def _with_growth(
    loads: dict[Part, Load], number: int, twice: Simulation, state: Any, views: list
) -> dict[Part, Load]:
    """Loads of `number` clients, with their growth as found by the final evaluation of `twice`."""
    _final(twice, state, views, 1)
    of_twice = twice.executor.loads(twice.federation)

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

    def __init__(self, counter: Counter | None = None):
        super().__init__()
        self.counter = counter or Counter()
        self.phase: Phase | None = None
        self._noted: dict[Part, Sums] = defaultdict(Sums)

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
            fold = partial(super().fold, work.of(one), [first], batch_size, step, own, args)
            counted = self.counter.count(fold, step, own, args, work.task, first.steps[0].size)
            times = float(done[kind].sum() / first.steps[0].size)
            part = Kind.FOLD, "train", epochs, number, batch
            held = sizes[kind].sum()
            self._note(work.of(kind), part, held, done[kind].sum(), times, counted)
        return carry

    def each(self, work: Work, fn, per_client, split: str, batch_size: int):
        """See `Executor.each`."""
        sizes = work.data.federation.split(split).sizes[work.ids]
        if not sizes.any():
            return super().each(work, fn, per_client, split, batch_size)
        parts: list = [None] * len(sizes)
        for one, kind in _one_of_each_kind(work, sizes):
            args = tree.take(per_client, one)
            score = partial(super().each, work.of(one), fn, args, split, batch_size)
            counted = self.counter.count(score, fn, args, work.task, int(sizes[one.start]))
            scores = counted.result
            times = float(sizes[kind].sum() / sizes[one.start])
            part = Kind.SCORE, split, 1, 0, batch_size
            held = sizes[kind].sum()
            self._note(work.of(kind), part, held, held, times, counted)
            for position in kind:
                parts[position] = scores[0, np.arange(sizes[position]) % scores.shape[1]]
        return pad(parts, sizes)

    def _note(
        self, work: Work, what: tuple, held: int, examples: int, times: float, counted: Counted
    ) -> None:
        if self.phase is None:
            return
        kind, *rest = what
        part = Part(self.phase, kind, GROUPS[work.data.federation.group[work.ids[0]]], *rest)
        noted = {"flops": times * counted.flops, "numbers": times * counted.numbers}
        done = {"owners": len(work.ids), "held": int(held), "examples": int(examples)}
        self._noted[part].update(noted | done)

    def loads(self, federation: Federation) -> dict[Part, Load]:
        """Everything that was noted, by example."""

        def share(part: Part, noted: Sums) -> float:
            ids = federation.ids(part.group)
            if part.steps:
                return noted["owners"] / len(ids)
            return noted["held"] / federation.split(part.split).sizes[ids].sum()

        return {
            part: Load(
                share=float(share(part, noted)),
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
