"""Acceptance criteria as data, in the form of `fedlib.spec.criteria`."""

from collections.abc import Iterable
from functools import partial

from fedlib.spec import Run
from fedlib.spec.criteria import Criteria

CAPTION = (
    "What the paper's numbers and text lead one to expect of a reproduction, and whether these "
    "runs show it."
)


def cell(
    federation: str, label: str, published: tuple[str, str, str, str] | None = None, **about: str
) -> dict:
    """A number of a run.

    Args:
      federation, label: of the run.
      published: exhibit, data set, label and metric of its published number.
      about: "metric", "at", "group", "protocol", "split" or "name", unless they are the default.
    """
    names = ("exhibit", "dataset", "label", "metric")
    beside = {"published": dict(zip(names, published, strict=True))} if published else {}
    return {"federation": federation, "label": label, **about, **beside}


def cells(federation: str, *labels: str, **about: str) -> list[dict]:
    """The same number, which `about` names as in `cell`, of several runs on a federation."""
    return [cell(federation, label, **about) for label in labels]


def criterion(title: str, source: str, terms: list, *, kind: str, **arguments) -> dict:
    """A criterion about terms; `arguments` are its kind's, and "unit", "note" and "main"."""
    return {"title": title, "source": source, "kind": kind, "terms": terms, **arguments}


# One for each kind of `fedlib.report.predicates`: functions of title, source, terms and arguments.
ascending, descending = (partial(criterion, kind=kind) for kind in ("ascending", "descending"))
highest, lowest = (partial(criterion, kind=kind) for kind in ("highest", "lowest"))
between, spread = (partial(criterion, kind=kind) for kind in ("between", "spread"))
reproduces, has_seeds = (partial(criterion, kind=kind) for kind in ("published", "seeds"))


def table(
    criteria: list[dict], runs: Iterable[Run], published: str | None, values: str = ""
) -> Criteria:
    """The table of the criteria, with those of their runs that exist.

    Args:
      criteria: all criteria.
      runs: the runs that exist.
      published: exhibit of the published numbers.
      values: a sentence about the values, for the caption.
    """
    named = {
        (one["federation"], one["label"])
        for criterion in criteria
        for term in criterion["terms"]
        for one in ([term] if isinstance(term, dict) else term)
    }
    there = [run for run in runs if (run.federation, run.label) in named]
    return Criteria(
        "Acceptance criteria",
        f"{CAPTION} {values}".strip(),
        tuple(dict.fromkeys(run.label for run in there)),
        tuple(dict.fromkeys(run.federation for run in there)),
        criteria=criteria,
        published=published,
    )
