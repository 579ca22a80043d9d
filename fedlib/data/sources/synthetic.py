"""A synthetic federation of clients that mix the same few linear classifiers; no raw files.

Client k has its own mixture weights pi_k. An example of component m has x ~ U(-1, 1)^dim, and the
label of a logistic regression with that component's weights and noise on the logit.

Source: FedEM (Marfoq et al., NeurIPS 2021), synthetic data set of the official code; pFedMM's
  README, section 3.10. The order of draws from NumPy's legacy generator is kept up to the examples.
Deviation: every example has the label of its own component. The official code never moves to the
  next block of examples: each component overwrites the labels of the first block, and all other
  labels stay 0.
"""

from pathlib import Path

import numpy as np

from fedlib.data.draws import dirichlet
from fedlib.data.examples import TEST, TRAIN, Examples, ownership

NUM_CLASSES = 2
HAS = ("classes", "owner", "part")

# pFedMM's README, section 3.10: n_k = min(int(LogNormal(4, 2)) + 50, 1000); noise of the logit.
SIZE_LOG_MEAN, SIZE_LOG_STD = 4, 2
SMALLEST, LARGEST = 50, 1000
NOISE = 0.1


def read(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 300,
    num_components: int = 3,
    dim: int = 150,
    test_size: int = 5000,
    alpha: float = 0.4,
) -> Examples:
    """The examples, client by client; the defaults are those of pFedMM's README, 3.2.

    Args:
      raw: not read.
      seed: of all draws.
      num_clients: C, unseen ones included.
      num_components: linear classifiers.
      dim: of an input.
      test_size: test examples of every client.
      alpha: Dirichlet concentration of a client's mixture weights.
    """
    draw = np.random.RandomState(seed)
    sizes = train_sizes(draw, num_clients)
    weights = [dirichlet(draw, alpha, num_components) for _ in range(num_clients)]
    theta = draw.uniform(-1, 1, (num_components, dim))
    counts = np.array([num for size in sizes for num in (size, test_size)])
    ends = np.cumsum(counts)  # of the training and test examples of client 0, 1, ...
    x, y = np.empty((ends[-1], dim), np.float32), np.empty(ends[-1], np.int64)
    for number, (count, end) in enumerate(zip(counts, ends, strict=True)):
        rows = slice(end - count, end)
        x[rows], y[rows] = _examples(draw, count, weights[number // 2], theta)
    return Examples(x, y, NUM_CLASSES, **ownership(counts, TRAIN, TEST))


def train_sizes(draw: np.random.RandomState, num_clients: int) -> np.ndarray:
    """Training examples of each client (pFedMM's README, 3.10) -> [C] int64"""
    sizes = draw.lognormal(SIZE_LOG_MEAN, SIZE_LOG_STD, num_clients).astype(np.int64)
    return np.minimum(sizes + SMALLEST, LARGEST)


def _examples(
    draw: np.random.RandomState, num: int, weights: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shuffled inputs [num, dim] and labels [num] of a client with mixture weights [components]."""
    counts = draw.multinomial(num, weights)
    x, y = draw.uniform(-1, 1, (num, theta.shape[1])), np.zeros(num, np.int64)
    start = 0
    for count, direction in zip(counts, theta, strict=True):
        block = slice(start, start + count)
        logits = x[block] @ direction + draw.normal(0, NOISE, count)
        y[block] = logits > 0  # round(sigmoid(logit))
        start += count
    order = draw.permutation(num)
    return x[order], y[order]
