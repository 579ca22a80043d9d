"""What training and evaluating a run will cost: time and memory, from its rehearsal and a rate.

Arithmetic alone: operations by example (`fedlib.run.rehearsal`) times the examples of the
federation (`fedlib.data.sizes`, or its manifest), over the operations per second that this machine
does with such a model (`fedlib.run.rates`).

Not in it: what the server computes besides local steps, writing files, and waiting for them.
"""

from typing import NamedTuple

import numpy as np

from fedlib.engine.choice import BLOCK
from fedlib.federation import CLIENTS
from fedlib.run.evaluate import FINAL_BYTES
from fedlib.run.rehearsal import FLOAT_BYTES, Call, Rehearsed

START = 4.0  # seconds until a job computes: PyTorch is imported, the federation read and checked
# Epochs until clients stop early, if they may go on for longer: of FedMix's autoencoders at scale
# full on average (200 may be), and no fewer by Adaptive Experts' (26 may be at scale reduced).
STOPS_AFTER = 25
BASE = 600  # MB of a process with PyTorch that does nothing
COPIES = 2  # of what is kept and of what clients of a round work on: before and after
PASSES = 3  # times the results of matrix products: what is between them, and gradients
SCORED_TOGETHER = 128  # examples, as `fedlib.engine.cohort` scores images on a CPU


class Cost(NamedTuple):
    """What a job takes.

    Attributes:
      seconds: of one core, or of a card.
      flops: operations that are counted.
      mb: megabytes of host memory.
    """

    seconds: float
    flops: float
    mb: float


def forecast(
    spec: dict, sizes: dict, rehearsed: Rehearsed, rate: dict, *, done: int = 0, batched: bool
) -> dict[str, Cost]:
    """What the jobs of a run take -> {"train": Cost, "evaluate": Cost}

    Args:
      spec: of the run.
      sizes: `fedlib.data.sizes.Sizes` as a dict.
      rate: as `fedlib.run.rates.measure` gives it.
      done: rounds of an earlier run that it goes on from.
      batched: whether clients are computed together.
    """
    own = _Owners(spec, sizes, rehearsed)
    rounds = spec["rounds"] - done
    evaluations = sum(
        number % spec["evaluate_every"] == 0 or number == spec["rounds"]
        for number in range(done + 1, spec["rounds"] + 1)
    ) + (not done)
    fold, score = own.operations("round")
    fold_once, score_once = own.operations("evaluation")
    fold, score = rounds * fold + evaluations * fold_once, rounds * score + evaluations * score_once
    last = own.operations("final")
    memory = own.megabytes(batched)
    at_last = memory + own.megabytes_at_last()
    spent = rounds * own.cohort * rate["client"]
    return {
        "train": Cost(START + spent + _seconds(fold, score, rate), fold + score, memory),
        "evaluate": Cost(START + _seconds(*last, rate), sum(last), at_last),
    }


def _seconds(fold: float, score: float, rate: dict) -> float:
    return sum(n / rate[name] for n, name in ((fold, "fold"), (score, "score")) if n)


class _Owners:
    """Who computes in a run, on how much."""

    def __init__(self, spec: dict, sizes: dict, rehearsed: Rehearsed):
        self.spec, self.rehearsed = spec, rehearsed
        self.calls = [Call(*call) for call in rehearsed.calls]
        group = np.array(sizes["group"])
        self.number = {name: int((group == name).sum()) for name in {*sizes["group"]}}
        self.owned = {
            (name, split): np.array(sizes[split])[group == name]
            for name in self.number
            for split in ("train", "val", "test")
        }
        self.cohort = max(1, int(spec["participation"].get("rate", 1.0) * self.number["seen"]))
        pool = sum(sum(sizes[split]) for split in ("train", "val", "test"))
        by_example = np.prod(sizes["shape"]) * np.dtype(sizes["dtype"]).itemsize
        self.pool = pool * float(by_example + 8 * np.prod(sizes["labels"]))

    def operations(self, phase: str) -> tuple[float, float]:
        """Of local steps and of scoring, in one phase."""
        found = {"fold": 0.0, "score": 0.0}
        for call in self.calls:
            if call.phase == phase:
                flops = call.flops + call.growth * self.number["seen"]
                found[call.what] += flops * self._examples(call)
        if phase == "final":
            tests = self.owned["seen", "test"].sum()
            found["score"] += self.rehearsed.shared_test * self.number["seen"] * float(tests)
        return found["fold"], found["score"]

    def megabytes(self, batched: bool) -> float:
        """Of a process that trains or evaluates."""
        state = self.rehearsed.shared + self.rehearsed.each * sum(self.number.values())
        model = self.rehearsed.shared + self.rehearsed.each
        clients = self.cohort * model
        together = min(self.cohort, BLOCK) if batched else 1
        # A forward pass has what memory must hold; backward ones also make gradients of weights,
        # which `clients` has.
        passes = [call.numbers for call in self.calls if call.what == "score"]
        batch = min(self.spec["local"]["batch_size"], self.owned["seen", "train"].max(initial=1))
        held = max(passes, default=0.0) * max(batch * together, SCORED_TOGETHER)
        numbers = COPIES * (state + clients) + PASSES * held
        return BASE + (self.pool + FLOAT_BYTES * numbers) / 1e6

    def megabytes_at_last(self) -> float:
        """What clients who train for the final evaluation need besides."""
        groups = {c.group for c in self.calls if (c.phase, c.what) == ("final", "fold")}
        few = self.rehearsed.finalists or max(self.number.values())
        clients = max((min(few, self.number[group]) for group in groups), default=0)
        return min(FINAL_BYTES, FLOAT_BYTES * clients * self.rehearsed.personal) / 1e6

    def _examples(self, call: Call) -> float:
        """How many a call computes on, all owners together."""
        owners = self.cohort if (call.phase, call.group) == ("round", "seen") else None
        sizes = self.owned[call.group, call.split]
        owners = self.number[call.group] if owners is None else owners
        share = call.share
        if call.phase == "final":
            share = self._finalists(call)
        if call.what == "score":
            return share * owners * float(sizes.mean())
        each = call.epochs * _used(sizes, self._size(call), self.spec["local"])
        if call.steps:
            each = call.steps * np.minimum(sizes, self._size(call))
        busy = self.rehearsed.busy if call.phase == "round" else 1.0
        return busy * share * owners * float(np.mean(each))

    def _finalists(self, call: Call) -> float:
        """The share of owners in a call of the final evaluation."""
        few, everyone = self.rehearsed.finalists, self.number[call.group]
        longer = min(self.rehearsed.brief, STOPS_AFTER) if call.what == "fold" else 1.0
        if not few or few >= everyone or call.group not in CLIENTS:
            return longer * call.share
        base = min(1.0, call.share) if call.what == "score" else 0.0
        return base + longer * (call.share - base) * few / everyone

    def _size(self, call: Call) -> int:
        return call.batch or self.spec["local"]["batch_size"]


def _used(sizes: np.ndarray, batch: int, local: dict) -> np.ndarray:
    """Examples of an epoch: without the short last batch where it is dropped."""
    if not local.get("drop_last"):
        return sizes
    return np.where(sizes >= batch, sizes // batch * batch, sizes)
