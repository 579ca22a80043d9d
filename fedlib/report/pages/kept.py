"""Which results of a paper are kept, and where."""

from pathlib import Path

from fedlib.spec.exhibits import KINDS

KEPT = Path("docs/results")  # a folder for each paper, with one for each scale


def is_worth_keeping(stage: str, exhibit: dict) -> bool:
    """Whether a table or figure (`stage`) shows results: a comparison needs two runs, or numbers.

    Figures of data alone are not kept, because packs have no data.

    Args:
      exhibit: see `fedlib.report.exhibits`.
    """
    kind, beside = KINDS[stage][exhibit["kind"]], exhibit["published"] is not None
    if len(exhibit["runs"]) > 1 or kind.shows_data:
        return not kind.shows_data
    return not kind.is_lead and (beside or not kind.compares)
