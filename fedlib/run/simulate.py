"""Runs a method on a federation: samples cohorts, does rounds, evaluates, saves and reports."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.device import DeviceData, upload
from fedlib.engine.executors import Executor
from fedlib.engine.journal import Journal
from fedlib.engine.participation import SELECTIONS, sample
from fedlib.engine.task import set_precision
from fedlib.errors import ConfigError, DataError
from fedlib.federation import GROUPS, Federation
from fedlib.fields import Range, check
from fedlib.methods.base import Method
from fedlib.results import TOTALS, RunResult, View
from fedlib.run import checkpoint, contract, scoring
from fedlib.run.checkpoint import Checkpoints
from fedlib.run.progress import Rounds

AGGREGATIONS = ("damped", "renormalised", "gossip")
COUNTED = (*TOTALS, "server_examples")
FLOAT_BYTES = 4  # bytes per number that is sent, whatever its dtype


@dataclass(frozen=True, kw_only=True)
class Course:
    """The course of a run, whatever its method: rounds, participation and evaluations.

    Attributes:
      rounds: communication rounds.
      seed: of initial parameters, cohorts and shuffling.
      rate: fraction of the seen clients in a round, in (0, 1].
      selection: how they are drawn: "uniform", "residue" or "anchored"; see
        `fedlib.engine.participation.sample`.
      aggregation: "renormalised" or "damped" (equal at rate 1), see `Cohort.average`; or "gossip",
        a decentralised run, see `fedlib.engine.gossip`.
      edge_probability: of the graph of a decentralised run.
      evaluate_every: rounds between evaluations; round 0 and the last are always evaluated.
    """

    rounds: int
    seed: int
    rate: float = 1.0
    selection: str = "uniform"
    aggregation: str = "renormalised"
    edge_probability: float = 0.5  # FedEM scripts
    evaluate_every: int = 1

    ranges: ClassVar = {
        "rounds": Range(0),
        "seed": Range(0, 2**64, "[)"),
        **dict.fromkeys(("rate", "edge_probability"), Range(0, 1, "(]")),
        "evaluate_every": Range(1),
    }

    def __post_init__(self):
        """Raises ConfigError for invalid values."""
        check(self, {"selection": tuple(SELECTIONS), "aggregation": AGGREGATIONS}, self.ranges)
        if self.aggregation == "gossip" and self.rate != 1:
            raise ConfigError(f"rate must be 1 in a decentralised run, got {self.rate}")

    def evaluates(self, round: int) -> bool:
        """Whether there is an evaluation after `round` rounds."""
        return round % self.evaluate_every == 0 or round == self.rounds


@dataclass(frozen=True)
class Simulation:
    """A method, its data, and how to run it.

    Attributes:
      method: the method that is trained.
      data: the federation, on the device.
      course: rounds, seed and participation.
      executor: how local work is run.
    """

    method: Method
    data: DeviceData
    course: Course
    executor: Executor

    @property
    def federation(self) -> Federation:
        """The clients and their shards."""
        return self.data.federation

    def __post_init__(self):
        """Raises ValueError for a decentralised run of a method that needs a server."""
        check_gossip(self.course, self.method)

    def cohort(self, ids: np.ndarray, round: int, **more: Any) -> Cohort:
        """The clients `ids`, after `round` rounds; `more` are further fields of the cohort."""
        set_precision(self.method.task)  # another simulation may have had its own
        kind, graph = self._graph if self.course.aggregation == "gossip" else (Cohort, {})
        return kind(
            **graph,
            **more,
            task=self.method.task,
            data=self.data,
            ids=upload(ids, self.data.device),
            known_ids=ids,
            round=round,
            seed=self.course.seed,
            executor=self.executor,
            aggregation=self.course.aggregation,
            journal=Journal(),
        )

    def only(self, ids: np.ndarray, **changes: Any) -> "Simulation":
        """The same run with the seen clients `ids` alone, and a complete graph between them.

        Others become unseen: clients keep their numbers, so a state of all of them fits.

        Args:
          changes: other fields of the federation.
        """
        group = self.federation.group.copy()
        group[self.federation.ids("seen")] = GROUPS.index("unseen")
        group[ids] = GROUPS.index("seen")
        course = replace(self.course, edge_probability=1.0)
        return replace(self, data=self.data.with_fields(group=group, **changes), course=course)

    def everyone(self, group: str, round: int, **more: Any) -> Cohort | None:
        """All clients of a group, or None if it has none; see `cohort`."""
        ids = self.federation.ids(group)
        return self.cohort(ids, round, **more) if len(ids) else None

    def init(self) -> Any:
        """The method's state before the first round."""
        state = self.method.init(self.federation.num_clients, self.course.seed)
        if self.course.aggregation == "gossip":
            state = _gossip().replicate(state, self.method.shared, self.federation.num_clients)
        return state

    @cached_property
    def _graph(self) -> tuple[type, dict]:
        """(class of a decentralised run's cohorts, their further fields)."""
        gossip, seen = _gossip(), self.federation.ids("seen")
        graph = gossip.connected_graph(len(seen), self.course.edge_probability, self.course.seed)
        arrays = {"mixing": gossip.fastest(graph), "members": seen}
        device = self.data.device
        return gossip.GossipCohort, {k: torch.from_numpy(x).to(device) for k, x in arrays.items()}

    def run(
        self,
        checkpoints: Checkpoints | None = None,
        report: Callable[[str], None] = print,
        stop: Callable[[], bool] = lambda: False,
        ends: Callable[[int, "Record"], bool] = lambda done, record: False,
    ) -> tuple[Any, RunResult]:
        """(state after all rounds, everything recorded).

        Args:
          checkpoints: to resume from and to save; None keeps nothing.
          report: called with a line of progress now and then.
          stop: called after every round; True saves a checkpoint and ends the process.
          ends: called with the rounds done and the record, at the start, after every round and at
            the end; True ends the run there, with a checkpoint and an evaluation.

        Raises:
          DivergedError: as soon as a loss is not finite, in training or in an evaluation.
          DataError: if a client that trains has no training examples.
          SystemExit: with status 143, if `stop` returned True.
        """
        self._refuse_clients_without_examples()
        state, record, begun = self._begin(checkpoints, report)
        progress, room = Rounds(self.course.rounds, begun, report), None
        done, ended = begun, ends(begun, record)
        while done < self.course.rounds and not ended:
            done += 1
            if not self.method.stopped(state):
                state = self._round(state, record, done)
            room = self._room(room, report)
            if self.course.evaluates(done):
                state = self._evaluate(state, record, done)
            ended = ends(done, record)
            if progress.due(done):
                progress.tell(done, record.loss(), record.accuracies())
            stopping, last = stop(), done == self.course.rounds
            if checkpoints and not last and (stopping or ended or checkpoints.due(done)):
                checkpoints.save(done, _pack(state, record))
            if stopping and not last:
                report(f"stopped after round {done}; the same command goes on from there")
                raise SystemExit(143)
        if record.round[-1] != done:  # it ends between two evaluations
            state = self._evaluate(state, record, done)
            ends(done, record)
        return state, record.result(self, state)

    def _room(self, before: int | None, report: Callable[[str], None]) -> int | None:
        """The number of clients for which the GPU has room, None for all; reports a change."""
        now = self.executor.notes.get("chunk_halved_to")
        if now != before:
            report(
                f"the GPU has room for {now} clients at a time, and goes on with as many; fewer "
                "jobs on a card (FEDLIB_GPU_SLOTS) leave room for more"
            )
        return now

    def _refuse_clients_without_examples(self) -> None:
        seen = self.federation.ids("seen")
        empty = seen[self.federation.train.sizes[seen] == 0]
        if len(empty) and self.method.clients_train:
            raise DataError(
                f"client {empty[0]} takes part in training and has no training examples; use a "
                "partition that gives every seen client some"
            )

    def _begin(
        self, checkpoints: Checkpoints | None, report: Callable
    ) -> tuple[Any, "Record", int]:
        saved = checkpoints.load() if checkpoints else None
        state, record = self.init(), Record()
        if saved is None:
            return self._evaluate(state, record, 0), record, 0
        start, tensors = saved
        report(f"resuming after round {start}")
        return *_unpack(state, tensors), start

    def _round(self, state: Any, record: "Record", number: int) -> Any:
        course, seen = self.course, self.federation.ids("seen")
        ids = sample(seen, course.rate, course.seed, number - 1, course.selection)
        cohort = self.cohort(ids, number - 1)
        try:
            state = self.method.round(state, cohort)
        except Exception:  # a loss that is not finite may cause another error
            cohort.journal.refuse_divergence(f"in round {number}")
            raise
        record.add_round(cohort, number)
        return state

    def _evaluate(self, state: Any, record: "Record", done: int) -> Any:
        if self.method.stopped(state) and record.is_unchanged():
            record.add_evaluation(done, {view: found[-1] for view, found in record.scores.items()})
            return state
        everyone = partial(self.everyone, round=done)
        state, found = scoring.during_training(self.method, state, everyone)
        record.add_evaluation(done, found)
        return state


