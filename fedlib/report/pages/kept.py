"""What is kept of a paper, and what its page has besides the report: what the runs took."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tabulate import tabulate

from fedlib.report.pages.origin import attributes, spent
from fedlib.spec.exhibits import KINDS


def shelf(kept: Path, scale: str) -> Path:
    """Where papers of a scale have their folders: those with the papers' own settings apart."""
    return kept / "full" if scale == "full" else kept


def is_worth_keeping(stage: str, exhibit: dict) -> bool:
    """Whether a table or figure (`stage`) shows results: a comparison needs two runs, or numbers.

    What shows data alone is not kept, as packs have none.

    Args:
      exhibit: see `fedlib.report.exhibits`.
    """
    kind, beside = KINDS[stage][exhibit["kind"]], exhibit["published"] is not None
    if len(exhibit["runs"]) > 1 or kind.shows_data:
        return not kind.shows_data
    return not kind.is_lead and (beside or not kind.compares)


def took(made: Mapping[str, Iterable[Path]]) -> str:
    """Wall and CPU time of the jobs of each stage, and the most memory, as Markdown; maybe "".

    Args:
      made: results of runs, by the stage that wrote them; those that are not there do not count.
    """
    rows = []
    for stage, paths in made.items():
        found = [attributes(path)[0] for path in paths if path.exists()]
        all_of_it = spent(found)
        if all_of_it.jobs:
            rows.append((stage, f"{all_of_it.jobs} of {len(found)}", *all_of_it.texts))
    if not rows:
        return ""
    head = ("Stage", "Jobs", "Wall time", "CPU time", "Most memory")
    grid = tabulate(rows, head, tablefmt="pipe", disable_numparse=True,
                    colalign=["left"] + ["right"] * 4)  # fmt: skip
    about = "Of the jobs that recorded it; those that were resumed count as one."
    return f"\n## What the runs took\n\n{about}\n\n{grid}\n"
