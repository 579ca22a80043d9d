"""Units of traffic."""

UNITS = {"MB": 1e6, "GB": 2.0**30}  # bytes, of what papers print; FedMix's GB are of 2^30
SHOWN = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}  # bytes, of what we show


def scaled(most: float) -> tuple[str, float]:
    """The largest unit in which `most` bytes are at least 1, and its size in bytes."""
    steps = list(SHOWN.items())
    return next(step for step in reversed(steps) if most >= step[1] or step == steps[0])
