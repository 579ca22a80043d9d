"""The part of the papers that a configuration selects: seeds, rounds, federations, labels."""

import dataclasses
from collections.abc import Mapping, Sequence

from fedlib.spec import Data, Paper, Run
from fedlib.spec.exhibits import Exhibit
from fedlib.workflow import overrides, own_methods


def selected(paper: Paper, config: Mapping) -> Paper:
    """The paper with the configuration's seeds, rounds and selection."""
    wanted = config["federations"], config["labels"]
    seeds = config["seeds"]
    runs = tuple(
        _changed(run, config["rounds"], config["precision"], seeds)
        for run in paper.runs
        if _passes(run.federation, wanted[0])
        and (_passes(run.label, wanted[1]) or own_methods.is_own(run))
        and _passes(f"{paper.name}/{run.federation}/{run.label}", config["runs"])
    )
    used = {run.federation for run in runs}
    return dataclasses.replace(
        paper,
        seeds=tuple(paper.seeds if seeds is None else seeds),
        data=tuple(
            _from_source(data, config["sources"]) for data in paper.data if data.name in used
        ),
        runs=runs,
        tables=_narrowed(paper.tables, runs),
        figures=_narrowed(paper.figures, runs),
    )


def families(paper: Paper) -> list[Data]:
    """The federations without those that differ from an earlier one in one parameter alone."""
    first: dict[str, Data] = {}
    for data in paper.data:
        first.setdefault(data.describe()["family"], data)
    return list(first.values())


def _from_source(data: Data, sources: list[str] | None) -> Data:
    """The federation, made from the raw files that the configuration prefers, and noted so."""
    for dataset, _, source in (choice.partition(":") for choice in sources or ()):
        declared = data.params.get("source")
        if dataset == data.dataset and source != declared:
            note = f"{data.title}: from the raw files of source {source} instead of {declared}."
            params = {**data.params, "source": source}
            return dataclasses.replace(data, params=params, notes=(*data.notes, note))
    return data


def _passes(value: str, wanted: list[str] | None) -> bool:
    return wanted is None or value in wanted


def _changed(run: Run, cap: int | None, precision: str | None, seeds: list[int] | None) -> Run:
    """The run with at most `cap` rounds, in another precision, with the paper's seeds if asked."""
    return dataclasses.replace(
        run,
        rounds=run.rounds if cap is None else min(cap, run.rounds),
        precision=precision or run.precision,
        seeds=run.seeds if seeds is None else (),
    )


def _narrowed(exhibits: Mapping[str, Exhibit], runs: tuple[Run, ...]) -> dict[str, Exhibit]:
    """The exhibits of these runs; dropped if nothing is left to show."""
    narrowed = {name: exhibit.narrowed(runs) for name, exhibit in exhibits.items()}
    return {name: exhibit for name, exhibit in narrowed.items() if exhibit is not None}


def folder_note(config: Mapping, idle: Sequence[str] = ()) -> str:
    """How a folder of results differs from the scale's own, "" if it does not.

    Args:
      idle: overrides that change nothing.
    """
    rounds, precision = config["rounds"], config["precision"]
    notes = []
    if rounds is not None:
        notes.append(
            f"runs are stopped after at most {rounds} communication round{'s' * (rounds > 1)}, and "
            "their learning-rate schedules are not shortened with them"
        )
    if precision is not None:
        notes.append(f"models are computed in {precision}")
    changes = [text for text in config["set"] or () if text not in idle]
    notes += [overrides.note(changes)] if changes else []
    return "; ".join(notes)
