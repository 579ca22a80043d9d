"""Scores of clients under a method's protocols, as raw counts."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.cohort import Cohort
from fedlib.federation import GROUPS, SPLITS, Federation
from fedlib.methods.base import Method
from fedlib.personal import some_of
from fedlib.results import RunResult, Scores, View
from fedlib.task import Batch, mean_from, nll

FINAL_BYTES = 4 * 2**30  # memory for what the clients of a final evaluation train at once
PROGRESS_SECONDS = 10.0  # between two lines


class ClientScores(NamedTuple):
    """One evaluation of the clients of one view."""

    correct: np.ndarray  # [C] right predictions
    count: np.ndarray  # [C] examples, or labels of all examples for sequences
    loss: np.ndarray  # [C] mean negative log-likelihood; 0 for a client without examples


CohortOf = Callable[[str], Cohort | None]  # all clients of a group, or None if it has none


def score(method: Method, personal: Any, cohort: Cohort, split: str) -> ClientScores:
    """How the clients of `cohort`, prepared as `personal`, do on their examples of `split`."""

    def judge(personal: Any, batch: Batch) -> Tensor:
        log_probs = method.predict(personal, batch)
        right = mean_from(1, (log_probs.argmax(-1) == batch.y).to(log_probs.dtype))
        return torch.stack([right, nll(log_probs, batch.y)], dim=-1)

    federation = cohort.data.federation
    scores = cohort.score(judge, personal, split=split).double().sum(1).cpu().numpy()
    examples = federation.split(split).sizes[cohort.ids.cpu().numpy()]
    labels_per_example = math.prod(federation.y.shape[1:])
    return ClientScores(
        correct=(scores[:, 0] * labels_per_example).round(),
        count=examples * labels_per_example,
        loss=scores[:, 1] / np.maximum(examples, 1),
    )


def during_training(
    method: Method, state: Any, cohort_of: CohortOf
) -> tuple[Any, dict[View, ClientScores]]:
    """The state after the evaluation, and what it found on every split but the training one."""
    found = {}
    for group in GROUPS:
        cohort = cohort_of(group) if group in method.protocols else None
        if cohort is None:
            continue
        state = method.observe(state, cohort, group)
        for protocol, prepare in method.protocols[group].items():
            personal = getattr(method, prepare)(state, cohort)
            for split in held_out(cohort.data.federation, group):
                found[View(group, protocol, split)] = score(method, personal, cohort, split)
    return state, found


def final(
    method: Method,
    state: Any,
    cohort_of: CohortOf,
    report: Callable[[str], None] = lambda line: None,
) -> RunResult:
    """Every protocol of the method on every split, for the final state.

    Clients are prepared and scored in parts where a method would need much memory for all of them.

    Args:
      report: gets a line of progress now and then.
    """
    scores, measured = {}, {}
    progress = Progress(report)
    for group in GROUPS:
        cohort = cohort_of(group) if group in method.protocols else None
        if cohort is None:
            continue
        found: dict[View, list[ClientScores]] = {}
        for part in parts(cohort, method.personal_numbers()):
            for protocol, personal in prepared(method, state, part, group):
                for split in ("train", *held_out(cohort.data.federation, group)):
                    view = View(group, protocol, split)
                    found.setdefault(view, []).append(score(method, personal, part, split))
                    done = sum(len(scored.count) for scored in found[view])
                for name, values in as_arrays(method.measure(protocol, personal, part)).items():
                    shape = cohort.data.federation.num_clients, *values.shape[1:]
                    everybody = measured.setdefault(name, np.full(shape, np.nan))
                    everybody[part.host_ids] = values
                progress.tell(f"evaluated {group} {protocol} of {done}/{cohort.size} clients")
        for view, scored in found.items():
            together = ClientScores(*map(np.concatenate, zip(*scored, strict=True)))
            scores[view] = over_time(cohort.ids.cpu().numpy(), [together])
    nothing = np.zeros(1, np.int64)
    return RunResult(
        round=np.array([cohort_of("seen").round]),
        scores=scores,
        bytes_down=nothing,
        bytes_up=nothing,
        examples=nothing,
        client_rounds=nothing,
        train_loss=np.empty(0),
        diagnostics=as_arrays(method.diagnostics(state)) | measured | true_clusters(cohort_of),
    )


def prepared(method: Method, state: Any, cohort: Cohort, group: str) -> Iterator[tuple[str, Any]]:
    """Name of each protocol of `group`, and the clients of `cohort` prepared for it, in turn."""
    for protocol, prepare in method.protocols[group].items():
        yield protocol, getattr(method, prepare)(state, cohort)
    if method.final_protocols.get(group):
        settled = method.settle(state, cohort)
        for protocol, prepare in method.final_protocols[group].items():
            yield protocol, getattr(method, prepare)(settled, cohort)


def parts(cohort: Cohort, numbers: int) -> list[Cohort]:
    """`cohort` in parts, in order, of so many clients that `numbers` for each fit into memory."""
    size = max(1, FINAL_BYTES // (cohort.task.dtype.itemsize * numbers)) if numbers else cohort.size
    positions = np.arange(cohort.size)
    return [some_of(cohort, positions[i : i + size]) for i in range(0, cohort.size, size)]


@dataclass
class Progress:
    """A line of progress, unless the last one is only moments old."""

    report: Callable[[str], None]
    told: float = field(default_factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Report `line`."""
        now = time.monotonic()
        if now - self.told >= PROGRESS_SECONDS:
            self.told = now
            self.report(line)


def true_clusters(cohort_of: CohortOf) -> dict[str, np.ndarray]:
    """The true cluster of each client [num_clients], if the federation has any."""
    cluster = cohort_of("seen").data.federation.cluster
    return {} if cluster is None else {"cluster": cluster}


def held_out(federation: Federation, group: str) -> list[str]:
    """The splits other than "train" on which the clients of `group` have examples."""
    ids = federation.ids(group)
    return [s for s in SPLITS if s != "train" and federation.split(s).sizes[ids].any()]


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
