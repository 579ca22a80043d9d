"""A user's own methods, from files outside of the package: `methods: [mine/fedper.py]`.

An entry is PATH or PATH:LABEL. The file has a class with the file's name, derived from
`fedlib.methods.base.Method`. It runs wherever a paper has a run of that label ("fedavg" by
default), with the same data, model, rounds, seeds and local solver. Every table and figure that can
show further runs shows it beside that run. The label of its runs is `PREFIX` and the name of the
file, for other parts of a configuration: set=[own-fedper.params.k=3].

The file is parsed and not imported here, because a plan imports the standard library only.
`fedlib.workflow.preflight` builds its methods, and leaves out runs that cannot be made. The file is
a root of its runs' code, so an edit repeats only those runs.
"""

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError, nearest
from fedlib.run_spec import class_of_file, is_file
from fedlib.spec import Paper, Run, RunName
from fedlib.workflow.provenance import ROOT

LIKE = "fedavg"
PREFIX = "own-"
EXAMPLE = "mine/fedper.py or mine/fedper.py:fedem"


class OwnMethod(NamedTuple):
    """A method from a file.

    Attributes:
      text: as given.
      path: of the file, relative to the checkout if inside it; the method of its runs.
      like: label of the runs whose settings it takes.
      label, title: of its own runs.
    """

    text: str
    path: str
    like: str
    label: str
    title: str


def parse(text: str) -> OwnMethod:
    """A method from its entry; ConfigError if it is invalid."""
    path, _, like = text.partition(":")
    if not is_file(path):
        raise ConfigError(f"methods: expected a Python file, such as {EXAMPLE}, got {text!r}")
    path = _canonical(path)
    label = PREFIX + Path(path).stem.replace("_", "-").lower()
    return OwnMethod(text, path, like or LIKE, label, title_of(path))


def title_of(path: str) -> str:
    """The name of the class with the file's name, which is the method's title.

    Raises:
      ConfigError: if there is no such file or class, or the file is not Python.
    """
    try:
        tree = ast.parse((ROOT / path).read_bytes(), filename=path)
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        return class_of_file(path, classes)
    except OSError as error:
        raise ConfigError(f"methods: cannot read {path}: {error.strerror}") from None
    except SyntaxError as error:
        raise ConfigError(f"methods: {path}, line {error.lineno}: {error.msg}") from None
    except ConfigError as error:
        raise ConfigError(f"methods: {error}") from None


def add_runs(papers: Mapping[str, Paper], given: Iterable[str]) -> dict[str, Paper]:
    """The papers with the runs of these methods.

    Raises:
      ConfigError: for a file without a method, a name already in use, or a method like a run that
        no paper has.
    """
    found = dict(papers)
    for own in map(parse, given):
        before = found
        found = {name: _with(paper, own) for name, paper in found.items()}
        if found == before:
            labels = sorted({run.label for paper in papers.values() for run in paper.runs})
            raise ConfigError(
                f"methods: {own.text}: no run {own.like} in {', '.join(papers)}, to run "
                f"{own.title} like; give {own.path}:LABEL; {nearest(own.like, labels)}"
            )
    return found


def is_own(run: Run) -> bool:
    """Whether a run is of a method from the configuration."""
    return run.label.startswith(PREFIX) and is_file(run.method)


def remarks(
    papers: Mapping[str, Paper], given: Iterable[str], gone: Mapping[RunName, str]
) -> Iterator[str]:
    """Lines about the papers that run each of these methods.

    Args:
      gone: runs that are left out, and why.
    """
    for own in map(parse, given):
        names = [name for paper in papers.values() for name in paper.runs_by_name()]
        if where := [f"{x.paper}/{x.federation}" for x in names if x.label == own.label]:
            yield f"{own.title} of {own.path}, run like {own.like} on {', '.join(where)}"
        elif own.label not in {name.label for name in gone}:
            yield f"{own.title} of {own.path} has no run among those that are selected"
        yield from reasons(own, {name: why for name, why in gone.items() if name.paper in papers})


def reasons(own: OwnMethod, gone: Mapping[RunName, str]) -> Iterator[str]:
    """A line for each reason why runs of a method are left out."""
    mine = [name for name in gone if name.label == own.label]
    for why in dict.fromkeys(gone[name] for name in mine):
        where = ", ".join(f"{x.paper}/{x.federation}" for x in mine if gone[x] == why)
        yield f"{own.title} is left out of {where}: {why}"


def _with(paper: Paper, own: OwnMethod) -> Paper:
    """A paper with the method beside each run whose settings it takes."""
    if not (alike := [run for run in paper.runs if run.label == own.like]):
        return paper
    if own.title in [run.title for run in paper.runs]:
        raise ConfigError(
            f"methods: {own.path}: {paper.name} has a run that tables call {own.title} already; "
            "give the file and its class another name"
        )
    who = own.label, own.path, own.title, own.like
    tables = {name: table.beside(*who) for name, table in paper.tables.items()}
    figures = {name: figure.beside(*who) for name, figure in paper.figures.items()}
    runs = (*paper.runs, *(_like(run, own) for run in alike))
    return replace(paper, runs=runs, tables=tables, figures=figures)


def _like(run: Run, own: OwnMethod) -> Run:
    """A run of the method, otherwise equal to `run`, with the method's default parameters."""
    relation = "tuned like" if run.tuning else "settings are those declared for"
    note = f"A method of your own, from {own.path}; {relation} {run.title}."
    named = {"label": own.label, "title": own.title, "method": own.path}
    return replace(run, **named, params={}, notes=(note,))


def _canonical(path: str) -> str:
    """A path for specifications: relative to the checkout if inside it.

    The folder of a user whose workflow has this one as a module comes before the checkout.
    """
    given = Path(os.path.expanduser(path))  # which leaves the name of an unknown user
    whole = Path(os.path.abspath(given) if given.is_file() else os.path.normpath(ROOT / given))
    places = whole, whole.parent.resolve() / whole.name  # by a link to the checkout
    return next((str(x.relative_to(ROOT)) for x in places if x.is_relative_to(ROOT)), str(whole))
