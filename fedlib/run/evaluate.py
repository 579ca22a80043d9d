"""Scores of clients under a method's protocols, as raw counts."""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.device import upload
from fedlib.engine.journal import refuse_diverged
from fedlib.engine.remembered import Remembered
from fedlib.engine.task import Batch, mean_from, nll
from fedlib.federation import GROUPS, SPLITS, Federation
from fedlib.methods.base import Method
from fedlib.results import SHARED, Predictions, RunResult, Scores, View
from fedlib.run.progress import Progress

FINAL_BYTES = 4 * 2**30  # memory for what the clients of a final evaluation train at once
EVERYTHING = View("*", "*", "*")  # as a pattern of what is asked for
EXAMPLES_OF = "examples_"  # diagnostic [1]: training examples of a preparation, by its name
SETTLE = "settle"  # what final protocols have in common, among the protocols


class ClientScores(NamedTuple):
    """One evaluation of the clients of one view."""

    correct: np.ndarray  # [C] right predictions
    count: np.ndarray  # [C] examples, or labels of all examples for sequences
    loss: np.ndarray  # [C] mean negative log-likelihood; 0 for a client without examples


CohortOf = Callable[[str], Cohort | None]  # all clients of a group, or None if it has none


def score(method: Method, personal: Any, cohort: Cohort, split: str) -> ClientScores:
    """How the clients of `cohort`, prepared as `personal`, do on their examples of `split`."""
    [scores] = score_alike(method, [personal], cohort, split)
    return scores


def score_alike(
    method: Method, personals: Sequence[Any], cohort: Cohort, split: str
) -> list[ClientScores]:
    """`score` of clients that were prepared for several protocols `alike`, whose outputs are one.

    See `Method.alike`.
    """

    def judge(*personals_and_batch: Any) -> Tensor:
        *personals, batch = personals_and_batch
        if len(personals) == 1:
            return _judged(method.predict(personals[0], batch), batch)
        outputs = method.outputs(personals[0], batch)
        decided = [method.decide(personal, outputs, batch) for personal in personals]
        return torch.stack([_judged(log_probs, batch) for log_probs in decided], dim=1)

    federation = cohort.data.federation
    scores = cohort.score(judge, *personals, split=split)  # [C, N, 2], or [C, N, protocols, 2]
    each = [scores] if len(personals) == 1 else scores.unbind(2)
    examples = federation.split(split).sizes[cohort.host_ids]
    labels_per_example = math.prod(federation.y.shape[1:])

    def of_protocol(scores: Tensor) -> ClientScores:
        total = scores.contiguous().double().sum(1).cpu().numpy()
        return ClientScores(
            correct=(total[:, 0] * labels_per_example).round(),
            count=examples * labels_per_example,
            loss=total[:, 1] / np.maximum(examples, 1),
        )

    return list(map(of_protocol, each))


def _judged(log_probs: Tensor, batch: Batch) -> Tensor:
    """Share of right labels, and loss, of each example -> [B, 2]"""
    right = mean_from(1, (log_probs.argmax(-1) == batch.y).to(log_probs.dtype))
    return torch.stack([right, nll(log_probs, batch.y)], dim=-1)


def predict(method: Method, personal: Any, cohort: Cohort, split: str) -> Predictions:
    """What the clients of `cohort`, prepared as `personal`, make of their examples of `split`."""
    federation = cohort.data.federation
    found = cohort.score(method.predict, personal, split=split)
    rows = [federation.split(split).of(client) for client in cohort.host_ids]
    own = [log_probs[: len(mine)] for log_probs, mine in zip(found, rows, strict=True)]
    return Predictions(
        torch.cat(own).flatten(0, -2).float().cpu().numpy(),
        federation.y[np.concatenate(rows)].ravel().astype(np.int64),
    )


