"""Units of traffic."""

UNITS = {"MB": 1e6, "GB": 2.0**30}  # bytes; FedMix's table has GB of 2^30
SMALL = 0.1  # GB; smaller amounts are easier to read in MB
STEPS = {  # display units for each of `UNITS`, from small to large
    "MB": {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "GB": {"MB": 1e6, "GB": 2.0**30, "TB": 2.0**40},
}


def readable(gigabytes: float) -> str:
    """The unit for traffic of up to `gigabytes`."""
    return "MB" if gigabytes < SMALL else "GB"


def scaled(unit: str, most: float) -> tuple[str, float]:
    """The largest unit in which `most` is at least 1, and its size in bytes.

    Args:
      unit: one of `UNITS`; it decides between multiples of 1000 and 1024.
      most: bytes.
    """
    steps = list(STEPS[unit].items())
    return next(step for step in reversed(steps) if most >= step[1] or step == steps[0])
