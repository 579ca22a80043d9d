"""Time and memory of the jobs of a run, computed from its rehearsal and a rate.

Operations per example (`fedlib.forecast.rehearsal`) times the examples of the federation
(`fedlib.data.sizes`, or its manifest), divided by the operations that this machine does in a second
with such a model (`fedlib.forecast.rates`).

Not included: computations of the server other than local steps, and reading and writing files.
"""

import os
from collections.abc import Sequence

import numpy as np
import torch

from fedlib.data.sizes import Sizes
from fedlib.engine import scratch
from fedlib.engine.choice import BLOCK
from fedlib.engine.cohort import CACHED_IMAGES, EVALUATION_BATCH
from fedlib.engine.participation import cohort_size
from fedlib.engine.parts import slices
from fedlib.environment import memory
from fedlib.federation import CLIENTS
from fedlib.forecast.estimates import Estimate
from fedlib.forecast.rates import Rate
from fedlib.forecast.rehearsed import Kind, Part, Phase, Rehearsed
from fedlib.run.evaluate import FINAL_BYTES

START = 4.0  # seconds of a job before it computes: import of PyTorch, reading of the federation
# Epochs until clients stop early, if more are allowed: the mean of FedMix's autoencoders at scale
# full (of at most 200); Adaptive Experts' clients need no fewer (of at most 26 at scale reduced).
STOPS_AFTER = 25
BASE = 600  # MB of an idle process with PyTorch
FLOAT_BYTES = 4
COPIES = 3  # of models, of the server and of clients that train: before, between, after
# Of models that all clients of a round send at once, besides those that they change: differences,
# and memory that was freed and is kept by the C library, as measured with Clustered FL.
COPIES_SENT = 3
PASSES = 3  # times the results of matrix products, for values between them and gradients


