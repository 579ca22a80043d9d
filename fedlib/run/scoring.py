"""Scores of clients under a method's protocols, as raw counts; the evaluation during training."""

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib.engine.cohort import Cohort
from fedlib.engine.journal import refuse_divergence
from fedlib.engine.task import Batch, mean_from, nll
from fedlib.errors import ConfigError
from fedlib.federation import GROUPS, SPLITS, Federation
from fedlib.methods.base import Method
from fedlib.results import CLIENT_COLUMNS, CLIENT_NAME, OPTIMUM, TOTALS, Scores, View


class ClientScores(NamedTuple):
    """One evaluation of the clients of one view."""

    correct: np.ndarray  # [C] right predictions; as in `fedlib.results.Scores`
    count: np.ndarray  # [C] examples, or labels of all examples for sequences
    loss: np.ndarray  # [C] mean negative log-likelihood; 0 for a client without examples


# Names of costs, and of columns that the tables of clients have of every method.
TAKEN = {*TOTALS, "bytes", "server_examples", "server_parameters", "train_loss"}
TAKEN |= {*CLIENT_COLUMNS, CLIENT_NAME, OPTIMUM, "brier", "cluster", "partition"}
RESERVED = "[/:]|^examples_|^flops_"  # in names; the last two begin costs of preparing clients
CohortOf = Callable[[str], Cohort | None]  # all clients of a group, or None if it has none


def score(method: Method, personal: Any, cohort: Cohort, split: str) -> ClientScores:
    """Scores of `cohort`'s clients, prepared as `personal`, on their examples of `split`."""
    [scores] = score_alike(method, [personal], cohort, split)
    return scores


def score_alike(
    method: Method, personals: Sequence[Any], cohort: Cohort, split: str
) -> list[ClientScores]:
    """Scores of clients under several protocols that share their outputs; see `Method.alike`.

    Args:
      personals: the prepared clients, one for each protocol.
    """
    federation = cohort.data.federation
    known = federation.truth is not None and split == "test"

    def judge(*personals_and_batch: Any) -> Tensor:
        *personals, batch = personals_and_batch
        if len(personals) == 1:
            decided = [method.predict(personals[0], batch)]
        else:
            outputs = method.outputs(personals[0], batch)
            decided = [method.decide(personal, outputs, batch) for personal in personals]
        return torch.stack([_judge_batch(log_probs, batch, known) for log_probs in decided], dim=1)

    scores = cohort.score(judge, *personals, split=split)  # [C, N, protocols, 2]
    examples = federation.split(split).sizes[cohort.host_ids]
    labels_per_example = math.prod(federation.y.shape[1:])

    def of_protocol(scores: Tensor) -> ClientScores:
        total = scores.contiguous().double().sum(1).cpu().numpy()
        correct = (total[:, 0] * labels_per_example).round()
        if known:
            correct = _num_right(federation, cohort.host_ids, scores[..., 0].cpu().numpy(), split)
        count = examples * labels_per_example
        return ClientScores(correct, count, loss=total[:, 1] / np.maximum(examples, 1))

    return list(map(of_protocol, scores.unbind(2)))


def _judge_batch(log_probs: Tensor, batch: Batch, known: bool) -> Tensor:
    """(share of right labels, or predicted label if the truth is `known`; loss) -> [B, 2]"""
    said = log_probs.argmax(-1)
    judged = said if known else mean_from(1, (said == batch.y).to(log_probs.dtype))
    return torch.stack([judged.to(log_probs.dtype), nll(log_probs, batch.y)], dim=-1)


def _num_right(federation: Federation, ids: np.ndarray, said: np.ndarray, split: str) -> np.ndarray:
    """Expected number of right labels among the predicted ones `said` [C, N] -> [C]"""
    rows = [federation.split(split).of(client) for client in ids]
    pairs = zip(rows, said.astype(np.int64), strict=True)
    right = [federation.truth[own, row[: len(own)]] for own, row in pairs]
    return np.array([each.sum(dtype=np.float64) for each in right])


def during_training(
    method: Method, state: Any, cohort_of: CohortOf
) -> tuple[Any, dict[View, ClientScores]]:
    """(state after the evaluation, scores on every split but the training one)."""
    found = {}
    for group in GROUPS:
        cohort = cohort_of(group) if group in method.protocols else None
        if cohort is None:
            continue
        with cohort.journal.watch(f"by round {cohort.round}, when observed"):
            state = method.observe(state, cohort, group)
        protocols = method.protocols[group]
        splits = dict.fromkeys(protocols, other_splits(cohort.data.federation, group))
        for personals in in_sets(method, prepare(method, state, cohort, protocols)):
            for view, scores in score_views(method, personals, cohort, group, splits):
                check_finite(view, scores, cohort)
                found[view] = scores
    return state, found


def prepare(
    method: Method, state: Any, cohort: Cohort, protocols: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """(protocol, clients of `cohort` prepared for it), one after the other.

    Args:
      protocols: names of the functions that prepare clients; see `Method.protocols`.
    """
    for protocol, prepare in protocols.items():
        with cohort.journal.watch(f"by round {cohort.round}, trained for {protocol!r}"):
            personal = getattr(method, prepare)(state, cohort)
        yield protocol, personal


def in_sets(method: Method, prepared: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Prepared clients by protocol: each protocol alone, and at the end those `alike` together."""
    alike = {}
    for protocol, personal in prepared:
        if protocol in method.alike:
            alike[protocol] = personal
        else:
            yield {protocol: personal}
    if alike:
        yield alike


def score_views(
    method: Method,
    personals: Mapping[str, Any],
    cohort: Cohort,
    group: str,
    splits: Mapping[str, Container[str]],
) -> Iterator[tuple[View, ClientScores]]:
    """Scores of clients of `group` on their own examples of the `splits` of each protocol.

    Args:
      personals: the prepared clients, by protocol; see `in_sets`.
    """
    for split in SPLITS:
        asked = {View(group, p, split): own for p, own in personals.items() if split in splits[p]}
        found = score_alike(method, list(asked.values()), cohort, split) if asked else []
        yield from zip(asked, found, strict=True)


def check_finite(view: View, scores: ClientScores, cohort: Cohort) -> None:
    """Raises DivergedError for a loss that is not finite."""
    when, what = f"by round {cohort.round}", f"{view.split} loss of {view.protocol!r}"
    refuse_divergence(scores.loss, cohort.host_ids, when, what, group=view.group)


def other_splits(federation: Federation, group: str) -> list[str]:
    """The splits other than "train" on which the clients of `group` have examples."""
    ids = federation.ids(group)
    return [s for s in SPLITS if s != "train" and federation.split(s).sizes[ids].any()]


def as_arrays(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as NumPy arrays in host memory.

    Raises:
      ConfigError: for a name that HDF5 files cannot have, or that metrics would take for a cost of
        the run, a number of a view or another column of clients.
    """
    if odd := [name for name in tensors if not name or name in TAKEN or re.search(RESERVED, name)]:
        raise ConfigError(
            f"what a method records may not be called {odd[0]!r}; avoid '/' and ':', and names of "
            "costs, such as train_loss or examples_..., and of columns of all runs, such as cluster"
        )
    return {name: torch.as_tensor(value).cpu().numpy() for name, value in tensors.items()}


def over_time(clients: np.ndarray, found: list[ClientScores]) -> Scores:
    """T evaluations of one view as `Scores`."""
    return Scores(
        clients=clients,
        count=np.asarray(found[-1].count, np.int64),
        correct=np.stack([scores.correct for scores in found]),
        loss=np.stack([scores.loss for scores in found]),
    )
