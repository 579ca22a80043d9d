"""Class means: means of some output over a client's examples of each class, sent to the server.

A client *holds* the classes that it has training examples of. It sends the server one vector for
each class that it holds; the server combines the vectors of each class into one; and it sends each
client the vectors of the classes that the client holds. Only these vectors are communicated and
counted.

Counts and masks of classes stay in host memory, so no round waits for the device.

Source: the class-wise averages of FD (Jeong et al., 2018) and FedProto (Tan et al., AAAI 2022);
section 8 of fedlib/papers/pfedmoe/README.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine import shards
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import upload
from fedlib.engine.task import Task
from fedlib.tree import Tree

EXAMPLES = 2**15  # examples whose outputs are in memory at once


class ClassMeans(NamedTuple):
    """A vector for each known class; values of other classes mean nothing."""

    values: Tensor  # [L, F] at the server, [C, L, F] at clients
    known: Tensor  # [L] bool in host memory at the server, [C, L] bool at clients

    def of(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(the vector of each label [B, F], whether it is known [B]), for ONE client."""
        y = y.long()  # an index of bytes would be a mask
        return self.values[y], self.known[y]

    def beside(self, *host: Tensor) -> tuple[Tensor, ...]:
        """Tensors of host memory, moved to the device of the values."""
        return tuple(upload(x, self.values.device) for x in host)


def empty(num_classes: int, width: int, task: Task) -> ClassMeans:
    """No class is known: the server before the first round, on `task`'s device, in its dtype."""
    values = torch.zeros(num_classes, width, dtype=task.dtype, device=task.device)
    return ClassMeans(values, torch.zeros(num_classes, dtype=torch.bool))


# -- clients ------------------------------------------------------------------------------


def counts(cohort: Cohort, num_classes: int) -> Tensor:
    """Number of training examples of each class at each client -> [C, L] int64, in host memory

    Raises:
      DataError: unless each example has one label, below `num_classes`.
    """
    found = shards.counts(cohort.data.federation, cohort.host_ids, "label", num_classes)
    return torch.from_numpy(found)


def indicator(y: Tensor, num_classes: int) -> Tensor:
    """One-hot labels -> [B, L] bool"""
    return y.unsqueeze(-1) == torch.arange(num_classes, device=y.device)


def of_clients(cohort: Cohort, fn: Callable, *per_client: Tree, counts: Tensor) -> Tensor:
    """Each client's mean of `fn(*per_client, batch) -> [B, F]` by class -> [C, L, F]

    Over all training examples, in evaluation mode; 0 for a class that a client does not hold.
    Computed for as many clients at a time as fit into memory.

    Args:
      counts: [C, L], from `counts`.
    """
    num_classes = counts.shape[1]

    def with_labels(*args: Tree) -> Tensor:
        outputs = fn(*args)
        return torch.cat([indicator(args[-1].y, num_classes).to(outputs.dtype), outputs], dim=-1)

    block, sums = max(1, EXAMPLES // max(1, int(counts.sum(1).max()))), []
    for start in range(0, cohort.size, block):
        some = slice(start, start + block)
        scores = cohort.some(some).score(with_labels, *tree.take(per_client, some))
        # Padding beyond a client's examples is 0 in both.
        labels, outputs = scores[..., :num_classes], scores[..., num_classes:]
        sums.append(torch.einsum("cnl,cnf->clf", labels, outputs))
    return means(torch.cat(sums), counts)


def means(sums: Tensor, counts: Tensor) -> Tensor:
    """Sums [C, L, F] divided by counts [C, L] in host memory; 0 where the count is 0."""
    return sums / upload(counts.clamp(min=1), sums.device).to(sums.dtype).unsqueeze(-1)


def send(cohort: Cohort, server: ClassMeans, held: Tensor) -> ClassMeans:
    """Send every client the known vectors of the classes that it holds.

    Args:
      held: [C, L] bool, in host memory.

    Returns:
      The clients' vectors: values [C, L, F], not copied, and known [C, L].
    """
    chosen = held & server.known
    values = cohort.broadcast_some(server.values, chosen)
    return ClassMeans(values, upload(chosen, values.device))


# -- server -------------------------------------------------------------------------------


def average(previous: ClassMeans, uploaded: Tensor, held: Tensor) -> ClassMeans:
    """The unweighted mean of each class's vectors over the clients that sent one.

    A class that no client sent keeps its previous vector.

    Args:
      uploaded: [C, L, F].
      held: [C, L] bool, in host memory: which vectors were sent.
    """
    sent = upload(held, uploaded.device).unsqueeze(-1)
    sums, holders = torch.where(sent, uploaded, 0).sum(0), sent.sum(0)
    values = torch.where(holders > 0, sums / holders.clamp(min=1), previous.values)
    return ClassMeans(values, previous.known | held.any(0))


def pairs(cohort: Cohort, uploaded: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors that were sent, as labelled examples by client and class: ([M, F], labels [M])

    Args:
      uploaded, held: as in `average`.
    """
    order = np.argsort(cohort.host_ids)
    rows, labels = np.nonzero(held.numpy()[order])
    positions, labels = (upload(x, uploaded.device) for x in (order[rows], labels))
    return uploaded[positions, labels], labels


# -- architectures ------------------------------------------------------------------------


def common(what: str, found: list[int]) -> int:
    """A number that all architectures must have alike; ValueError if they differ in it."""
    if len(set(found)) > 1:
        raise ValueError(f"all architectures must have the same number of {what}, got {found}")
    return found[0]
