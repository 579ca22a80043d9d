"""Predicates of acceptance criteria on numbers, each with its margin.

The margin is the distance of the numbers from the point where the verdict changes, in their own
unit: positive if the criterion is reached, or 0 where equality suffices.
"""

import numpy as np

from fedlib.errors import ConfigError
from fedlib.report.printed import difference
from fedlib.spec.criteria import ORDERS, Criterion

ROUNDING = 1e-9  # of sums of fractions


def verdict(
    criterion: Criterion, values: list[float], published: list[float], seeds: int
) -> tuple[bool, float]:
    """Whether a criterion is reached, and its margin.

        descending  each term is above the next, by at least `by`
        ascending   each term is below the next, by at least `by`
        highest     the first term is above all others, by at least `by`; lowest: below
        between     every term is in [at_least, at_most]; one of them may be missing
        spread      the largest term is at most `at_most` above the smallest
        published   every term is within `tolerance` of its published number, both as printed
        seeds       every run has at least `at_least` seeds

    Equal terms are in order only with `or_equal` or a `by`.

    Args:
      values: of its terms.
      published: of its terms, NaN where there is none.
      seeds: of the run with the fewest.

    Raises:
      ConfigError: if a term needs a published number and has none.
    """
    terms, theirs = (np.asarray(x, np.float64) for x in (values, published))
    margin = _margin(criterion, terms, theirs, seeds)
    if np.isnan(margin):
        raise ConfigError(
            f"criterion {criterion.title!r}: {criterion.kind} of {values}, published {published}, "
            "is no number"
        )
    strict = criterion.kind in ORDERS and not criterion.by and not criterion.or_equal
    return (margin > ROUNDING if strict else margin >= -ROUNDING), margin


def _margin(criterion: Criterion, terms: np.ndarray, published: np.ndarray, seeds: int) -> float:
    falling = -terms if criterion.kind in ("ascending", "lowest") else terms
    match criterion.kind:
        case "descending" | "ascending":
            distances = falling[:-1] - falling[1:] - criterion.by
        case "highest" | "lowest":
            distances = falling[0] - falling[1:] - criterion.by
        case "between":
            distances = np.append(terms - criterion.at_least, criterion.at_most - terms)
        case "spread":
            distances = criterion.at_most - (terms.max() - terms.min())
        case "published":
            distances = criterion.tolerance - _distances(criterion, terms, published)
        case "seeds":
            distances = np.float64(seeds - criterion.at_least)
    return float(np.min(distances))


def _distances(criterion: Criterion, terms: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Distance of each term from its published number -> [terms]"""
    if criterion.unit != "percent":
        return np.abs(terms - published)
    return np.abs([difference(*pair) for pair in zip(terms, published, strict=True)])
