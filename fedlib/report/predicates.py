"""Predicates of acceptance criteria on numbers, each with its margin.

The margin is the distance of the numbers from the point where the verdict changes, in their own
unit: positive if the criterion is reached, or 0 where equality suffices.
"""

import numpy as np

from fedlib.errors import ConfigError
from fedlib.report.exhibits import PAPER_SCALE
from fedlib.report.printed import difference
from fedlib.spec.exhibits import one_of

ROUNDING = 1e-9  # of sums of fractions
KINDS = {  # kind: arguments it must have, arguments it may have
    "descending": ((), ("by", "or_equal")),
    "ascending": ((), ("by", "or_equal")),
    "highest": ((), ("by", "or_equal")),
    "lowest": ((), ("by", "or_equal")),
    "between": ((), ("at_least", "at_most")),
    "spread": (("at_most",), ()),
    "published": (("tolerance",), ()),
    "seeds": (("at_least",), ()),
}
ARGUMENTS = ("by", "or_equal", "at_least", "at_most", "tolerance")


def check(criterion: dict) -> None:
    """Check that a criterion's kind, arguments and number of terms fit together.

    Raises:
      ConfigError: if they do not.
    """
    kind, title = criterion["kind"], criterion["title"]
    one_of(KINDS, kind, f"criterion {title!r}: kind")
    needed, possible = KINDS[kind]
    given = [name for name in ARGUMENTS if name in criterion]
    if not {*needed} <= {*given} <= {*needed, *possible} or (kind == "between" and not given):
        raise ConfigError(
            f"criterion {title!r}: {kind} takes {', '.join((*needed, *possible))}, got "
            f"{', '.join(given) or 'nothing'}"
        )
    least = 1 if kind in ("between", "published", "seeds") else 2
    if len(criterion["terms"]) < least:
        raise ConfigError(
            f"criterion {title!r}: {kind} needs at least {least} terms, got "
            f"{len(criterion['terms'])}"
        )


def testable(criterion: dict, scale: str) -> bool:
    """Whether a criterion can be tested at a scale.

    Published numbers need the paper's rounds, data and models; orders, gains and ranges can be
    tested at every scale.
    """
    return criterion["kind"] != "published" or scale == PAPER_SCALE


def verdict(
    criterion: dict, values: list[float], published: list[float], seeds: int
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
      criterion: as `check` accepts it.
      values: of its terms.
      published: of its terms, NaN where there is none.
      seeds: of the run with the fewest.

    Raises:
      ConfigError: if a term needs a published number and has none.
    """
    kind, terms = criterion["kind"], np.asarray(values, np.float64)
    margin = _margin(kind, criterion, terms, np.asarray(published, np.float64), seeds)
    if np.isnan(margin):
        raise ConfigError(
            f"criterion {criterion['title']!r}: {kind} of {values}, published {published}, is "
            "no number"
        )
    strict = kind in ("descending", "ascending", "highest", "lowest")
    strict = strict and not criterion.get("by") and not criterion.get("or_equal")
    return (margin > ROUNDING if strict else margin >= -ROUNDING), margin


def _margin(
    kind: str, criterion: dict, terms: np.ndarray, published: np.ndarray, seeds: int
) -> float:
    by = criterion.get("by", 0.0)
    match kind:
        case "descending":
            distances = terms[:-1] - terms[1:] - by
        case "ascending":
            distances = terms[1:] - terms[:-1] - by
        case "highest":
            distances = terms[0] - terms[1:] - by
        case "lowest":
            distances = terms[1:] - terms[0] - by
        case "between":
            distances = np.append(
                terms - criterion.get("at_least", -np.inf),
                criterion.get("at_most", np.inf) - terms,
            )
        case "spread":
            distances = criterion["at_most"] - (terms.max() - terms.min())
        case "published":
            distances = criterion["tolerance"] - _distances(criterion, terms, published)
        case "seeds":
            distances = np.float64(seeds - criterion["at_least"])
    return float(np.min(distances))


def _distances(criterion: dict, terms: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Distance of each term from its published number -> [terms]"""
    if criterion.get("unit", "percent") != "percent":
        return np.abs(terms - published)
    return np.abs([difference(*pair) for pair in zip(terms, published, strict=True)])
