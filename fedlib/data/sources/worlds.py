"""Synthetic federations whose best possible prediction is known for every client; no raw files.

Inputs are 20 numbers with one of two labels: x ~ N(0, I), but in "regions" two of them are swapped
so that a certain one is the largest, and in "priors" x is drawn around the means of classes. A
*concept*, which all but "priors" have, is a direction theta, with p(y = 1 | x) = sigmoid(5 theta .
x). Each world meets the assumption of a family of methods:

    own       each client has a concept of its own: local training
    one       all clients have the same concept: FedAvg
    clusters  each client has one of K concepts: clusters of clients
    mixtures  each example has a concept, drawn by its client's shares: FedEM, pFedMM
    regions   the concept depends on x, and clients visit regions unequally: gates
    priors    x given y is the same for all, but class frequencies differ: biases
    heads     the label depends on three numbers B x; B is common, weights differ: shared bodies

`truth` has p_k(y | x) of every example, so expected accuracy over the label can be computed and
compared with the best possible one, client by client.

Source: ours. W. Chen et al., "A Theorem of the Alternative for Personalized Federated Learning",
  2021 (arXiv:2103.01901), has the trade-off between `divergence` and examples in "clusters".
"""

from pathlib import Path

import numpy as np

from fedlib import streams
from fedlib.data.checks import check_choice
from fedlib.data.draws import dirichlet
from fedlib.data.examples import TEST, TRAIN, VAL, Examples, ownership

NUM_CLASSES = 2
HAS = ("classes", "owner", "part")
WORLDS = ("own", "one", "clusters", "mixtures", "regions", "priors", "heads")

DIM = 20  # numbers of an input
CONCEPTS = 3  # K of "clusters", "mixtures" and "regions"
STEEPNESS = 5.0  # of the sigmoid; the best accuracy is about 0.89
DISTANCE = 2.0  # between the means of two classes, in "priors"; best with equal classes: 0.84
RANK = 3  # rows of B, in "heads"
RAREST = 0.02  # least share of a class, in "priors"


def read(
    raw: Path,
    *,
    seed: int,
    world: str,
    num_clients: int = 50,
    train_examples: int = 60,
    val_examples: int = 15,
    test_examples: int = 200,
    divergence: float = 1.0,
    alpha: float = 0.1,
) -> Examples:
    """The examples, client by client.

    Args:
      raw: not read.
      seed: of all draws.
      world: one of `WORLDS`.
      num_clients: C, unseen ones included.
      train_examples, val_examples, test_examples: of every client.
      divergence: of the concepts of "clusters", "mixtures" and "regions": at 0 all are equal, at 1
        they are independent directions.
      alpha: Dirichlet concentration of clients' shares in "mixtures", "regions" and "priors".

    Raises:
      ConfigError: for an invalid value.
    """
    check_choice("world", world, WORLDS)

    draw = streams.generator(seed, "worlds")
    concepts, shares = _world(draw, world, num_clients, divergence, alpha)
    sizes = train_examples, val_examples, test_examples
    x = np.empty((num_clients, sum(sizes), DIM), np.float32)
    positive = np.empty(x.shape[:2])
    for client, own in enumerate(shares):
        x[client], positive[client] = _client(draw, world, concepts, own, sum(sizes))
    return Examples(
        x.reshape(-1, DIM),
        (draw.random(positive.shape) < positive).reshape(-1).astype(np.int64),
        NUM_CLASSES,
        **ownership(num_clients * sizes, TRAIN, VAL, TEST),
        cluster=shares.argmax(1) if world == "clusters" else None,
        truth=np.stack([1 - positive, positive], -1).reshape(-1, 2).astype(np.float32),
    )


def _world(draw, world, num_clients, divergence, alpha) -> tuple[np.ndarray, np.ndarray]:
    """The concepts, and each client's use of them.

    Returns:
      [K, dim], directions of length 1; and [C, K], fractions of a client's examples with each
      concept, or in "priors" [C, 2], class frequencies.
    """
    everybody = np.arange(num_clients)
    if world == "own":
        return _unit(draw, num_clients), np.eye(num_clients)
    if world == "heads":
        rows = np.linalg.qr(draw.standard_normal((DIM, RANK)))[0].T  # B, of orthonormal rows
        return _unit(draw, num_clients, RANK) @ rows, np.eye(num_clients)
    if world == "one":
        return _unit(draw, 1), np.ones((num_clients, 1))
    if world == "priors":
        shares = np.stack([dirichlet(draw, alpha, 2) for _ in everybody])
        return _unit(draw, 1), shares.clip(RAREST, 1 - RAREST)
    common, own = _unit(draw, 1), _unit(draw, CONCEPTS)
    concepts = np.sqrt(1 - divergence) * common + np.sqrt(divergence) * own
    concepts /= np.linalg.norm(concepts, axis=1, keepdims=True)
    if world == "clusters":
        return concepts, np.eye(CONCEPTS)[draw.permutation(everybody) % CONCEPTS]
    return concepts, np.stack([dirichlet(draw, alpha, CONCEPTS) for _ in everybody])


def _client(
    draw: np.random.Generator, world: str, concepts: np.ndarray, shares: np.ndarray, num: int
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [num, dim] of a client, and p_k(y = 1 | x) of each [num]"""
    x = draw.standard_normal((num, concepts.shape[1]))
    if world == "priors":
        # Two normal distributions; the ratio of their densities is exp(DISTANCE theta . x).
        side = np.where(draw.random(num) < shares[1], 0.5, -0.5)
        x += DISTANCE * side[:, None] * concepts[0]
        return x, _sigmoid(DISTANCE * (x @ concepts[0]) + np.log(shares[1] / shares[0]))
    if world == "regions":
        # Region m is where coordinate m is the largest of the first K.
        region = draw.choice(len(shares), num, p=shares)
        first = x[:, : len(shares)]
        rows, largest = np.arange(num), first.argmax(1)
        swapped = first[rows, region]
        first[rows, region], first[rows, largest] = first[rows, largest], swapped
        return x, _sigmoid(STEEPNESS * (x * concepts[region]).sum(1))
    return x, _sigmoid(STEEPNESS * (x @ concepts.T)) @ shares


def _unit(draw: np.random.Generator, num: int, dim: int = DIM) -> np.ndarray:
    """Random directions of length 1 -> [num, dim]"""
    found = draw.standard_normal((num, dim))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))
