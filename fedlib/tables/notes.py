"""The notes under every table: what was measured, at which scale, and what to beware of."""

import pandas as pd

from fedlib import exhibit as exhibits

ALL_AND_BOTTOM = (
    "All: right predictions over all test examples of the clients that train. Bottom-10%: accuracy "
    "of the floor(C/10)-th worst of C clients, at least the worst."
)
LAST_AND_BEST = (
    "Last: after the last round. Best: at the round with the highest All test accuracy, each seed "
    "its own round; this is a selection on the test set and flatters every method."
)


def measured(exhibit: dict) -> list[str]:
    """Scale, rounds, seeds and the meaning of the interval."""
    interval = (
        "the mean ± half-width of its 95 % interval (Student's t)"
        if len(exhibit["seeds"]) > 1
        else "one run each, so no interval can be given"
    )
    return [
        exhibits.scale_text(exhibit),
        f"Percent; {exhibits.seeds_text(exhibit)}: {interval}. {exhibits.rounds_text(exhibit)}",
    ]


def particulars(exhibit: dict) -> list[str]:
    """What is particular about the data and the runs."""
    return [
        *exhibits.data_notes(exhibit),
        *exhibits.run_notes(exhibit),
    ]


def with_scale(exhibit: dict, numbers: pd.DataFrame) -> pd.DataFrame:
    """The numbers with the scale they were measured at in every row."""
    return numbers.assign(scale=exhibit["scale"], scale_note=exhibits.scale_text(exhibit))
