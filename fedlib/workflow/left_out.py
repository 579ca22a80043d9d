"""Runs of a user's methods that cannot be made on some federations, which the plan leaves out.

`fedlib.workflow.preflight` finds them, and notes them in results/FOLDER/left_out.json for every
process that makes the plan. A note holds while the run's code and settings are the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.run_spec import is_file
from fedlib.spec import Paper, Run, RunName
from fedlib.workflow.provenance import code_digest

SCRIPT = "scripts/check.py"
SHOWN = 3  # labels that a line suggests


class Noted(NamedTuple):
    """Why a run cannot be made, and the `key` of what was tried."""

    key: str
    why: str


def without(
    papers: Mapping[str, Paper], path: str | Path
) -> tuple[dict[str, Paper], dict[RunName, str]]:
    """The papers without the runs that are noted in a file, and the reasons for these."""
    notes = _read(path)
    gone = {
        name: notes[str(name)].why
        for paper in papers.values()
        for name, run in paper.named().items()
        if str(name) in notes and notes[str(name)].key == _key(paper, run)
    }
    left = {
        key: replace(paper, runs=tuple(r for name, r in paper.named().items() if name not in gone))
        for key, paper in papers.items()
    }
    return left, gone


def note(path: str | Path, papers: Mapping[str, Paper], why: Mapping[RunName, str]) -> None:
    """Note further runs with the reasons why they cannot be made."""
    new = {
        str(name): Noted(_key(papers[name.paper], papers[name.paper].named()[name]), reason)
        for name, reason in why.items()
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    seals.write_json(path, {name: list(noted) for name, noted in {**_read(path), **new}.items()})


def instead(names: Iterable[RunName], declared: Mapping[str, Paper], method: str) -> str:
    """What to give to run a method like others that are not on these federations either.

    Args:
      names: runs of the method that are left out.
    """
    gone = {(name.paper, name.federation) for name in names}
    found: dict[str, set] = {}
    for paper in dict.fromkeys(paper for paper, _ in gone):
        for run in declared[paper].runs:
            found.setdefault(run.label, set()).add((paper, run.federation))
    fit = [label for label in found if found[label].isdisjoint(gone)]
    most = sorted(fit, key=lambda label: -len(found[label]))[:SHOWN]
    given = " or ".join(f"methods=[{method}:{label}]" for label in most)
    return f"; {given} runs it like a method that is not there either" if given else ""


def _read(path: str | Path) -> dict[str, Noted]:
    return {name: Noted(*noted) for name, noted in seals.remembered(path).items()}


def _key(paper: Paper, run: Run) -> str:
    """Digest of what decides whether a user's run can be made, "" for other runs."""
    if not is_file(run.method):
        return ""
    spec = replace(run.spec(0), rounds=0, evaluate_every=0).to_json()
    [data] = [data for data in paper.data if data.name == run.federation]
    code = code_digest(SCRIPT, *run.roots("train"))
    return seals.spec_digest([spec, data.spec(0), run.tuning, code])
