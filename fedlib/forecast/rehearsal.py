"""The operations of a run, counted in one round with a handful of made-up examples.

A rehearsal is a round, an evaluation during training and a final evaluation, with a few clients and
batches of two examples, and counts operations as in `fedlib.run.cost`. It records the operations
per example of each part of a run: local steps or scoring by a group of owners on a split. They do
not depend on the number of examples, on rounds or on the batch size, so only one batch of one
client of each kind is computed. Large tensors have no values, see `fedlib.forecast.counting`. In a
final evaluation, operations may grow in proportion to the number of clients, such as where a client
uses the models of all; so this evaluation is repeated with twice as many clients. No data are read.

A rehearsal does not know when clients stop early (see `STOPS_AFTER` in `fedlib.forecast.costs`). It
does the last round only, so other rounds may differ.
"""

import math
from collections import Counter as Sums
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedlib import tree
from fedlib.data.sizes import Sizes
from fedlib.engine import scratch
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Loop
from fedlib.engine.journal import Journal
from fedlib.engine.waves import Work, pad
from fedlib.federation import GROUPS, Federation
from fedlib.forecast.counting import Counter, Unreal, largest, longer, of_rows, stacked
from fedlib.forecast.made_up import built_once, made_up, simulation
from fedlib.forecast.rehearsed import Kind, Load, Part, Phase, Rehearsed
from fedlib.results import SHARED
from fedlib.run import evaluate, scoring
from fedlib.run.simulate import Simulation

BATCH = 2  # examples in a rehearsed batch: one is too few for batch normalisation
# Examples of clients: unequal, to tell epochs from steps, and enough to hold out a part.
SMALL, LARGE = 20 * BATCH, 21 * BATCH
SCORED = 2  # examples of every other split
CLIENTS_EACH = 2  # clients of each group, or as many as there are architectures
# Settings of methods: operations of a server are not counted, and among many clients every expert
# is used.
REHEARSED = {"server_epochs": 1, "expert_set": "all"}
MANY = 1000  # clients, more than any method selects as finalists
ATTEMPTS = 50  # most rounds until a client does a local step, which L2SGD draws

_BUILT: dict[str, Any] = {}  # architectures of earlier rehearsals


def rehearse(spec: dict, views: Sequence[Sequence[str]], sizes: Sizes) -> Rehearsed:
    """The rehearsal of a run.

    Args:
      spec: from `fedlib.spec.Run.spec`.
      views: of its final evaluation, see `fedlib.run.evaluate.final`.
      sizes: of its federation; only shapes and groups are used.

    Raises:
      ConfigError: for a run that cannot be built.
    """
    with Unreal(), _in_memory(), built_once(_BUILT):
        return _rehearsed(spec, views, sizes)


@contextmanager
def _in_memory() -> Iterator[None]:
    """In this block no state of clients goes to a file, because it uses no memory here."""
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
    before = stacked(state)
    tally.phase = Phase.ROUND
    tried, state, journal = _rounds(few, state)
    rows, common = of_rows(state, few.federation)
    tally.phase = Phase.EVALUATION
    everyone = partial(few.everyone, round=few.course.rounds)
    state, _ = scoring.during_training(method, state, everyone)
    brief = method.briefly()
    # Clients are prepared in the same way for shared test examples as for their own.
    own_views = [(*view[:2], "test" if view[2] == SHARED else view[2]) for view in views]
    _final(few, state, own_views, 1)
    loads = _with_lasting(few, state, own_views)
    del state
    number = few.federation.ids("seen").size
    more = DeviceData(made_up(sizes, 2 * number, **counts), few.data.dtype, few.data.device)
    twice = replace(few, data=more, executor=Tally(tally.counter))
    state = twice.init()
    owners = few.federation.num_clients
    each = (stacked(state) - before) / (twice.federation.num_clients - owners)
    loads = _with_growth(loads, number, twice, state, own_views)
    return Rehearsed(
        loads=loads,
        shared=before - owners * each + common,
        each={group: each + numbers for group, numbers in rows.items()},
        carried=tally.carried,
        sent=journal.up,
        largest=largest(state),
        personal=method.personal_numbers(),
        shared_test=_shared_test(loads) if any(view[2] == SHARED for view in views) else 0.0,
        whole=journal.whole,
        busy=1 / tried,
        brief=longer(method, brief) if brief else 1.0,
        finalists=_finalists(method, sizes),
    )


def _shared_test(loads: dict[Part, Load]) -> float:
    last = Phase.FINAL, Kind.SCORE, "test"
    tests = [x.flops for part, x in loads.items() if (part.phase, part.kind, part.split) == last]
    return max(tests, default=0.0)


def _brief(few: Simulation) -> Simulation:
    """The simulation with the settings in `REHEARSED`."""
    has = {name: value for name, value in REHEARSED.items() if hasattr(few.method, name)}
    return replace(few, method=replace(few.method, **has))


def _final(few: Simulation, state: Any, views: list, rounds: int) -> None:
    """Rehearse the final evaluation after `rounds` rounds."""
    few.executor.phase = Phase.FINAL
    everyone = partial(few.everyone, round=rounds)
    evaluate.final(few.method.briefly() or few.method, state, everyone, views=views)


