"""The errors a user can mend: each message says what is wrong, the value, and what would be right.

`fedlib.workflow.command` prints them without a traceback; every other exception is a bug of ours.
"""


class ConfigError(ValueError):
    """The configuration or a declaration names something that does not exist or makes no sense."""


class DataError(ValueError):
    """A file is missing, truncated, corrupted or not what its name says."""


class DivergedError(ArithmeticError):
    """Training produced a loss that is not a finite number."""


class BusyError(RuntimeError):
    """Another process is working on the same output."""


class StaleCodeError(RuntimeError):
    """The code on disk is not the code this job was planned with."""
