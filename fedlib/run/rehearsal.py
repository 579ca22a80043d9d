"""What a run consists of, found by doing a round of it with a handful of made-up examples.

A rehearsal is a round, an evaluation during training and a final evaluation of a few clients with
two or three batches of two examples, client by client, while operations are counted as in
`fedlib.run.cost`. What is kept is *who computed what on which examples*: so many operations for
each example of a local step, and for each that is scored. They do not depend on the number of
examples, rounds or on the batch size, and at the end at most in proportion on that of the clients
(whose models are asked together, say), so that `fedlib.run.forecast` can tell from them what a real
run of any size takes. No data are read.

What cannot be known before: how long clients go on who stop early (see `STOPS_AFTER` there), and
rounds that differ from the last one, which is the one that is rehearsed.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from fedlib import tree
from fedlib.engine import ambient
from fedlib.engine.executors import Executor, Loop
from fedlib.engine.waves import Work
from fedlib.federation import GROUPS, Federation
from fedlib.results import SHARED
from fedlib.run import evaluate
from fedlib.run.cost import Operations
from fedlib.run.miniature import made_up, small
from fedlib.run.simulate import Simulation

BATCH = 2  # examples in a rehearsed batch: one is too few for batch normalisation
SMALL, LARGE = 2 * BATCH, 3 * BATCH  # examples of clients: unequal, so that epochs and steps differ
SCORED = 2  # examples of every other split
CLIENTS_EACH = 2  # of each group, or as many as there are architectures
MANY = 1000  # clients, more than any method singles out
ATTEMPTS = 50  # rounds until somebody does a local step: those of L2SGD are drawn
PHASES = ("round", "evaluation", "final")
FLOAT_BYTES = 4


class Call(NamedTuple):
    """What was computed on the examples of some owners; all calls of a kind in a phase together.

    Attributes:
      phase: one of `PHASES`.
      what: "fold", local steps, or "score".
      group: of the owners, one of `fedlib.federation.GROUPS`.
      split: of the examples.
      share: of the group's owners who took part, 2 if all of them did so twice.
      epochs: of local steps over the examples, 0 where their number is fixed; for "score" 1.
      steps: of each owner, where their number is fixed; else 0.
      batch: examples of a batch, 0 for the run's own batch size.
      flops: floating-point operations by example.
      growth: further ones for each seen client; 0 in other phases than the last.
      numbers: results of matrix products and convolutions by example, which memory must hold.
    """

    phase: str
    what: str
    group: str
    split: str
    share: float
    epochs: float
    steps: float
    batch: int
    flops: float
    growth: float
    numbers: float


class Rehearsed(NamedTuple):
    """What is known of a run after its rehearsal, JSON-able.

    Attributes:
      calls: of its phases, `Call`s as lists.
      shared, each: numbers in the state, and of them for each owner in the federation.
      personal: numbers that the final evaluation needs for each client who trains for it.
      shared_test: operations by example where clients are scored on each other's test examples.
      busy: share of the rounds in which clients do local steps.
      brief: epochs that final protocols may take for each that was rehearsed.
      finalists: the most clients of a group that are prepared for final protocols, or 0 for all.
    """

    calls: list[list]
    shared: float
    each: float
    personal: float
    shared_test: float
    busy: float
    brief: float
    finalists: int


def rehearse(spec: dict, views: Sequence[Sequence[str]], sizes: dict) -> Rehearsed:
    """What the run `spec` consists of.

    Args:
      spec: as `fedlib.spec.Run.spec` gives it.
      views: what its final evaluation scores, see `fedlib.run.evaluate.final`.
      sizes: `fedlib.data.sizes.Sizes` as a dict: of it shapes and groups are used.

    Raises:
      ConfigError: for a run that cannot be built.
    """
    tally = Tally()
    simulation = _small(spec, sizes, tally, CLIENTS_EACH)
    state = simulation.init()
    numbers = [_numbers(simulation.method, count) for count in (3, 4)]
    each = numbers[1] - numbers[0]
    tally.phase = "round"
    tried, after = _rounds(simulation, state, tally)
    tally.phase = "evaluation"
    after, _ = evaluate.during_training(simulation.method, after, _everyone(simulation))
    method = simulation.method
    brief = method.briefly()
    # Whoever is scored on everybody's test examples is prepared for it as for the own ones.
    own_views = [(*view[:2], "test" if view[2] == SHARED else view[2]) for view in views]
    _final(simulation, after, own_views, tally)
    calls = tally.calls(simulation.federation)
    few = simulation.federation.ids("seen").size
    calls = _growing(calls, few, _small(spec, sizes, Tally(), 2 * few), own_views)
    shared = any(view[2] == SHARED for view in views)
    scored = [
        c.flops for c in calls if c.phase == "final" and (c.what, c.split) == ("score", "test")
    ]
    return Rehearsed(
        calls=[list(call) for call in calls],
        shared=numbers[0] - 3 * each,
        each=each,
        personal=method.personal_numbers(),
        shared_test=max(scored, default=0.0) if shared else 0.0,
        busy=1 / tried,
        brief=_longer(method, brief) if brief else 1.0,
        finalists=_finalists(method, sizes),
    )


def _small(spec: dict, sizes: dict, tally: "Tally", clients: int) -> Simulation:
    """The run in miniature, with so many clients of each group at least."""
    own = spec["local"] | {"batch_size": BATCH}
    counts = {"train": (SMALL, LARGE), "scored": SCORED, "clients": clients}
    return small(spec | {"local": own}, sizes, tally, **counts)


def _final(simulation: Simulation, state: Any, views: list, tally: "Tally") -> None:
    """Rehearse the final evaluation."""
    tally.phase = "final"
    method = simulation.method.briefly() or simulation.method
    evaluate.final(method, state, _everyone(simulation), views=views)


def _everyone(simulation: Simulation) -> evaluate.CohortOf:
    """All clients of a group, after the last round."""
    return partial(simulation.everyone, round=simulation.course.rounds)


def _growing(calls: list[Call], few: int, twice: Simulation, views: list) -> list[Call]:
    """With what an example costs at the end if clients are more than `few`: seen in twice that."""
    tally = twice.executor
    _final(twice, twice.init(), views, tally)
    more = {_kind(call): call.flops for call in tally.calls(twice.federation)}

    def grown(call: Call) -> Call:
        growth = max(0.0, more.get(_kind(call), call.flops) - call.flops) / few
        return call._replace(flops=call.flops - growth * few, growth=growth)

    return [grown(call) if call.phase == "final" else call for call in calls]


def _kind(call: Call) -> tuple:
    """What two calls of federations of different size have in common."""
    return call[: Call._fields.index("flops")]


class Tally(Loop):
    """Client by client; notes who computed what, and how many operations that took.

    Attributes:
      phase: under which it is noted; None notes nothing.
    """

    name = "tally"

    def __init__(self):
        super().__init__()
        self.phase: str | None = None
        self._found: dict[tuple, list[float]] = {}

    def fold(self, work: Work, drawn: list, batch_size: int, step, carry, per_client):
        """See `Executor.fold`."""
        result, counter = _counted(super().fold, work, drawn, batch_size, step, carry, per_client)
        sizes = work.data.federation.train.sizes[work.ids]
        examples = sum(s.size for batches in drawn for s in batches.steps)
        epochs, steps = _course(sizes, batch_size, [len(batches.steps) for batches in drawn])
        batch = 0 if batch_size == BATCH else batch_size
        self._note(work, ("fold", "train", epochs, steps, batch), examples, counter)
        return result

    def each(self, work: Work, fn, per_client, split: str, batch_size: int):
        """See `Executor.each`."""
        result, counter = _counted(super().each, work, fn, per_client, split, batch_size)
        examples = int(work.data.federation.split(split).sizes[work.ids].sum())
        self._note(work, ("score", split, 1, 0, batch_size), examples, counter)
        return result

    def _note(self, work: Work, what: tuple, examples: int, counter: Operations) -> None:
        if self.phase is None or not examples:
            return
        group = GROUPS[work.data.federation.group[work.ids[0]]]
        kind, split, epochs, steps, batch = what
        key = self.phase, kind, group, split, epochs, steps, batch
        found = self._found.setdefault(key, [0, 0, 0, 0])
        for place, value in enumerate((len(work.ids), examples, counter.flops, counter.numbers)):
            found[place] += value

    def calls(self, federation: Federation) -> list[Call]:
        """Everything that was noted, by example."""
        calls = []
        for key, (owners, examples, flops, numbers) in self._found.items():
            phase, what, group, split, epochs, steps, batch = key
            share = owners / len(federation.ids(group))
            by_example = {"flops": flops / examples, "growth": 0.0, "numbers": numbers / examples}
            calls.append(Call(phase, what, group, split, share, epochs, steps, batch, **by_example))
        return calls


class Timed:
    """An executor that notes how long it takes for local steps, and for scoring.

    Attributes:
      seconds, examples: so far, by "fold" and "score".
    """

    def __init__(self, inner: Executor, clock: Callable[[], float]):
        self._inner, self._clock = inner, clock
        self.restart()

    def restart(self) -> None:
        """Forget everything so far."""
        self.seconds = {"fold": 0.0, "score": 0.0}
        self.examples = {"fold": 0, "score": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def rate(self, what: str, rehearsed: Rehearsed, phase: str) -> float:
        """Operations a second of local steps, or of scoring; 0 if there were none."""
        if not self.seconds[what]:
            return 0.0
        return by_example(rehearsed, phase, what) * self.examples[what] / self.seconds[what]

    def fold(self, work, drawn, *args):
        """See `Executor.fold`."""
        begun = self._clock()
        result = self._inner.fold(work, drawn, *args)
        self.seconds["fold"] += self._clock() - begun
        self.examples["fold"] += sum(s.size for batches in drawn for s in batches.steps)
        return result

    def each(self, work, fn, per_client, split, batch_size):
        """See `Executor.each`."""
        begun = self._clock()
        result = self._inner.each(work, fn, per_client, split, batch_size)
        self.seconds["score"] += self._clock() - begun
        self.examples["score"] += int(work.data.federation.split(split).sizes[work.ids].sum())
        return result


def by_example(rehearsed: Rehearsed, phase: str, what: str) -> float:
    """Operations by example of all calls of a kind in a phase, together."""
    calls = [Call(*call) for call in rehearsed.calls]
    mine = [
        (c.share * (c.epochs or 1), c.flops) for c in calls if (c.phase, c.what) == (phase, what)
    ]
    total = sum(share for share, _ in mine)
    return sum(share * flops for share, flops in mine) / total if total else 0.0


class _Counter(Operations):
    """Counts operations, and the numbers that matrix products and convolutions result in."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = self.flops
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if self.flops > before and isinstance(output, torch.Tensor):
            self.numbers += output.numel()
        return output


