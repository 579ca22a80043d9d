"""The evaluation of a trained state, under the requested protocols and on the requested splits."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.errors import DataError
from fedlib.federation import GROUPS, Federation
from fedlib.methods.base import Method
from fedlib.results import CLIENT_NAME, OPTIMUM, SHARED, TOTALS, Predictions, RunResult, View
from fedlib.run import contract, scoring
from fedlib.run.checkpoint import Checkpoints, load_tensors, restore
from fedlib.run.scoring import ClientScores, CohortOf
from fedlib.run.simulate import Simulation
from fedlib.run_spec import RunSpec

FINAL_BYTES = 4 * 2**30  # memory for the models of the clients that are prepared together
EXAMPLES_OF = "examples_"  # diagnostic [1]: training examples of a preparation, by its name
SETTLE = "settle"  # name of the common part of final protocols, beside those of protocols
Measure = Callable[[Simulation, Any, RunResult], dict[str, float]]  # of a state, as evaluated


def predict(method: Method, personal: Any, cohort: Cohort) -> Predictions:
    """Predictions of `cohort`'s clients, prepared as `personal`, for their test examples."""
    federation = cohort.data.federation
    found = cohort.score(method.predict, personal, split="test")
    rows = [federation.test.of(client) for client in cohort.host_ids]
    own = [log_probs[: len(mine)] for log_probs, mine in zip(found, rows, strict=True)]
    return Predictions(
        torch.cat(own).flatten(0, -2).float().cpu().numpy(),
        federation.y[np.concatenate(rows)].ravel().astype(np.int64),
    )


def score_shared(method: Method, personal: Any, cohort: Cohort, everyone: Cohort) -> ClientScores:
    """Scores of `cohort`'s clients on all test examples that `everyone` shares.

    In each turn, every client predicts for another owner's examples, until it has done all owners.
    """
    owners = shared_owners(cohort.data.federation, everyone.host_ids)
    places = np.flatnonzero(np.isin(everyone.host_ids, cohort.host_ids))
    correct, count, loss = 0, 0, 0
    for distance in range(len(owners)):
        others = cohort.of(owners[(places + distance) % len(owners)])
        found = scoring.score(method, personal, others, "test")
        correct, count = correct + found.correct, count + found.count
        loss = loss + found.loss * found.count
    return ClientScores(correct, count, loss / np.maximum(count, 1))


