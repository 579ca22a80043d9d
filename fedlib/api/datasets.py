"""Inputs and labels of a data set of PyTorch, a loader, or a data set of Hugging Face."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlib.errors import ConfigError, brief

PAIRS = "a data set or loader that gives (input, label), or a data set of Hugging Face"


def arrays(data: Any, x: str, y: str, name: str) -> tuple[Any, np.ndarray]:
    """All inputs and labels, in the order of the data set.

    Args:
      data: has columns, as data sets of Hugging Face; or gives pairs, one by one or in batches.
      x, y: names of the columns, not used for pairs.
      name: for messages.

    Raises:
      ConfigError: for a column that does not exist, or data that give no pairs.
    """
    if hasattr(data, "column_names"):
        data = data.with_format("numpy")
        for column in (x, y):
            if column not in data.column_names:
                raise ConfigError(f"no column {column!r}; there are {data.column_names}")
        return _inputs(data[x][:], name), np.asarray(data[y][:])
    loader = "DataLoader" in [x.__name__ for x in type(data).__mro__]
    if loader and getattr(data, "drop_last", False):
        raise ConfigError(f"{name}: a loader with drop_last loses examples; give drop_last to SGD")
    sampler = getattr(getattr(data, "batch_sampler", None), "sampler", None)
    if getattr(sampler, "replacement", False):  # clients would train on test examples
        raise ConfigError(f"{name}: a loader that draws with replacement gives examples twice")
    try:
        if hasattr(data, "iloc"):  # a data frame, whose numbers are names of columns
            raise TypeError
        # PyTorch's map-style data sets need no end for `for`, but have a length.
        by_number = hasattr(data, "__len__") and not loader
        pairs = [*map(data.__getitem__, range(len(data)))] if by_number else [*data]
        if any(isinstance(pair, Mapping) for pair in pairs):
            raise TypeError
        inputs, labels = zip(*pairs, strict=True) if pairs else ((), ())
    except (AttributeError, TypeError, ValueError) as error:
        why = "".join(f": {line}" for line in str(error).splitlines()[-1:])  # of a worker's
        raise ConfigError(f"{name} must be {PAIRS}, got {type(data).__name__}{why}") from error
    for given, label in zip(inputs, labels, strict=True):
        # A batch may be a list of examples: so are its labels, or they are not as many as its rows.
        many = isinstance(given, list | tuple) and not isinstance(label, list | tuple)
        parts = given[1:] if many else ()
        rows, shapes = np.shape(label)[:loader], [getattr(part, "shape", ()) for part in parts]
        if any(shape and shape[: len(rows)] == rows for shape in shapes):
            raise ConfigError(f"{name}: an input must be one array, got several; join them")
    if loader and labels and np.ndim(labels[0]):  # batches; one by one if its batch_size is None
        inputs, labels = ([x for batch in part for x in batch] for part in (inputs, labels))
    try:
        inputs = [x if isinstance(x, str) else np.asarray(x) for x in inputs]
        return _inputs(inputs, name), np.array([*map(np.asarray, labels)])
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"{name} cannot become an array of NumPy: {brief(error)}") from error


def _inputs(values: Any, name: str) -> Any:
    """Inputs as an array, images [N, H, W, C] as [N, C, H, W]; texts as they are."""
    if len(values) and isinstance(values[0], str):
        return np.array(values, object)
    try:
        images = np.asarray(values)
    except ValueError:
        raise ConfigError(f"{name}: inputs must all have one shape; resize or cut them") from None
    last = images.ndim == 4 and images.shape[-1] <= 4 < images.shape[1]
    # Else feature maps, such as 16 x 4 x 4, or signals, such as 22 x 1000 x 1.
    last = last and images.shape[2] != images.shape[3]
    last = last and (images.shape[-1] > 2 or images.shape[1] == images.shape[2])
    return images.transpose(0, 3, 1, 2) if last else images
