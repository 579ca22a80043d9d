"""Which results of a paper are kept, and where."""

from pathlib import Path

from fedlib.spec.exhibits import KINDS

KEPT = Path("docs/results")  # a folder for each paper, with one for each scale


def is_worth_keeping(stage: str, exhibit: dict) -> bool:
    """Whether a table or figure (`stage`) shows results: a comparison needs two runs, or numbers.

    Args:
      exhibit: see `fedlib.report.exhibits`.
    """
    kind, beside = KINDS[stage][exhibit["kind"]], exhibit["published"] is not None
    return len(exhibit["runs"]) > 1 or not kind.needs_others and (beside or not kind.compares)
