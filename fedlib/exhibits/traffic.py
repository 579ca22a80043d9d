"""In which unit what was sent is told."""

UNITS = {"MB": 1e6, "GB": 2.0**30}  # bytes; FedMix's table counts GB so
SMALL = 0.1  # GB, below which MB are easier to read


def readable(gigabytes: float) -> str:
    """The unit for traffic of at most so many GB."""
    return "MB" if gigabytes < SMALL else "GB"
