"""The acceptance criteria of a paper: the rows of `criteria.csv`, beside its published numbers.

A row has the columns

    of      the name of what it is about, such as a federation or a role; `cases` gives its cases,
            and consecutive rows of the same name are declared together, case by case
    title, source, note   see `fedlib.spec.criteria.Criterion`; a note may be empty
    number  what is compared, in the paper's own words; `number` knows them
    rule    a > b > c               each above the next; >= for at least
            a + 0.2 < b             each below the next, by 0.2
            a > b, c                the first above all others; < for below
            a - b >= 0.1            in a range; or -0.02 <= a - b <= 0.02
            a, b within 0.05        all as near one another
            a, b as published within 0.03
            a, b of 3 seeds         at least so many
    main    "main" for the paper's main claim
    published   exhibit/dataset/label/metric of a published number in place of the terms'; a file
                may lack this column

A term of a rule is "label", "label@federation", "label:number" or "label@federation:number", and
after it maybe (its name). Texts have {fields} of their case.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import groupby
from typing import Any, NamedTuple

from fedlib.errors import ConfigError
from fedlib.spec import Run
from fedlib.spec.criteria import Criteria, Published, cells_of

CAPTION = (
    "What the paper's numbers and text lead one to expect of a reproduction, and whether these "
    "runs show it."
)
TERM = re.compile(r"([^\s@:]+)(?:@([^\s:]+))?(?::(\S+))?(?: \((.+)\))?")
NUMBER = re.compile(r"-?[.\d]+")
ORDERS = {">": "descending", ">=": "descending", "<": "ascending"}
FIRST = {">": "highest", "<": "lowest"}
PHRASES = {  # between terms and a number: kind and argument
    " as published within ": ("published", "tolerance"),
    " within ": ("spread", "at_most"),
    " of ": ("seeds", "at_least"),
}
COUNTS = ("bytes", "divergence", "experts_used", "right_clusters")  # metrics that are no shares

# A paper's number of a run by federation, label and name; None if such a run is not declared.
Number = Callable[[str, str, str], dict | None]


class Case(NamedTuple):
    """A case of a criterion: its federation, and the fields of its texts."""

    federation: str
    fields: Mapping[str, object] = {}


class Acceptance(NamedTuple):
    """What the rows of a paper's file mean.

    Attributes:
      cases: gives the cases of a name in the column "of", after the scale's settings.
      number: a `Number`, after the scale's settings by federation.
      published: exhibit of the published numbers.
      values: a sentence about the values, for the caption.
    """

    cases: Callable[[Sequence[Any], str], Iterable[Case]]
    number: Callable[[Mapping[str, Any], str, str, str], dict | None]
    published: str
    values: str = ""


def cell(federation: str, label: str, published: tuple | None = None, **about: Any) -> dict:
    """A number of a run.

    Args:
      federation, label: of the run.
      published: exhibit, data set, label and metric of its published number.
      about: further fields of a `fedlib.spec.criteria.Number`, unless they are the default.
    """
    beside = {"published": Published(*published)._asdict()} if published else {}
    return {"federation": federation, "label": label, **about, **beside}


def criteria(
    file: Traversable, cases: Callable[[str], Iterable[Case]], number: Number
) -> Iterator[dict]:
    """The criteria of a file; those about runs that are not declared are left out."""
    with file.open(encoding="utf-8") as lines:
        for of, rows in groupby(csv.DictReader(lines), key=lambda row: row["of"]):
            about = [*rows]
            for case in cases(of):
                yield from filter(None, (_criterion(row, case, number) for row in about))


def _criterion(row: dict[str, str], case: Case, number: Number) -> dict | None:
    """The criterion of a row in a case; None if too few of its terms are left to be compared."""
    texts = {name: text.format(**case.fields) for name, text in row.items()}
    kind, written, arguments = parse_rule(texts["rule"])

    def cells(term: str) -> list[dict | None]:
        return [_cell(text, texts["number"], case.federation, number) for text in term.split(" - ")]

    terms = [found for found in map(cells, written) if None not in found]
    if kind in FIRST.values() and None in cells(written[0]):
        return None  # it would be about another
    if len(terms) < (1 if kind in ("between", "published", "seeds") else 2):
        return None
    is_count = any(one.get("metric") in COUNTS for one in terms[0])
    printed = texts.get("published")
    others = {
        "unit": "number" if is_count else "",
        "note": texts["note"],
        "main": bool(texts["main"]),
        "published": printed and Published(*printed.split("/"))._asdict(),
    }
    return {
        **{"title": texts["title"], "source": texts["source"], "kind": kind},
        "terms": [term[0] if len(term) == 1 else term for term in terms],
        **arguments,
        **{name: x for name, x in others.items() if x},  # the rest has its default
    }


def parse_rule(rule: str) -> tuple[str, list[str], dict[str, float | bool]]:
    """Kind, terms and arguments of a rule.

    Raises:
      ConfigError: for a text that is none.
    """
    for phrase, (kind, argument) in PHRASES.items():
        terms, found, limit = rule.partition(phrase)
        if found:
            return kind, terms.split(", "), {argument: json.loads(limit.removesuffix(" seeds"))}
    first, *rest = re.split(r" ([<>]=?) ", rule)
    signs, others = rest[::2], rest[1::2]
    if len({*signs}) != 1:
        raise ConfigError(f"{rule!r} is no rule of a criterion; fedlib/papers/_criteria.py has all")
    sign, last = signs[0], others[-1]
    if len(others) == 2 and NUMBER.fullmatch(last):  # -0.02 <= a - b <= 0.02
        return "between", others[:1], {"at_least": json.loads(first), "at_most": json.loads(last)}
    if NUMBER.fullmatch(last):
        return "between", [first], {{">=": "at_least", "<=": "at_most"}[sign]: json.loads(last)}
    first, _, by = first.partition(" + ")
    arguments = {"by": json.loads(by)} if by else {"or_equal": True} if sign == ">=" else {}
    if len(several := last.split(", ")) > 1:
        return FIRST[sign], [first, *several], arguments
    return ORDERS[sign], [first, *others], arguments


def _cell(text: str, usual: str, federation: str, number: Number) -> dict | None:
    label, elsewhere, own, name = TERM.fullmatch(text).groups()
    found = number(elsewhere or federation, label, own or usual)
    return found | {"name": name} if found and name else found


def table(
    paper: str, acceptance: Acceptance, settings: Sequence[Any], runs: Iterable[Run]
) -> Criteria:
    """The table of a paper's criteria at a scale, with those of their runs that exist."""
    file = resources.files(__package__) / paper / "criteria.csv"
    by_name = {setting.data.name: setting for setting in settings}
    cases, number = partial(acceptance.cases, settings), partial(acceptance.number, by_name)
    found = [*criteria(file, cases, number)]
    named = {(one["federation"], one["label"]) for one in cells_of(found)}
    there = [run for run in runs if (run.federation, run.label) in named]
    return Criteria(
        "Acceptance criteria",
        f"{CAPTION} {acceptance.values}".strip(),
        tuple(dict.fromkeys(run.label for run in there)),
        tuple(dict.fromkeys(run.federation for run in there)),
        criteria=found,
        published=acceptance.published,
    )
