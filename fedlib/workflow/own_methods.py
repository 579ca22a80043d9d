"""Methods of a user's, from files outside of the package: `methods: [mine/fedper.py]`.

Each is PATH or PATH:LABEL. The file has a class that is called like it and derived from
`fedlib.methods.base.Method`. It is run wherever a paper has a run of that label, "fedavg" if none
is named, and as that one is: data, model, rounds, seeds, local solver. It is shown beside it in
every table and figure of `KINDS`. Its run is called by `PREFIX` and the name of the file, which
other parts of a configuration may name: set=[own-fedper.params.k=3].

The file is read and not imported here, as a plan imports the standard library only; that it can be
built is checked with everything else (`fedlib.workflow.preflight`). It is a root of the code of its
runs, so that an edit repeats those and no other.
"""

import ast
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedlib.errors import ConfigError
from fedlib.run_spec import class_of_file, is_file
from fedlib.spec import Paper, Run, Table
from fedlib.workflow.provenance import ROOT, registered

LIKE = "fedavg"
PREFIX = "own-"
EXAMPLE = "mine/fedper.py or mine/fedper.py:fedem"
# Kinds of tables and figures that have room for any method. The others test a paper's claim, or
# show what only its methods have.
KINDS = frozenset(
    {
        *("accuracy", "accuracy_and_traffic", "beside_published", "cost", "global_accuracy"),
        *("sweep", "unseen", "views"),
        *("accuracy_over_bytes", "accuracy_over_rounds", "client_accuracy_cdf"),
    }
)


class Own(NamedTuple):
    """A method from a file.

    Attributes:
      text: as given.
      path: of the file, relative to the checkout if it is in there; the method of its runs.
      like: label of the runs that it is run like.
      label, title: of its own runs.
    """

    text: str
    path: str
    like: str
    label: str
    title: str


def parse(text: str) -> Own:
    """A method by its file; ConfigError for what cannot be one."""
    path, _, like = text.partition(":")
    if not is_file(path):
        raise ConfigError(f"methods: expected a file of Python, such as {EXAMPLE}, got {text!r}")
    path = _canonical(path)
    stem = Path(path).stem
    if stem in registered("methods"):
        raise ConfigError(
            f"methods: {path}: there is a method {stem} already, fedlib/methods/{stem}.py; call "
            "the file and its class otherwise"
        )
    label = PREFIX + stem.replace("_", "-").lower()
    return Own(text, path, like or LIKE, label, title_of(path))


def title_of(path: str) -> str:
    """The class that a file is about, as tables and figures call its method.

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


def added(papers: Mapping[str, Paper], given: Iterable[str]) -> dict[str, Paper]:
    """The papers with the runs of these methods.

    Raises:
      ConfigError: for a file without a method, for names that are taken, and for a method that no
        paper has a run to be like of.
    """
    methods = [parse(text) for text in given]
    found = dict(papers)
    for number, own in enumerate(methods):
        if own.label in [other.label for other in methods[:number]]:
            raise ConfigError(f"methods: two are called {Path(own.path).stem}; rename one")
        before = found
        found = {name: _with(paper, own) for name, paper in found.items()}
        if found == before:
            labels = sorted({run.label for paper in papers.values() for run in paper.runs})
            near = difflib.get_close_matches(own.like, labels, n=3) or labels[:3]
            raise ConfigError(
                f"methods: {own.text}: no run {own.like} in {', '.join(papers)}, to run "
                f"{own.title} like; give {own.path}:LABEL, where LABEL is that of a run, such as "
                f"{', '.join(near)}"
            )
    return found


def is_own(run: Run) -> bool:
    """Whether a run is of a method that the configuration has brought."""
    return run.label.startswith(PREFIX) and is_file(run.method)


def remarks(papers: Mapping[str, Paper], given: Iterable[str]) -> Iterator[str]:
    """Where each of these methods is run, in a line."""
    for own in map(parse, given):
        where = [f"{p.name}/{r.federation}" for p in papers.values() for r in p.runs if _of(r, own)]
        without = [p.name for p in papers.values() if not any(_of(r, own) for r in p.runs)]
        rest = f"; not in {', '.join(without)}, without a run {own.like} there" if without else ""
        yield f"{own.title} of {own.path}, run like {own.like} on {', '.join(where)}{rest}"


def finished(runs: Path) -> list[tuple[str, str, int]]:
    """Federation, label and seed of what a paper's folder of runs has of such methods, finished."""
    files = runs.glob(f"*/{PREFIX}*/seed*/evaluation.h5")
    names = sorted(file.relative_to(runs).parts for file in files)
    return [(federation, label, int(seed[4:])) for federation, label, seed, _ in names]


def _of(run: Run, own: Own) -> bool:
    return run.label == own.label


def _with(paper: Paper, own: Own) -> Paper:
    """A paper with a method, beside each run that it is like."""
    alike = [run for run in paper.runs if run.label == own.like]
    if not alike:
        return paper
    if own.title in [run.title for run in paper.runs]:
        raise ConfigError(
            f"methods: {own.path}: {paper.name} has a run that tables call {own.title} already; "
            "call the file and its class otherwise"
        )
    return replace(
        paper,
        runs=(*paper.runs, *(_like(run, own) for run in alike)),
        tables={name: _shown(exhibit, own) for name, exhibit in paper.tables.items()},
        figures={name: _shown(exhibit, own) for name, exhibit in paper.figures.items()},
    )


def _like(run: Run, own: Own) -> Run:
    """A run of the method that is otherwise as `run`; its hyper-parameters are its defaults."""
    note = f"A method of your own, from {own.path}; settings are those of {run.title}."
    named = {"label": own.label, "title": own.title, "method": own.path}
    return replace(run, **named, params={}, settled_by="", notes=(note,))


def _shown(exhibit: Table, own: Own) -> Table:
    """An exhibit with the method in its last row, if it shows what the method is like."""
    params = exhibit.params
    if exhibit.kind not in KINDS or own.like not in exhibit.labels or _is_special(params):
        return exhibit
    if exhibit.kind == "sweep":
        if params.get("of") != "federation":  # a hyper-parameter, which another method has not
            return exhibit
        params = {**params, "methods": [*params["methods"], own.path]}
    return replace(exhibit, labels=(*exhibit.labels, own.label), params=params)


def _is_special(params: Mapping) -> bool:
    """Whether an exhibit shows predictors that not every method has."""
    protocol, group = params.get("protocol", "default"), params.get("group", "seen")
    return protocol != "default" or "protocols" in params or group == "unseen"


def _canonical(path: str) -> str:
    """A path as specifications name it: relative to the checkout if it is in there."""
    whole = Path(os.path.normpath(ROOT / Path(path).expanduser()))
    return str(whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else whole)
