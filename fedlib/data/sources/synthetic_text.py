"""Synthetic texts in which some words reveal the class; a server and a probe own some too.

Nothing is read from files. A text has 4 to 16 words, and is filled up with the
padding token 0. Each word belongs to its class alone with probability 0.3, otherwise it is a
common word. Clients differ in their class frequencies; in the texts of the server and the probe all
classes are equally probable.

It is small enough for the demo and the tests: models of text, and methods whose server has data,
run on it without a download.
"""

from pathlib import Path

import numpy as np

from fedlib import streams
from fedlib.data.examples import TEST, TRAIN, VAL, Examples, ownership
from fedlib.federation import GROUPS, Tokens

NUM_CLASSES = 5
HAS = ("classes", "owner", "part")
PAD = 0
VOCABULARY = 200  # tokens, padding included
OWN_WORDS = 20  # that belong to a class alone; all others are common
SHORTEST, LONGEST = 4, 16  # words of a text
SIGNAL = 0.3  # probability that a word belongs to its class alone
ALPHA = 1.0  # Dirichlet concentration of a client's class probabilities


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
) -> Examples:
    """The examples, owner by owner; the server and the probe are the last ones.

    Args:
      raw: not read.
      seed: of all draws.
      num_clients: all may take part in training.
      train_examples, test_examples: of every client; with 0 test examples, only the server has any.
      server_train, server_val, server_test: examples of the server.
      probe: examples with which the server measures models; 0 for no probe.
    """
    draw = streams.generator(seed, "synthetic_text")
    own, server = (train_examples, 0, test_examples), (server_train, server_val, server_test)
    # Class probabilities, numbers of examples in train, val and test, and group of every owner.
    clients = draw.dirichlet(np.full(NUM_CLASSES, ALPHA), num_clients)
    even = np.full(NUM_CLASSES, 1 / NUM_CLASSES)
    owners = [(p, own, "seen") for p in clients] + [(even, server, "server")]
    owners += [(even, (probe, 0, 0), "probe")] if probe else []
    y = np.concatenate([draw.choice(NUM_CLASSES, sum(parts), p=p) for p, parts, _ in owners])
    return Examples(
        _texts(draw, y),
        y,
        NUM_CLASSES,
        **ownership([size for _, parts, _ in owners for size in parts], TRAIN, VAL, TEST),
        group=np.array([GROUPS.index(group) for *_, group in owners], np.uint8),
        tokens=Tokens(VOCABULARY, PAD),
    )


def _texts(draw: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """A text for each class in `y` [M] -> [M, LONGEST] int32

    Token 0 is padding; then come the common words, then `OWN_WORDS` of each class in turn.
    """
    common = VOCABULARY - 1 - NUM_CLASSES * OWN_WORDS
    shape = len(y), LONGEST
    own = 1 + common + OWN_WORDS * y[:, None] + draw.integers(0, OWN_WORDS, shape)
    words = np.where(draw.random(shape) < SIGNAL, own, draw.integers(1, common + 1, shape))
    ends = draw.integers(SHORTEST, LONGEST + 1, (len(y), 1))
    return np.where(np.arange(LONGEST) < ends, words, PAD).astype(np.int32)
