"""Sentiment140: tweets of 2009 that are negative (0) or positive (1).

The training part, 800,000 tweets of each class, was labelled by emoticons. The test part was
labelled by hand: 177 and 182 tweets; neutral ones are left out. So few tweets cannot resolve
differences in accuracy below two points; `test_per_class` tests on training tweets without an owner
instead.

Tokens are BERT's, uncased. Texts are unchanged: marks such as "&amp;" stay.

Source: A. Go, R. Bhayani and L. Huang, "Twitter Sentiment Classification using Distant
  Supervision", 2009; http://help.sentiment140.com/for-students. Fed-MoE's specification, sections 0
  and 4.3: its code reads tokenised files that are not published.
"""

from pathlib import Path

from fedlib import streams
from fedlib.data import downloads, texts, tokenisers
from fedlib.data.examples import Examples

NUM_CLASSES = 2
HAS = ("classes", "part")
LAYOUT = texts.Layout("latin-1", label=0, text=5, classes={"0": 0, "2": None, "4": 1})


def read(
    raw: Path,
    *,
    seed: int,
    train_per_class: int | None = None,
    test_per_class: int = 0,
    length: int = 64,
) -> Examples:
    """Tokens [M, length] int32, from the raw files below `raw`; each part in random order.

    Args:
      raw: folder of raw files.
      seed: of all draws.
      train_per_class: random training tweets of each class; None for all (400 MB).
      test_per_class: likewise, for the test part; 0 for the official one.
      length: tokens of a text.

    Raises:
      ConfigError: for more tweets than there are.
      DataError: if a raw file is missing or not the official one.
    """
    files = downloads.files("sent140")
    tokeniser = tokenisers.word_piece(files["vocabulary"], raw, length)
    train = texts.read(files["train"], raw, LAYOUT)
    test = train if test_per_class else texts.read(files["test"], raw, LAYOUT)
    draw, sizes = streams.generator(seed, "sent140"), (test_per_class, train_per_class)
    held_out, kept = texts.draw_rows(train.y, NUM_CLASSES, sizes, draw)
    if not test_per_class:
        (held_out,) = texts.draw_rows(test.y, NUM_CLASSES, [None], draw)
    return texts.examples(NUM_CLASSES, tokeniser, (train, kept), (test, held_out))
