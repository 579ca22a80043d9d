"""Made-up texts in which some words tell the class; a server and a probe own some too.

Nothing is read from files. A text has `shortest` to `length` words, and is filled up with the
padding token 0. Each word is one of its class's own with probability `signal`, and of the common
ones otherwise. Classes share no words of their own. Clients differ in how frequent the classes are;
in the texts of the server and the probe all are equally probable.

Small enough for the demo and the tests: models of text run on it without a download, and so do
methods whose server has data.
"""

from pathlib import Path

import numpy as np

from fedlib import streams
from fedlib.data.checks import check_count, check_fraction, check_positive
from fedlib.data.examples import Examples
from fedlib.federation import GROUPS, Tokens

NUM_CLASSES = 5
HAS = ("classes", "owner", "part")
PAD = 0


def read(
    raw: Path,
    *,
    seed: int,
    num_clients: int = 20,
    train_examples: int = 60,
    test_examples: int = 30,
    server_train: int = 200,
    server_val: int = 100,
    server_test: int = 500,
    probe: int = 100,
    alpha: float = 1.0,
    vocabulary: int = 200,
    own_words: int = 20,
    length: int = 16,
    shortest: int = 4,
    signal: float = 0.3,
) -> Examples:
    """The examples, owner by owner; the server and the probe are the last ones.

    Args:
      raw: not read.
      seed: of all draws.
      num_clients: all of which may take part in training.
      train_examples, test_examples: of every client; without test examples the server alone has
        any.
      server_train, server_val, server_test: of the server.
      probe: examples that the server measures models with; 0 for no such owner.
      alpha: Dirichlet concentration of a client's class probabilities.
      vocabulary: tokens, padding included.
      own_words: of each class; the rest of the vocabulary is common.
      length, shortest: words of a text.
      signal: probability of a word of the class's own.

    Raises:
      ConfigError: for a value that makes no sense.
    """
    sizes = {"num_clients": num_clients, "train_examples": train_examples, "own_words": own_words}
    sizes |= {"server_train": server_train, "server_test": server_test, "shortest": shortest}
    for name, value in sizes.items():
        check_count(name, value)
    optional = {"test_examples": test_examples, "server_val": server_val, "probe": probe}
    for name, value in optional.items():
        check_count(name, value, least=0)
    check_count("length", length, least=shortest)
    check_count("vocabulary", vocabulary, least=2 + NUM_CLASSES * own_words)  # padding, one common
    check_positive("alpha", alpha)
    check_fraction("signal", signal, one=True)

    draw = streams.generator(seed, "synthetic_text")
    even = np.full(NUM_CLASSES, 1 / NUM_CLASSES)
    clients = draw.dirichlet(np.full(NUM_CLASSES, float(alpha)), num_clients)
    owners = [(p, (train_examples, 0, test_examples), "seen") for p in clients]
    owners.append((even, (server_train, server_val, server_test), "server"))
    owners += [(even, (probe, 0, 0), "probe")] if probe else []
    y = np.concatenate([draw.choice(NUM_CLASSES, sum(parts), p=p) for p, parts, _ in owners])
    counts = np.array([parts for _, parts, _ in owners])  # [owners, parts]
    return Examples(
        _texts(draw, y, vocabulary, own_words, (shortest, length), signal),
        y,
        NUM_CLASSES,
        part=np.repeat(np.tile(np.arange(3, dtype=np.uint8), len(owners)), counts.ravel()),
        owner=np.repeat(np.arange(len(owners)), counts.sum(1)),
        num_owners=len(owners),
        group=np.array([GROUPS.index(group) for *_, group in owners], np.uint8),
        tokens=Tokens(vocabulary, PAD),
    )


def _texts(
    draw: np.random.Generator,
    y: np.ndarray,
    vocabulary: int,
    own_words: int,
    lengths: tuple[int, int],
    signal: float,
) -> np.ndarray:
    """A text of each class in `y` [M] -> [M, length] int32

    The common words follow the padding; then come those of class 0, 1, ..., `own_words` each.
    """
    shortest, length = lengths
    common = vocabulary - 1 - NUM_CLASSES * own_words
    shape = len(y), length
    own = 1 + common + own_words * y[:, None] + draw.integers(0, own_words, shape)
    words = np.where(draw.random(shape) < signal, own, draw.integers(1, common + 1, shape))
    ends = draw.integers(shortest, length + 1, (len(y), 1))
    return np.where(np.arange(length) < ends, words, PAD).astype(np.int32)
