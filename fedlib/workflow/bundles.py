"""Short runs that a cluster is sent together, and the time that each is promised.

A job on a cluster waits in a queue, and before it computes Snakemake starts twice on its node: of a
run that takes seconds that is most. So as many short runs are one job as it takes for the start to
be at most `SHARE` of it. Their names are groups of Snakemake's, and profiles/slurm says how many
runs each joins. How long a run takes is known from `make plan`; without it, nothing is joined.
"""

import math

IMPORT_SECONDS = 4.0  # in the estimate of a job, as fedlib.forecast.costs has it; forks spend none
START_SECONDS = 10.0 + IMPORT_SECONDS  # of one submission on a core of its own: docs/clusters.md
SHARE = 0.1  # of a job that its start may be
NODE_MB = 700  # of what starts a job on its node: Snakemake twice, libraries to fork from
SIZES = (2, 4, 8, 16, 32, 64)  # of bundles
SLOWER = 3.0  # times the estimate is asked for: nodes may be slower than where it was made
UNKNOWN_MINUTES = {"train": 480}  # of jobs that nothing has reckoned yet
OTHER_MINUTES = 60


def name(seconds: float | None) -> str | None:
    """The group of a run whose two jobs are estimated to take so many seconds together.

    None for a run whose training and evaluation are jobs of their own, because they are worth it.
    They are not joined, so that what fails in the second does not cost the first.
    """
    if seconds is None:
        return None
    computing = max(0.0, seconds - 2 * IMPORT_SECONDS)
    least = START_SECONDS * (1 - SHARE) / SHARE  # of computing, for a start to be worth it
    if computing >= 2 * least:
        return None
    fits = [size for size in SIZES if size * computing >= least]
    return f"runs{min(fits, default=max(SIZES))}"


def minutes(stage: str, seconds: float | None) -> int:
    """To ask a scheduler for, for a job."""
    if seconds is None:
        return UNKNOWN_MINUTES.get(stage, OTHER_MINUTES)
    return math.ceil(SLOWER * seconds / 60)
