"""Yelp Review Full: reviews with one to five stars, the classes 0 to 4.

There are 130,000 training and 10,000 test reviews of each class. Tokens are GPT-2's, of the
original texts: line feeds, which the files escape as a backslash and an n, are restored.

Source: X. Zhang, J. Zhao and Y. LeCun, "Character-level Convolutional Networks for Text
  Classification", NIPS 2015; its file readme.txt. Fed-MoE's specification, sections 0 and 4.4.
Deviation: Fed-MoE's code draws its test examples from all classes together; here each class has
  the same number.
"""

from pathlib import Path

from fedlib import streams
from fedlib.data import downloads, texts, tokenisers
from fedlib.data.examples import Examples

NUM_CLASSES = 5
HAS = ("classes", "part")
LAYOUT = texts.Layout("utf-8", label=0, text=1, classes={str(y + 1): y for y in range(5)})


def read(
    raw: Path,
    *,
    seed: int,
    train_per_class: int | None = None,
    test_per_class: int | None = None,
    length: int = 64,
) -> Examples:
    """Tokens [M, length] int32, from the raw files below `raw`; each part in random order.

    Args:
      raw: folder of raw files.
      seed: of all draws.
      train_per_class, test_per_class: random reviews of each class; None for all.
      length: tokens of a text.

    Raises:
      ConfigError: for more reviews than there are.
      DataError: if a raw file is missing or not the official one.
    """
    asked = {"train_per_class": train_per_class, "test_per_class": test_per_class}
    files = downloads.files("yelp")
    tokeniser = tokenisers.byte_pairs(files["vocabulary"], files["merges"], raw, length)
    parts = []
    for name in ("train", "test"):
        found = texts.read(files[name], raw, LAYOUT)
        written = found._replace(text=[text.replace("\\n", "\n") for text in found.text])
        draw = streams.generator(seed, "yelp", name)
        (rows,) = texts.draw_rows(found.y, NUM_CLASSES, [asked[f"{name}_per_class"]], draw)
        parts.append((written, rows))
    return texts.examples(NUM_CLASSES, tokeniser, *parts)