def check_gossip(course: Course, method: Method) -> None:
    """Raises ValueError for a decentralised run of a method that needs a server."""
    if course.aggregation == "gossip" and not method.shared:
        name = type(method).__name__
        raise ValueError(f"{name} needs a server: it cannot run with aggregation 'gossip'")


def _gossip() -> ModuleType:
    """`engine.gossip`, loaded by name, so that only decentralised runs depend on its code."""
    return importlib.import_module("fedlib.engine.gossip")


@dataclass
class Record:
    """The record of a run in progress.

    Attributes:
      round: rounds done, at each evaluation.
      counts: what is `COUNTED`, by name, at each evaluation; totals: the same, so far.
      train_loss: mean over the clients of each round, NaN if nobody trained.
      scores: of each view, at each evaluation.
    """

    round: list[int] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in COUNTED})
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    train_loss: list[float] = field(default_factory=list)
    scores: dict[View, list[scoring.ClientScores]] = field(default_factory=dict)

    def add_round(self, cohort: Cohort, number: int) -> None:
        """Add cost and losses of a round; only here a round waits for the device."""
        self.totals["bytes_down"] += FLOAT_BYTES * cohort.journal.down
        self.totals["bytes_up"] += FLOAT_BYTES * cohort.journal.up
        self.totals["examples"] += cohort.journal.examples
        self.totals["client_rounds"] += cohort.size
        self.totals["server_examples"] += sum(x.examples for x in cohort.journal.others.values())
        cohort.journal.refuse_divergence(f"in round {number}")
        if not (every := cohort.journal.losses):
            return
        # Fits of one round may be of unlike numbers of clients.
        losses = torch.cat(every) if len({*map(len, every)}) > 1 else torch.stack(every).mean(0)
        untrained = [np.nan] * (number - 1 - len(self.train_loss))
        self.train_loss += [*untrained, float(losses.double().cpu().numpy().mean())]

    def add_evaluation(self, done: int, found: dict[View, scoring.ClientScores]) -> None:
        """Add the scores after `done` rounds."""
        self.round.append(done)
        for name, total in self.totals.items():
            self.counts[name].append(total)
        for view, scores in found.items():
            self.scores.setdefault(view, []).append(scores)

    def is_unchanged(self) -> bool:
        """Whether neither clients nor server have trained since the last evaluation."""
        trained = ("examples", "server_examples")
        return all(self.counts[name][-1:] == [self.totals[name]] for name in trained)

    def result(self, simulation: Simulation, state: Any) -> RunResult:
        """Everything as arrays; see `RunResult`."""
        method, ids = simulation.method, simulation.federation.ids
        counts = {name: np.array(values, np.int64) for name, values in self.counts.items()}
        of_server = counts["server_examples"] if len(ids("server")) else None
        return RunResult(
            round=np.array(self.round, np.int64),
            scores={
                view: scoring.over_time(ids(view.group), found)
                for view, found in self.scores.items()
            },
            **{name: counts[name] for name in TOTALS},
            train_loss=np.array(self.train_loss, np.float64),
            server_examples=of_server,
            diagnostics=contract.diagnostics(method, state, simulation.federation.num_clients),
            by_round=contract.by_round(method, state),
        )

    def loss(self) -> float | None:
        """Training loss of the last round in which a client trained."""
        return self.train_loss[-1] if self.train_loss else None

    def accuracies(self) -> dict[str, float]:
        """Pooled accuracy of the default protocol on test data at the last evaluation, by group."""
        found = {group: self.scores.get(View(group, "default", "test")) for group in GROUPS}
        last = {group: scores[-1] for group, scores in found.items() if scores}
        return {group: float(x.correct.sum() / x.count.sum()) for group, x in last.items()}


