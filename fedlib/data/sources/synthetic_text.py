"""Synthetic texts in which some words reveal the class; a server and a probe own some too.

Nothing is read from files. A text has `shortest` to `length` words, and is filled up with the
padding token 0. Each word belongs to its class alone with probability `signal`, otherwise it is a
common word. Clients differ in their class frequencies; in the texts of the server and the probe all
classes are equally probable.

It is small enough for the demo and the tests: models of text, and methods whose server has data,
run on it without a download.
"""

from pathlib import Path

import numpy as np

from fedlib import streams
from fedlib.data.checks import check_count
from fedlib.data.examples import TEST, TRAIN, VAL, Examples, owned
from fedlib.federation import GROUPS, Tokens

NUM_CLASSES = 5
HAS = ("classes", "owner", "part")
PAD = 0
MAY_BE_0 = ("test_examples",)


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
      num_clients: all may take part in training.
      train_examples, test_examples: of every client; with 0 test examples, only the server has any.
      server_train, server_val, server_test: examples of the server.
      probe: examples with which the server measures models; 0 for no probe.
      alpha: Dirichlet concentration of a client's class probabilities.
      vocabulary: number of tokens, padding included.
      own_words: words that belong to a class alone; all others are common.
      length, shortest: most and fewest words of a text.
      signal: probability that a word belongs to the class alone.

    Raises:
      ConfigError: for an invalid value.
    """
    check_count("length", length, least=shortest)
    check_count("vocabulary", vocabulary, least=2 + NUM_CLASSES * own_words)  # padding, one common

    draw = streams.generator(seed, "synthetic_text")
    clients = draw.dirichlet(np.full(NUM_CLASSES, float(alpha)), num_clients)
    own, server = (train_examples, 0, test_examples), (server_train, server_val, server_test)
    owners = _owners(clients, own, server, probe)
    y = np.concatenate([draw.choice(NUM_CLASSES, sum(parts), p=p) for p, parts, _ in owners])
    return Examples(
        _texts(draw, y, vocabulary, own_words, (shortest, length), signal),
        y,
        NUM_CLASSES,
        **owned([size for _, parts, _ in owners for size in parts], TRAIN, VAL, TEST),
        group=np.array([GROUPS.index(group) for *_, group in owners], np.uint8),
        tokens=Tokens(vocabulary, PAD),
    )


def _owners(
    clients: np.ndarray, own: tuple[int, int, int], server: tuple[int, int, int], probe: int
) -> list[tuple[np.ndarray, tuple[int, int, int], str]]:
    """Class probabilities, numbers of examples in train, val and test, and group of every owner.

    Args:
      clients: [C, classes] probabilities.
      own, server: numbers of examples of each client and of the server.
      probe: number of training examples of the probe; 0 for no probe.
    """
    even = np.full(NUM_CLASSES, 1 / NUM_CLASSES)
    owners = [(p, own, "seen") for p in clients] + [(even, server, "server")]
    return owners + ([(even, (probe, 0, 0), "probe")] if probe else [])


def _texts(
    draw: np.random.Generator,
    y: np.ndarray,
    vocabulary: int,
    own_words: int,
    lengths: tuple[int, int],
    signal: float,
) -> np.ndarray:
    """A text for each class in `y` [M] -> [M, length] int32

    Token 0 is padding; then come the common words, then `own_words` of each class in turn.
    """
    shortest, length = lengths
    common = vocabulary - 1 - NUM_CLASSES * own_words
    shape = len(y), length
    own = 1 + common + own_words * y[:, None] + draw.integers(0, own_words, shape)
    words = np.where(draw.random(shape) < signal, own, draw.integers(1, common + 1, shape))
    ends = draw.integers(shortest, length + 1, (len(y), 1))
    return np.where(np.arange(length) < ends, words, PAD).astype(np.int32)
