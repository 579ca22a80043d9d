"""In which unit what was sent is told."""

UNITS = {"MB": 1e6, "GB": 2.0**30}  # bytes; FedMix's table counts GB so
SMALL = 0.1  # GB, below which MB are easier to read
STEPS = {  # what each of them may be told in, from small to large
    "MB": {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "GB": {"MB": 1e6, "GB": 2.0**30, "TB": 2.0**40},
}


def readable(gigabytes: float) -> str:
    """The unit for traffic of at most so many GB."""
    return "MB" if gigabytes < SMALL else "GB"


def scaled(unit: str, most: float) -> tuple[str, float]:
    """The unit in which at most so many bytes are a number from 1 to 1000, and its bytes.

    Args:
      unit: one of `UNITS`, which decides whether multiples of 1000 or 1024 are counted.
      most: bytes.
    """
    steps = list(STEPS[unit].items())
    return next(step for step in reversed(steps) if most >= step[1] or step == steps[0])