def costs(
    spec: dict, sizes: Sizes, rehearsed: Rehearsed, rate: Rate, *, batched: bool
) -> dict[str, Estimate]:
    """The costs of the jobs of a run -> {"train": Estimate, "evaluate": Estimate}

    Args:
      spec: of the run.
      sizes: of its federation.
      rate: of its model on this machine.
      batched: whether clients are batched.
    """
    owners = _Owners(spec, sizes, rehearsed)
    rounds = spec["rounds"]
    evaluations = 1 + -(-rounds // spec["evaluate_every"])
    by_round, by_evaluation = map(owners.operations, (Phase.ROUND, Phase.EVALUATION))
    training = {kind: rounds * by_round[kind] + evaluations * by_evaluation[kind] for kind in Kind}
    final = owners.operations(Phase.FINAL)
    besides = rounds * owners.cohort * rate.client
    return {
        "train": Estimate(
            START + besides + _seconds(training, rate),
            sum(training.values()),
            owners.megabytes_of_training(batched),
        ),
        "evaluate": Estimate(
            START + _seconds(final, rate),
            sum(final.values()),
            owners.megabytes_of_evaluation(batched),
        ),
    }


def _seconds(operations: dict[Kind, float], rate: Rate) -> float:
    return sum(number / rate.of(kind) for kind, number in operations.items() if number)


class _Owners:
    """The owners of a run's data, and the size of their work.

    Attributes:
      number: number of owners in each group.
      owned: number of examples of each owner, by group and split.
      cohort: number of clients in a round.
    """

    def __init__(self, spec: dict, sizes: Sizes, rehearsed: Rehearsed):
        self.spec, self.rehearsed = spec, rehearsed
        group = np.array(sizes.group)
        self.number = {name: int((group == name).sum()) for name in {*sizes.group}}
        self.owned = {
            (name, split): np.array(getattr(sizes, split))[group == name]
            for name in self.number
            for split in ("train", "val", "test")
        }
        self.cohort = cohort_size(spec["participation"].get("rate", 1.0), self.number["seen"])
        examples = sum(sizes.train) + sum(sizes.val) + sum(sizes.test)
        by_example = np.prod(sizes.shape) * np.dtype(sizes.dtype).itemsize
        label = np.prod(sizes.labels) if sizes.labels else 8  # bytes; labels of texts are uint8
        self._scored = CACHED_IMAGES if len(sizes.shape) == 3 else EVALUATION_BATCH
        self._pool_bytes = examples * float(by_example + label)

    def operations(self, phase: Phase) -> dict[Kind, float]:
        """Operations of local steps and of scoring in one phase."""
        operations = dict.fromkeys(Kind, 0.0)
        for kind in Kind:
            for part, load in self.rehearsed.of(phase, kind):
                by_example = load.flops + load.growth * self.number["seen"]
                share = load.share + load.lasting * (self.spec["rounds"] - 1)
                operations[kind] += by_example * self._examples(part, share)
        if phase == Phase.FINAL:
            tests = float(self.owned["seen", "test"].sum())
            operations[Kind.SCORE] += self.rehearsed.shared_test * self.number["seen"] * tests
        return operations

    def megabytes_of_training(self, batched: bool) -> float:
        """Memory of a process that trains."""
        done, whole = self.rehearsed, self.rehearsed.whole
        models = torch.zeros(1).expand(self.cohort, int(done.carried))  # no memory
        together = self._together(batched)
        part = self.cohort if whole else slices(models, self.cohort, together)[0].stop
        kept = 0.0
        if not self._keeps_in_file():  # old and new values; models of all clients are the new ones
            kept = sum(number * done.each[group] for group, number in self.number.items())
            kept += 0 if whole else self.cohort * done.each["seen"]
        model = done.carried + COPIES_SENT * done.sent if whole else COPIES * done.carried
        phases = Phase.ROUND, Phase.EVALUATION
        return self._megabytes(COPIES * done.shared + kept + part * model, phases, together)

    def megabytes_of_evaluation(self, batched: bool) -> float:
        """Memory of a process that evaluates; it maps what clients keep from the state's file."""
        groups = {part.group for part, _ in self.rehearsed.of(Phase.FINAL, Kind.FOLD)}
        most = self.rehearsed.finalists or max(self.number.values())
        clients = max((min(most, self.number[group]) for group in groups), default=0)
        finalists = min(FINAL_BYTES / FLOAT_BYTES, clients * self.rehearsed.personal)
        numbers, together = COPIES * self.rehearsed.shared + finalists, self._together(batched)
        return self._megabytes(numbers, [Phase.FINAL], together)

    def _together(self, batched: bool) -> int:
        """Clients that are computed at the same time."""
        return min(self.cohort, BLOCK) if batched else 1

    def _keeps_in_file(self) -> bool:
        """Whether what clients keep between rounds is in a file, see `fedlib.engine.scratch`."""
        of_all = 2 * FLOAT_BYTES * sum(self.number.values()) * self.rehearsed.largest
        return of_all > scratch.ROOM_SHARE * memory() / (os.cpu_count() or 1)

    def _megabytes(self, numbers: float, phases: Sequence[Phase], together: int) -> float:
        """Memory of a process with so many numbers, besides the results of its passes."""
        batch = min(self.spec["local"]["batch_size"], self.owned["seen", "train"].max(initial=1))
        examples = {Kind.FOLD: batch * together, Kind.SCORE: self._scored}
        most = max(
            (
                x.numbers * examples[part.kind]
                for part, x in self.rehearsed.loads.items()
                if part.phase in phases
            ),
            default=0.0,
        )
        return BASE + (self._pool_bytes + FLOAT_BYTES * (numbers + PASSES * most)) / 1e6

    def _examples(self, part: Part, share: float) -> float:
        """Number of examples in a part, with repeats, of all owners together."""
        sampled = (part.phase, part.group) == (Phase.ROUND, "seen")
        owners = self.cohort if sampled else self.number[part.group]
        sizes = self.owned[part.group, part.split]
        if part.phase == Phase.FINAL:
            share = self._of_finalists(part, share)
        if part.kind == Kind.SCORE:
            return share * owners * float(sizes.mean())
        batch = part.batch or self.spec["local"]["batch_size"]
        each = part.epochs * _used(sizes, batch, self.spec["local"])
        if part.steps:
            each = part.steps * np.minimum(sizes, batch)
        busy = self.rehearsed.busy if part.phase == Phase.ROUND else 1.0
        return busy * share * owners * float(np.mean(each))

    def _of_finalists(self, part: Part, share: float) -> float:
        """Share of owners in a part of the final evaluation, times its number of epochs."""
        most, everyone = self.rehearsed.finalists, self.number[part.group]
        epochs = min(self.rehearsed.brief, STOPS_AFTER) if part.kind == Kind.FOLD else 1.0
        if not most or most >= everyone or part.group not in CLIENTS:
            return epochs * share
        by_all = min(1.0, share) if part.kind == Kind.SCORE else 0.0
        return by_all + epochs * (share - by_all) * most / everyone


def _used(sizes: np.ndarray, batch: int, local: dict) -> np.ndarray:
    """Examples of an epoch, without a short last batch that is dropped."""
    if not local.get("drop_last"):
        return sizes
    return np.where(sizes >= batch, sizes // batch * batch, sizes)
