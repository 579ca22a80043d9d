"""A user's own methods, from files outside of the package: `methods: [mine/fedper.py]`.

An entry is PATH or PATH:LABEL. The file has a class with the file's name, derived from
`fedlib.methods.base.Method`. It runs wherever a paper has a run of that label ("fedavg" by
default), with the same data, model, rounds, seeds and local solver. Every table and figure that has
room for others shows it beside that run. If a server tests the methods, a method without a
predictor for a server is left out. Its runs have the label `PREFIX` and the name of the file, for
other parts of a configuration: set=[own-fedper.params.k=3].

The file is parsed and not imported here, because a plan imports the standard library only.
`fedlib.workflow.preflight` builds its methods. The file is a root of its runs' code, so an edit
repeats only those runs.
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
from fedlib.spec import Paper, Run
from fedlib.workflow.provenance import ROOT, registered

LIKE = "fedavg"
PREFIX = "own-"
EXAMPLE = "mine/fedper.py or mine/fedper.py:fedem"


class OwnMethod(NamedTuple):
    """A method from a file.

    Attributes:
      text: as given.
      path: of the file, relative to the checkout if it is in there; the method of its runs.
      like: label of the runs whose settings it takes.
      label, title: of its own runs.
    """

    text: str
    path: str
    like: str
    label: str
    title: str


def parse(text: str) -> OwnMethod:
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
    return OwnMethod(text, path, like or LIKE, label, title_of(path))


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
        paper can run or test.
    """
    methods = [parse(text) for text in given]
    found = dict(papers)
    for number, own in enumerate(methods):
        if own.label in [other.label for other in methods[:number]]:
            raise ConfigError(f"methods: two are called {Path(own.path).stem}; rename one")
        before = found
        found = {name: _with(paper, own) for name, paper in found.items()}
        if found == before and _have(papers.values(), own):
            raise ConfigError(f"methods: {own.text}: {', '.join(papers)}: {_untested(own)}")
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


def remarks(
    papers: Mapping[str, Paper], declared: Mapping[str, Paper], given: Iterable[str]
) -> Iterator[str]:
    """Lines on which of `papers`, a selection of `declared`, run each of these methods."""
    for own in map(parse, given):
        where = [f"{p.name}/{r.federation}" for p in papers.values() for r in p.runs if _of(r, own)]
        yield f"{own.title} of {own.path}, run like {own.like} on {', '.join(where)}"
        for name in (p.name for p in papers.values() if not any(_of(r, own) for r in p.runs)):
            there = _have([declared[name]], own)
            why = _untested(own) if there else f"there is no run {own.like}"
            yield f"{own.title} is not in {name}: {why}"


def finished(runs: Path) -> set[str]:
    """Labels of such methods of which a paper's folder of runs has a finished run."""
    files = runs.glob(f"*/{PREFIX}*/seed*/evaluation.h5")
    return {file.relative_to(runs).parts[1] for file in files}


def _of(run: Run, own: OwnMethod) -> bool:
    return run.label == own.label


def _have(papers: Iterable[Paper], own: OwnMethod) -> bool:
    """Whether papers have a run whose settings a method could take."""
    return any(run.label == own.like for paper in papers for run in paper.runs)


def _untested(own: OwnMethod) -> str:
    return (
        f"the server has the test examples there, and `protocols` of {own.title} name no predictor "
        "for the group server"
    )


def _with(paper: Paper, own: OwnMethod) -> Paper:
    """A paper with a method, beside each run whose settings it takes."""
    alike = [run for run in paper.runs if run.label == own.like]
    if not alike:
        return paper
    if own.title in [run.title for run in paper.runs]:
        raise ConfigError(
            f"methods: {own.path}: {paper.name} has a run that tables call {own.title} already; "
            "call the file and its class otherwise"
        )
    who = own.label, own.path, own.title, own.like
    beside = replace(
        paper,
        tables={name: table.beside(*who) for name, table in paper.tables.items()},
        figures={name: figure.beside(*who) for name, figure in paper.figures.items()},
    )
    groups = _groups(own.path, own.title)
    runs = [
        _like(run, own)
        for run in alike
        if groups is None or groups.issuperset(beside.tested(run.federation, own.label))
    ]
    return replace(beside, runs=(*paper.runs, *runs)) if runs else paper


def _groups(path: str, name: str) -> frozenset[str] | None:
    """The groups that a class of a file has predictors for by its `protocols`, or its bases'.

    None if the text does not tell, so that it is found out when the method is built.
    """
    body = ast.parse((ROOT / path).read_bytes()).body
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    for statement in classes[name].body:
        match statement:
            case (
                ast.AnnAssign(target=ast.Name(id="protocols"), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id="protocols")], value=value)
            ):
                return _literal_groups(value)
            case ast.FunctionDef(name="protocols"):
                return None
    imported = {
        alias.asname or alias.name: (f"{node.module}".replace(".", "/") + ".py", alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for base in [base.id for base in classes[name].bases if isinstance(base, ast.Name)]:
        file, called = (path, base) if base in classes else imported.get(base, ("", base))
        if file and (ROOT / file).exists() and (found := _groups(file, called)) is not None:
            return found
    return None


def _literal_groups(value: ast.expr) -> frozenset[str] | None:
    try:
        return frozenset(group for group, found in ast.literal_eval(value).items() if found)
    except (AttributeError, ValueError):
        return None


def _like(run: Run, own: OwnMethod) -> Run:
    """A run of the method that is otherwise as `run`; its hyper-parameters are its defaults."""
    note = f"A method of your own, from {own.path}; settings are those of {run.title}."
    named = {"label": own.label, "title": own.title, "method": own.path}
    return replace(run, **named, params={}, settled_by="", notes=(note,))


def _canonical(path: str) -> str:
    """A path as specifications name it: relative to the checkout if it is in there."""
    whole = Path(os.path.normpath(ROOT / Path(path).expanduser()))
    return str(whole.relative_to(ROOT) if whole.is_relative_to(ROOT) else whole)
