"""What a criterion may ask of numbers: a few general predicates, each with its margin.

The margin is how far the numbers are from the verdict's turning, in their own unit: positive (or 0,
where equality will do) if the criterion is reached.
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
    """Nothing, if kind and arguments go together and there are as many terms as they need.

    Raises:
      ConfigError: with what is wrong.
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
    """Whether runs at a scale can be expected to reach a criterion.

    Published numbers can be reached with the paper's rounds, data and models; orders, gains and
    ranges are looked for at every scale.
    """
    return criterion["kind"] != "published" or scale == PAPER_SCALE


def verdict(
    criterion: dict, values: list[float], published: list[float], seeds: int
) -> tuple[bool, float]:
    """Whether a criterion is reached, and its margin.

        descending  each term is above the next, by at least `by`
        ascending   each term is below the next, by at least `by`
        highest     the first term is above all others, by at least `by`; lowest: below
        between     every term is in [at_least, at_most], either of which may be left out
        spread      the largest term is at most `at_most` above the smallest
        published   every term is within `tolerance` of its published number, both as printed
        seeds       every run has at least `at_least` seeds

    Equal terms are in order only with `or_equal` or a `by`.

    Args:
      criterion: as `check` accepts it.
      values: of its terms.
      published: of its terms, NaN where there is none.
      seeds: of the run that has the fewest.

    Raises:
      ConfigError: if a term is to be compared with a number that is not published.
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
    """How far each term is from its published number -> [terms]"""
    if criterion.get("unit", "percent") != "percent":
        return np.abs(terms - published)
    return np.abs([difference(*pair) for pair in zip(terms, published, strict=True)])