def score_shared(method: Method, personal: Any, cohort: Cohort, everyone: Cohort) -> ClientScores:
    """How the clients of `cohort` do on the test examples that `everyone` shares, all together.

    By turns: each of them predicts for the next of their owners, until it has had all.
    """
    owners = shared_owners(cohort.data.federation, everyone.host_ids)
    places = np.flatnonzero(np.isin(everyone.host_ids, cohort.host_ids))
    correct, count, loss = 0, 0, 0
    for distance in range(len(owners)):
        ids = owners[(places + distance) % len(owners)]
        others = replace(cohort, ids=upload(ids, cohort.ids.device), known_ids=ids)
        found = score(method, personal, others, "test")
        correct, count = correct + found.correct, count + found.count
        loss = loss + found.loss * found.count
    return ClientScores(correct, count, loss / np.maximum(count, 1))


def during_training(
    method: Method, state: Any, cohort_of: CohortOf
) -> tuple[Any, dict[View, ClientScores]]:
    """The state after the evaluation, and what it found on every split but the training one."""
    found = {}
    for group in GROUPS:
        cohort = cohort_of(group) if group in method.protocols else None
        if cohort is None:
            continue
        # Only what is found on the way is remembered: predictions are made once.
        seeing = replace(cohort, remembered=Remembered())
        with seeing.journal.watched(f"by round {seeing.round}, when observed"):
            state = method.observe(state, seeing, group)
        splits = held_out(cohort.data.federation, group)
        for personals in in_sets(method, prepared(method, state, seeing, group, final=False)):
            views = {View(group, protocol, split) for protocol in personals for split in splits}
            found |= scored(method, personals, cohort, cohort, views, {}) if views else ()
    return state, found


def final(
    method: Method,
    state: Any,
    cohort_of: CohortOf,
    report: Callable[[str], None] = lambda line: None,
    views: Iterable[Sequence[str]] = (EVERYTHING,),
    predictions: bool = False,
    settled: Any = None,
    known: Mapping[View, Scores] | None = None,
) -> RunResult:
    """Scores of the final state: the default protocol on what is held out, and what is asked for.

    Clients are prepared and scored in parts where a method would need much memory for all of them.
    What is not asked for is neither prepared nor scored, and is absent from the result. Diagnostics
    say on how many examples clients trained for each protocol, such as "examples_moe" [1].

    Args:
      report: gets a line of progress now and then.
      views: which (group, protocol, split) are asked for, "*" for any; what a method or federation
        does not have is left out. That of the split "shared" must be named: "*" does not mean it.
      predictions: whether what is predicted for every test example is kept as well.
      settled: see `Method.settle`.
      known: scores of this state that were found before, T = 1, of all clients of a view; they are
        not computed again.
    """
    found, known = Found(Progress(report)), known or {}
    for group in GROUPS:
        everyone = cohort_of(group) if group in method.protocols else None
        if everyone is None:
            continue
        federation = everyone.data.federation
        splits = asked(views, method, federation, group)
        finalists = np.isin(everyone.host_ids, method.finalists(federation, group)).nonzero()[0]
        for protocols, cohort in (
            (method.protocols[group], everyone),
            (method.final_protocols.get(group, {}), everyone.some(finalists)),
        ):
            only = protocols.keys() & splits.keys()
            for part in parts(cohort, method.personal_numbers()) if only else ():
                done = partial(found.count, part)
                ready = prepared(method, state, part, group, only, done, settled)
                for personals in in_sets(method, ready):
                    for protocol, personal in personals.items():
                        found.measure(part, method.measure(protocol, personal, part))
                        if predictions and "test" in splits[protocol]:
                            view = View(group, protocol, "test")
                            found.keep(view, predict(method, personal, part, "test"))
                    wanted = {View(group, p, split) for p in personals for split in splits[p]}
                    for view, scores in scored(method, personals, part, everyone, wanted, known):
                        found.add(view, part, scores, cohort.size)
    diagnostics = as_arrays(method.diagnostics(state)) | true_clusters(cohort_of)
    return found.result(cohort_of("seen").round, diagnostics)


