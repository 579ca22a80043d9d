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
    _check_counts(1, num_clients=num_clients, own_words=own_words, shortest=shortest)
    _check_counts(1, train_examples=train_examples, server_train=server_train)
    _check_counts(1, server_test=server_test)
    _check_counts(0, test_examples=test_examples, server_val=server_val, probe=probe)
    check_count("length", length, least=shortest)
    check_count("vocabulary", vocabulary, least=2 + NUM_CLASSES * own_words)  # padding, one common
    check_positive("alpha", alpha)
    check_fraction("signal", signal, one=True)

    draw = streams.generator(seed, "synthetic_text")
    clients = draw.dirichlet(np.full(NUM_CLASSES, float(alpha)), num_clients)
    own, server = (train_examples, 0, test_examples), (server_train, server_val, server_test)
    owners = _owners(clients, own, server, probe)
    y = np.concatenate([draw.choice(NUM_CLASSES, sum(parts), p=p) for p, parts, _ in owners])
    return Examples(
        _texts(draw, y, vocabulary, own_words, (shortest, length), signal),
        y,
        NUM_CLASSES,
        **_owned([parts for _, parts, _ in owners]),
        num_owners=len(owners),
        group=np.array([GROUPS.index(group) for *_, group in owners], np.uint8),
        tokens=Tokens(vocabulary, PAD),
    )


def _check_counts(least: int, **counts: int) -> None:
    for name, value in counts.items():
        check_count(name, value, least=least)


def _owners(
    clients: np.ndarray, own: tuple[int, int, int], server: tuple[int, int, int], probe: int
) -> list[tuple[np.ndarray, tuple[int, int, int], str]]:
    """Class probabilities, examples in train, val and test, and group of every owner.

    Args:
      clients: [C, classes] probabilities.
      own, server: examples of each client and of the server.
      probe: training examples of the probe; 0 for none.
    """
    even = np.full(NUM_CLASSES, 1 / NUM_CLASSES)
    owners = [(p, own, "seen") for p in clients] + [(even, server, "server")]
    return owners + ([(even, (probe, 0, 0), "probe")] if probe else [])


def _owned(parts: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """Owner and part of every example, of each owner's examples in train, val and test."""
    counts = np.array(parts)  # [owners, parts]
    return {
        "part": np.repeat(np.tile(np.arange(3, dtype=np.uint8), len(counts)), counts.ravel()),
        "owner": np.repeat(np.arange(len(counts)), counts.sum(1)),
    }


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
