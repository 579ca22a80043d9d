"""The digits of `fedlib.data.digits` with a test part of our own: every fourth image of a class.

So the demo can run what keeps the training and test part of a data set apart.
"""

from pathlib import Path

from fedlib.data import digits, official
from fedlib.data.raw import RawFile

NUM_CLASSES = digits.NUM_CLASSES
TEST_EVERY = 4


def sources(**params: object) -> tuple[RawFile, ...]:
    """No raw files."""
    return ()


def read(raw: Path) -> official.Parts:
    """Images [1797, 1, 8, 8] uint8 and labels int64; `raw` is not read."""
    x, y = digits.read()
    order, num_train = official.set_aside(y, TEST_EVERY)
    return official.Parts(x[order], y[order], num_train, NUM_CLASSES, digits.MEAN, digits.STD)