def _counted(fn: Callable, *args) -> tuple[Any, _Counter]:
    # Spelled-out recurrence instead of torch's fused LSTM, which has no formula.
    with _Counter() as counter, ambient.stacked_experts(True):
        return fn(*args), counter


def _course(sizes: np.ndarray, batch_size: int, steps: list[int]) -> tuple[float, float]:
    """(epochs, 0) where the steps of clients follow from their examples, or (0, steps)."""
    each = -(-sizes // batch_size)
    epochs = sum(steps) / max(int(each.sum()), 1)
    fixed = len({*steps}) == 1 and len({*each.tolist()}) > 1
    return (0.0, float(steps[0])) if fixed and steps[0] else (epochs, 0.0)


def _rounds(simulation: Simulation, state: Any, tally: Tally) -> tuple[int, Any]:
    """The rounds that it took until somebody did a local step, and the state after them."""
    first = max(simulation.course.rounds - 1, 0)
    for tried in range(1, ATTEMPTS + 1):
        cohort = simulation.cohort(simulation.federation.ids("seen"), first + tried - 1)
        state = simulation.method.round(state, cohort)
        others = sum(journal.examples for journal in cohort.journal.others.values())
        if cohort.journal.examples or others or not simulation.method.clients_train:
            return tried, state
    return 1, state


def _numbers(method: Any, owners: int) -> int:
    """Numbers in the state of so many owners; what several share counts once."""
    leaves = tree.leaves(method.init(owners, 0))
    return sum({id(x): x.untyped_storage().nbytes() // x.element_size() for x in leaves}.values())


def _finalists(method: Any, sizes: dict) -> int:
    """How many clients are prepared for the final protocols, 0 for all."""
    narrow = {"shape": [1] * len(sizes["shape"]), "labels": [], "tokens": None}
    chosen = method.finalists(made_up({**sizes, **narrow}, MANY, (1, 1), 1), "seen")
    return 0 if len(chosen) == MANY else len(chosen)


def _longer(method: Any, brief: Any) -> float:
    """How many times as many epochs the method may take as its brief form."""
    pairs = ((v, getattr(brief, n)) for n, v in vars(method).items() if isinstance(v, int))
    return max((mine / short for mine, short in pairs if short and mine > short), default=1.0)


def clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds of this process's processor on a CPU, where others may be busy; else of a card."""
    if device.type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now