def final(
    method: Method,
    state: Any,
    cohort_of: CohortOf,
    views: Iterable[Sequence[str]] | None = None,
    predictions: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> RunResult:
    """Scores of the final state: the default protocol on held-out splits, and the given views.

    Clients are prepared and scored in parts if a method would need much memory for all of them.
    Other views are neither prepared nor scored. Diagnostics have the number of examples on which
    clients trained for each protocol, such as "examples_moe" [1].

    Args:
      views: further (group, protocol, split) to score; None is all but those of the split "shared".
        Views that the method or federation does not have are left out.
      predictions: whether to keep predictions for all test examples.
      report: called with a line for each view of a part of the clients, as soon as it is scored.
    """
    tally = Tally()
    for group in GROUPS:
        everyone = cohort_of(group) if group in method.protocols else None
        if everyone is None:
            continue
        splits = choose_splits(views, method, everyone.data.federation, group)
        for part, names in _parts(method, everyone, group, splits.keys()):
            ready = prepare(method, state, part, group, names, partial(tally.count, part))
            for personals in scoring.in_sets(method, ready):
                tally.add(part, scoring.score_views(method, personals, part, group, splits), report)
                for protocol, personal in personals.items():
                    if "test" in splits[protocol]:
                        tally.measure(part, method.measure(protocol, personal, part))
                        if predictions:
                            kept = tally.predicted.setdefault(View(group, protocol, "test"), [])
                            kept.append(predict(method, personal, part))
                    if SHARED in splits[protocol]:
                        found = score_shared(method, personal, part, everyone)
                        tally.add(part, [(View(group, protocol, SHARED), found)], report)
    seen = cohort_of("seen")
    diagnostics = contract.diagnostics(method, state, seen.data.federation.num_clients)
    return tally.result(seen.round, diagnostics | client_facts(cohort_of))


def _parts(
    method: Method, everyone: Cohort, group: str, wanted: Set[str]
) -> Iterator[tuple[Cohort, Set[str]]]:
    """(some of the clients of `group`, protocols for which to prepare them), part by part.

    All clients are prepared for the `wanted` of `protocols`, then the finalists for those of
    `final_protocols`.
    """
    finalists = method.finalists(everyone.data.federation, group)
    last = everyone.some(np.isin(everyone.host_ids, finalists).nonzero()[0])
    later = method.final_protocols.get(group, {})
    for protocols, cohort in ((method.protocols[group], everyone), (later, last)):
        if names := protocols.keys() & wanted:
            for part in split_cohort(cohort, method.personal_numbers()):
                yield part, names


def prepare(
    method: Method,
    state: Any,
    cohort: Cohort,
    group: str,
    only: Container[str] | None = None,
    done: Callable[[str], None] = lambda name: None,
) -> Iterator[tuple[str, Any]]:
    """(protocol of `group`, clients of `cohort` prepared for it), one after the other.

    Args:
      only: names of the protocols; None is all of them.
      done: called with the name of each preparation when it is finished; that of the common part of
        final protocols is "settle".
    """

    def each(protocols: dict[str, str], state: Any) -> Iterator[tuple[str, Any]]:
        wanted = {p: way for p, way in protocols.items() if only is None or p in only}
        for protocol, personal in scoring.prepare(method, state, cohort, wanted):
            done(protocol)
            yield protocol, personal

    yield from each(method.protocols[group], state)
    later = method.final_protocols.get(group, {})
    if any(only is None or protocol in only for protocol in later):
        with cohort.journal.watch(f"by round {cohort.round}, trained for {SETTLE!r}"):
            common = method.settle(state, cohort)
        done(SETTLE)
        yield from each(later, common)


def choose_splits(
    views: Iterable[Sequence[str]] | None, method: Method, federation: Federation, group: str
) -> dict[str, list[str]]:
    """The splits on which each protocol of a group is scored at the end, by protocol."""
    held = scoring.other_splits(federation, group)
    shared = [SHARED] if len(shared_owners(federation, federation.ids(group))) else []
    protocols = [*method.protocols[group], *method.final_protocols.get(group, {})]
    found = dict.fromkeys(protocols, ["train", *held])
    if views is not None:
        asked = {("default", split) for split in held}
        asked |= {(protocol, split) for named, protocol, split in views if named == group}
        every = ("train", *held, *shared)
        found = {name: [x for x in every if (name, x) in asked] for name in protocols}
    return {protocol: theirs for protocol, theirs in found.items() if theirs}


@dataclass
class Tally:
    """The results of a final evaluation so far.

    Attributes:
      parts: of each view, its clients and their scores, part by part.
      predicted: of each view, predictions part by part, if they are kept.
      measured: further numbers of the method (`Method.measure`), [num_clients, ...].
      examples: number on which clients trained for each protocol; "settle" stands for the common
        part of final protocols.
    """

    parts: dict[View, list[tuple[np.ndarray, ClientScores]]] = field(default_factory=dict)
    predicted: dict[View, list[Predictions]] = field(default_factory=dict)
    measured: dict[str, np.ndarray] = field(default_factory=dict)
    examples: Counter[str] = field(default_factory=Counter)

    def count(self, cohort: Cohort, name: str) -> None:
        """Add the examples of training since the last call to the preparation `name`."""
        self.examples[name] += cohort.journal.examples
        cohort.journal.examples = 0

    def add(
        self,
        cohort: Cohort,
        found: Iterable[tuple[View, ClientScores]],
        report: Callable[[str], None],
    ) -> None:
        """Add the scores of a part of the views' clients, and report each.

        Raises:
          DivergedError: for a loss that is not finite.
        """
        for view, scores in found:
            scoring.check_finite(view, scores, cohort)
            self.parts.setdefault(view, []).append((cohort.host_ids, scores))
            right = scores.correct.sum() / max(scores.count.sum(), 1)
            report(f"{'/'.join(view)}: {right:.1%} right, {cohort.size} clients")

    def measure(self, cohort: Cohort, tensors: dict[str, Tensor]) -> None:
        """Add further numbers of the method for these clients."""
        for name, values in scoring.as_arrays(tensors).items():
            shape = cohort.data.federation.num_clients, *values.shape[1:]
            self.measured.setdefault(name, np.full(shape, np.nan))[cohort.host_ids] = values

    def result(self, round: int, diagnostics: dict[str, np.ndarray]) -> RunResult:
        """All results, after `round` rounds, without traffic."""
        scores = {}
        for view, found in self.parts.items():
            ids, parts = zip(*found, strict=True)
            together = ClientScores(*map(np.concatenate, zip(*parts, strict=True)))
            scores[view] = scoring.over_time(np.concatenate(ids), [together])
        trained = {f"{EXAMPLES_OF}{x}": np.array([n]) for x, n in self.examples.items() if n}
        return RunResult(
            round=np.array([round]),
            scores=scores,
            **dict.fromkeys(TOTALS, np.zeros(1, np.int64)),
            train_loss=np.empty(0),
            diagnostics=diagnostics | self.measured | trained,
            predictions={
                view: Predictions(*map(np.concatenate, zip(*parts, strict=True)))
                for view, parts in self.predicted.items()
            },
        )


def split_cohort(cohort: Cohort, numbers: int) -> list[Cohort]:
    """`cohort` in parts, in order; `numbers` for each client of a part fit into `FINAL_BYTES`."""
    most = FINAL_BYTES // (cohort.task.dtype.itemsize * numbers) if numbers else cohort.size
    size = max(1, most)  # there may be no client
    return [cohort.some(slice(i, i + size)) for i in range(0, cohort.size, size)]


def client_facts(cohort_of: CohortOf) -> dict[str, np.ndarray]:
    """Cluster, best possible accuracy and name of each client [num_clients], if they are known."""
    federation = cohort_of("seen").data.federation
    found = {"cluster": federation.cluster, OPTIMUM: federation.optimum}
    found[CLIENT_NAME] = federation.client_name
    return {name: values for name, values in found.items() if values is not None}


def shared_owners(federation: Federation, ids: np.ndarray) -> np.ndarray:
    """Owners of the test examples that the clients `ids` share: these clients, or the server.

    Nobody, if neither has test examples.
    """
    for owners in (ids, federation.ids("server")):
        if federation.test.sizes[owners].any():
            return owners
    return ids[:0]


def evaluate_state(
    simulation: Simulation,
    spec: RunSpec,
    provenance: dict,
    *,
    state_file: Path,
    history_file: Path,
    measure: Measure = lambda simulation, state, evaluation: {},
    spent: Callable[[], dict] = dict,
    report: Callable[[str], None] = lambda line: None,
    checkpoints: Callable[[], Checkpoints | None] = lambda: None,
) -> RunResult:
    """Scores of a trained state under the requested protocols, on the requested splits.

    Args:
      spec: the run's specification, with "views" and "predictions"; see `final`.
      measure: measures further diagnostics of the state, by name.
      spent: returns the time and memory of the job; called at the end; see `fedlib.run.usage`.
      report: see `final`.
      checkpoints: see `Cohort`.

    Raises:
      DataError: if a state is damaged, or was not trained from `spec` on the shards of
        `provenance`.
    """
    history = _history(history_file, spec, provenance)
    state_sha256 = history.provenance["state_sha256"]
    state = restore(simulation.init(), load_tensors(state_file, state_sha256))
    rounds, views = simulation.course.rounds, spec.views or ()
    everyone = partial(simulation.everyone, round=rounds, checkpoints=checkpoints)
    result = final(simulation.method, state, everyone, views, bool(spec.predictions), report)
    measured = {k: np.array([x]) for k, x in measure(simulation, state, result).items()}
    about = provenance | {"state_sha256": state_sha256, "spent": spent()}
    found = result.diagnostics | measured
    return replace(result, spec=spec.to_json(), provenance=about, diagnostics=found)


def _history(file: Path, spec: RunSpec, provenance: dict) -> RunResult:
    """The history of the training; DataError if it has another specification or other shards."""
    history = RunResult.load(file)
    if history.spec != spec.training().to_json():
        raise DataError(
            f"{file} was written for another run specification; train again, "
            "or evaluate with the specification it was trained with"
        )
    if provenance.get("manifest_sha256") != history.provenance.get("manifest_sha256"):
        raise DataError(f"{file} was trained on other shards than are given; train again")
    return history