def _pack(state: Any, record: Record) -> dict[str, Tensor]:
    """State and record as tensors by name."""
    packed = {f"state/{name}": leaf for name, leaf in checkpoint.flatten(state).items()}
    packed["record/round"] = torch.tensor(record.round)
    packed["record/train_loss"] = torch.tensor(record.train_loss, dtype=torch.float64)
    packed["record/totals"] = torch.tensor([record.totals[name] for name in COUNTED])
    packed["record/counts"] = torch.tensor([record.counts[name] for name in COUNTED])
    for view, found in record.scores.items():
        packed["scores/" + "/".join(view)] = torch.from_numpy(np.array(found))
    return packed


def _unpack(template: Any, packed: dict[str, Tensor]) -> tuple[Any, Record]:
    """Undo `_pack`."""

    def below(prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(prefix): v for n, v in packed.items() if n.startswith(prefix)}

    arrays = {name: value.tolist() for name, value in below("record/").items()}
    for name in ("counts", "totals"):
        arrays[name] = dict(zip(COUNTED, arrays[name], strict=True))
    record = Record(**arrays)
    for name, value in below("scores/").items():
        found = [scoring.ClientScores(*row) for row in value.numpy()]
        record.scores[View(*name.split("/"))] = found
    return checkpoint.restore(template, below("state/")), record
