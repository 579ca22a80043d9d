"""The digits of `fedlib.data.digits` with a test part of our own: every fourth image of a class.

So the demo can run what keeps the training and test part of a data set apart.
"""

import numpy as np

from fedlib.data import digits, official

NUM_CLASSES = digits.NUM_CLASSES
MEAN, STD = digits.MEAN, digits.STD
TEST_EVERY = 4


def read() -> tuple[np.ndarray, np.ndarray, int]:
    """Images [1797, 1, 8, 8] uint8, labels [1797] int64, and how many are training images."""
    x, y = digits.read()
    order, num_train = official.set_aside(y, TEST_EVERY)
    return x[order], y[order], num_train