def _with_lasting(few: Simulation, state: Any, views: list) -> dict[Part, Load]:
    """All loads, with `lasting` from a final evaluation after two rounds instead of one."""
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
    """Loads of `number` clients, with growth from a final evaluation of twice as many clients."""
    _final(twice, state, views, 1)
    of_twice = twice.executor.loads(twice.federation)

    def grown(part: Part, load: Load) -> Load:
        other = of_twice.get(part)
        if part.phase != Phase.FINAL or other is None or other.share != load.share:
            return load
        growth = max(0.0, other.flops - load.flops) / number
        return load._replace(flops=load.flops - growth * number, growth=growth)

    return {part: grown(part, load) for part, load in loads.items()}


class Tally(Loop):
    """An executor that counts the operations of each part of a run.

    It runs a single step or batch of one client of each kind, because others take as many
    operations per example. In training the models of all others stay the same; in scoring they get
    the scores of this client.

    Attributes:
      phase: the current phase; None counts nothing.
      carried: see `Rehearsed`.
    """

    name = "tally"

    def __init__(self, counter: Counter | None = None):
        super().__init__()
        self.counter = counter or Counter()
        self.phase: Phase | None = None
        self.carried = 0.0
        self._noted: dict[Part, Sums] = defaultdict(Sums)

    def fold(self, work: Work, drawn: list, batch_size: int, step, carry, per_client):
        """See `Executor.fold`."""
        sizes = work.data.federation.train.sizes[work.ids]
        steps = [len(batches.steps) for batches in drawn]
        done = np.array([batches.examples for batches in drawn])
        epochs, number = _course(sizes, batch_size, steps)
        batch = 0 if batch_size == BATCH else batch_size
        if self.phase == Phase.ROUND and _group(work) == "seen":
            self.carried = max(self.carried, tree.numel(carry) / len(work.ids))
        for one, kind in _one_of_each_kind(work, done):
            first = drawn[one.start]
            first = replace(first, steps=first.steps[:1], keys=first.keys[:1])
            own, args = tree.take((carry, per_client), one)
            fold = partial(super().fold, work.of(one), [first], batch_size, step, own, args)
            counted = self.counter.count(fold, step, own, args, work.task, first.steps[0].size)
            times = float(done[kind].sum() / first.steps[0].size)
            part = Kind.FOLD, "train", epochs, number, batch
            held = sizes[kind].sum()
            noted = {"flops": times * counted.flops, "numbers": times * counted.forward}
            self._note(work.of(kind), part, held, done[kind].sum(), noted)
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
            part, held = (Kind.SCORE, split, 1, 0, batch_size), sizes[kind].sum()
            noted = {"flops": times * counted.flops, "numbers": times * counted.largest}
            self._note(work.of(kind), part, held, held, noted)
            for position in kind:
                parts[position] = scores[0, np.arange(sizes[position]) % scores.shape[1]]
        return pad(parts, sizes)

    def _note(self, work: Work, what: tuple, held: int, examples: int, noted: dict) -> None:
        if self.phase is None:
            return
        kind, *rest = what
        part = Part(self.phase, kind, _group(work), *rest)
        done = {"owners": len(work.ids), "held": int(held), "examples": int(examples)}
        self._noted[part].update(noted | done)

    def loads(self, federation: Federation) -> dict[Part, Load]:
        """The load of each part."""

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


def _group(work: Work) -> str:
    return GROUPS[work.data.federation.group[work.ids[0]]]


def _one_of_each_kind(work: Work, amounts: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """(a client that has work, all clients of its kind), by position, for each kind."""
    kinds = np.zeros(len(amounts)) if work.kinds is None else work.kinds
    for kind in np.unique(kinds):
        everyone = np.flatnonzero(kinds == kind)
        busy = everyone[amounts[everyone] > 0]
        if len(busy):
            yield slice(busy[0], busy[0] + 1), everyone


def _course(sizes: np.ndarray, batch_size: int, steps: list[int]) -> tuple[float, float]:
    """(epochs, 0) if the steps of clients follow from their examples, or (0, steps)."""
    each = -(-sizes // batch_size)
    epochs = sum(steps) / max(int(each.sum()), 1)
    fixed = len({*steps}) == 1 and len({*each.tolist()}) > 1
    return (0.0, float(steps[0])) if fixed and steps[0] else (epochs, 0.0)


def _rounds(few: Simulation, state: Any) -> tuple[int, Any, Journal]:
    """(rounds until a client does a local step, state after them, journal of the last)."""
    first = max(few.course.rounds - 1, 0)
    for tried in range(1, ATTEMPTS + 1):
        cohort = few.cohort(few.federation.ids("seen"), first + tried - 1)
        state = few.method.round(state, cohort)
        others = sum(journal.examples for journal in cohort.journal.others.values())
        if cohort.journal.examples or others or not few.method.clients_train:
            return tried, state, cohort.journal
    return 1, state, cohort.journal


def _finalists(method: Any, sizes: Sizes) -> int:
    """Number of clients that are prepared for the final protocols; 0 for all."""
    narrow = sizes._replace(shape=[1] * len(sizes.shape), labels=[], tokens=None)
    chosen = method.finalists(made_up(narrow, MANY, (1, 1), 1), "seen")
    return 0 if len(chosen) == MANY else len(chosen)
