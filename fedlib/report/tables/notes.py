"""The notes under every table: measurement, scale and cautions."""

from fedlib.report import exhibits
from fedlib.report.metrics import INTERVAL_SEEDS

BEST = (
    "Best: at the round with the highest accuracy pooled over the test examples of all clients, "
    "each seed its own round; this is a selection on the test set and flatters every method."
)


def measured(exhibit: dict) -> str:
    """Unit, seeds, rounds and the spread over seeds."""
    return (
        f"Percent; {exhibits.seeds_text(exhibit)}: {spread(exhibit)}. "
        f"{exhibits.rounds_text(exhibit)}"
    )


def spread(
    exhibit: dict,
    of_many: str = "the mean ± half-width of its 95 % interval (Student's t)",
    what: str = "interval",
) -> str:
    """The meaning of the number beside a mean; `of_many` from `INTERVAL_SEEDS` seeds on."""
    number = len(exhibit["seeds"])
    if number >= INTERVAL_SEEDS:
        return of_many
    if number > 1:
        return f"the mean (smallest to largest seed); so few give no {what}"
    return f"one run each, so no {what} can be given"


def particulars(exhibit: dict) -> list[str]:
    """Differences between seeds, and particulars of the data and the runs."""
    return [
        *seeds_differ(exhibit),
        *exhibits.data_notes(exhibit),
        *exhibits.run_notes(exhibit),
    ]


def seeds_differ(exhibit: dict) -> list[str]:
    """A sentence about what an exhibit's seeds draw anew and what they share; none for one seed."""
    if len(exhibit["seeds"]) == 1:
        return []
    redrawn = [data.get("per_seed", False) for data in exhibit["federations"]]
    everybody = {"rate": 1.0}  # unless a run says otherwise
    cohorts = any(run.get("participation", everybody)["rate"] < 1 for run in exhibit["runs"])
    differ = [
        *(["partition"] if any(redrawn) else []),
        "initial parameters",
        *(["cohorts"] if cohorts else []),
        "order of the batches",
    ]
    same = [
        *([] if all(redrawn) else ["partition into clients"]),
        *([] if cohorts else ["cohorts (everybody trains in every round)"]),
    ]
    drawn = f"Seeds differ in {', '.join(differ[:-1])} and {differ[-1]}"
    return [f"{drawn}; they share the {' and the '.join(same)}." if same else f"{drawn}."]