def in_sets(method: Method, prepared: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Prepared clients by protocol: those `alike` together, at last, any other for itself."""
    alike = {}
    for protocol, personal in prepared:
        if protocol in method.alike:
            alike[protocol] = personal
        else:
            yield {protocol: personal}
    if alike:
        yield alike


def scored(
    method: Method,
    personals: dict[str, Any],
    cohort: Cohort,
    everyone: Cohort,
    views: Set[View],
    known: Mapping[View, Scores],
) -> Iterator[tuple[View, ClientScores]]:
    """Scores of those `views` of a group that clients are prepared for, see `in_sets`.

    Raises DivergedError for a loss that is not finite.
    """
    [group] = {view.group for view in views}
    for split in (*SPLITS, SHARED):
        asked = {p: View(group, p, split) for p in personals if View(group, p, split) in views}
        for view in asked.values():
            if view in known:
                yield view, of_clients(known[view], cohort.host_ids)
        new = {view: personals[p] for p, view in asked.items() if view not in known}
        if split == SHARED:
            found = [score_shared(method, own, cohort, everyone) for own in new.values()]
        else:
            found = score_alike(method, list(new.values()), cohort, split) if new else []
        for view, scores in zip(new, found, strict=True):
            when, what = f"by round {cohort.round}", f"{split} loss of {view.protocol!r}"
            refuse_diverged(scores.loss, cohort.host_ids, when, what, group=group)
            yield view, scores


def prepared(
    method: Method,
    state: Any,
    cohort: Cohort,
    group: str,
    only: Container[str] | None = None,
    done: Callable[[str], None] = lambda name: None,
    settled: Any = None,
    final: bool = True,
) -> Iterator[tuple[str, Any]]:
    """Name of each protocol of `group`, and the clients of `cohort` prepared for it, in turn.

    Args:
      only: names of the protocols; None is all of them.
      done: told the name of each preparation after it; what final protocols have in common is
        "settle".
      settled: see `Method.settle`.
      final: whether for the protocols of a final evaluation, too.
    """

    def some(protocols: dict[str, str]) -> dict[str, str]:
        return {name: way for name, way in protocols.items() if only is None or name in only}

    def each(protocols: dict[str, str], state: Any) -> Iterator[tuple[str, Any]]:
        for protocol, prepare in protocols.items():
            with cohort.journal.watched(f"by round {cohort.round}, trained for {protocol!r}"):
                personal = getattr(method, prepare)(state, cohort)
            done(protocol)
            yield protocol, personal

    yield from each(some(method.protocols[group]), state)
    if final and (later := some(method.final_protocols.get(group, {}))):
        with cohort.journal.watched(f"by round {cohort.round}, trained for {SETTLE!r}"):
            common = method.settle(state, cohort, settled)
        done(SETTLE)
        yield from each(later, common)


def asked(
    views: Iterable[Sequence[str]], method: Method, federation: Federation, group: str
) -> dict[str, list[str]]:
    """The splits on which each protocol of a group is scored at the end, by its name."""
    patterns = [("*", "default", split) for split in SPLITS if split != "train"] + [*views]

    def wanted(view: View) -> bool:
        return any(
            all(
                ours == theirs or (ours == "*" and theirs != SHARED)
                for ours, theirs in zip(pattern, view, strict=True)
            )
            for pattern in patterns
        )

    shared = [SHARED] if len(shared_owners(federation, federation.ids(group))) else []
    splits = ("train", *held_out(federation, group), *shared)
    protocols = [*method.protocols[group], *method.final_protocols.get(group, {})]
    found = {p: [split for split in splits if wanted(View(group, p, split))] for p in protocols}
    return {protocol: theirs for protocol, theirs in found.items() if theirs}


@dataclass
class Found:
    """What a final evaluation has found so far.

    Attributes:
      progress: gets a line now and then.
      parts: of each view, its clients and their scores, one part after the other.
      predicted: likewise what they predict, where that is kept.
      measured: what methods record besides, [num_clients, ...].
      examples: on which clients trained to be prepared, by protocol; "settle" is what the final
        protocols have in common.
    """

    progress: Progress
    parts: dict[View, list[tuple[np.ndarray, ClientScores]]] = field(default_factory=dict)
    predicted: dict[View, list[Predictions]] = field(default_factory=dict)
    measured: dict[str, np.ndarray] = field(default_factory=dict)
    examples: Counter[str] = field(default_factory=Counter)

    def count(self, cohort: Cohort, name: str) -> None:
        """Note what clients have trained on since the last time, for this preparation."""
        self.examples[name] += cohort.journal.examples
        cohort.journal.examples = 0

    def add(self, view: View, cohort: Cohort, scores: ClientScores, of: int) -> None:
        """Scores of a part `of` so many clients."""
        parts = self.parts.setdefault(view, [])
        parts.append((cohort.host_ids, scores))
        done = sum(len(ids) for ids, _ in parts)
        self.progress.tell(f"evaluated {view.group} {view.protocol} of {done}/{of} clients")

    def keep(self, view: View, predictions: Predictions) -> None:
        """Predictions of a part of a view's clients."""
        self.predicted.setdefault(view, []).append(predictions)

    def measure(self, cohort: Cohort, tensors: dict[str, Tensor]) -> None:
        """What the method recorded of these clients."""
        for name, values in as_arrays(tensors).items():
            shape = cohort.data.federation.num_clients, *values.shape[1:]
            everybody = self.measured.setdefault(name, np.full(shape, np.nan))
            everybody[cohort.host_ids] = values

    def result(self, round: int, diagnostics: dict[str, np.ndarray]) -> RunResult:
        """Everything, after `round` rounds; nothing was sent."""
        scores = {}
        for view, found in self.parts.items():
            ids, parts = zip(*found, strict=True)
            together = ClientScores(*map(np.concatenate, zip(*parts, strict=True)))
            scores[view] = over_time(np.concatenate(ids), [together])
        trained = {f"{EXAMPLES_OF}{x}": np.array([n]) for x, n in self.examples.items() if n}
        nothing = np.zeros(1, np.int64)
        return RunResult(
            round=np.array([round]),
            scores=scores,
            bytes_down=nothing,
            bytes_up=nothing,
            examples=nothing,
            client_rounds=nothing,
            train_loss=np.empty(0),
            diagnostics=diagnostics | self.measured | trained,
            predictions={
                view: Predictions(*map(np.concatenate, zip(*parts, strict=True)))
                for view, parts in self.predicted.items()
            },
        )


def parts(cohort: Cohort, numbers: int) -> list[Cohort]:
    """`cohort` in parts, in order, of so many clients that `numbers` for each fit into memory."""
    size = max(1, FINAL_BYTES // (cohort.task.dtype.itemsize * numbers)) if numbers else cohort.size
    positions = np.arange(cohort.size)
    return [cohort.some(positions[i : i + size]) for i in range(0, cohort.size, size)]


def true_clusters(cohort_of: CohortOf) -> dict[str, np.ndarray]:
    """The true cluster of each client [num_clients], if the federation has any."""
    cluster = cohort_of("seen").data.federation.cluster
    return {} if cluster is None else {"cluster": cluster}


def held_out(federation: Federation, group: str) -> list[str]:
    """The splits other than "train" on which the clients of `group` have examples."""
    ids = federation.ids(group)
    return [s for s in SPLITS if s != "train" and federation.split(s).sizes[ids].any()]


def shared_owners(federation: Federation, ids: np.ndarray) -> np.ndarray:
    """Who owns the test examples that the clients `ids` share: they, or else the server."""
    return next((x for x in (ids, federation.ids("server")) if federation.test.sizes[x].any()), [])


def of_clients(scores: Scores, ids: np.ndarray) -> ClientScores:
    """The last scores of some of the clients [C]."""
    place = {client: position for position, client in enumerate(scores.clients.tolist())}
    rows = [place[client] for client in ids.tolist()]
    return ClientScores(scores.correct[-1, rows], scores.count[rows], scores.loss[-1, rows])


def as_arrays(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as NumPy arrays in host memory."""
    return {name: value.cpu().numpy() for name, value in tensors.items()}


def over_time(clients: np.ndarray, found: list[ClientScores]) -> Scores:
    """T evaluations of one view as arrays [T, C]."""
    return Scores(
        clients=clients,
        count=np.asarray(found[-1].count, np.int64),
        correct=np.stack([scores.correct for scores in found]),
        loss=np.stack([scores.loss for scores in found]),
    )
