"""What a configuration takes of what the papers declare: seeds, rounds, federations, labels."""

import dataclasses
from collections.abc import Mapping, Sequence, Set

from fedlib.spec import Data, Paper, Run, Table
from fedlib.workflow import overrides, own_methods

AGAINST = ("client_differences", "gains")  # kinds of exhibits that compare the run `of` with others
# Kinds that show what was recorded on the way, and the hyper-parameter with its rounds.
RECORDED = {"tables_over_time": "table_rounds"}
OVER_ROUNDS = ("tables_over_time", "weights_over_rounds")  # which name the rounds to show


def selected(paper: Paper, config: Mapping) -> Paper:
    """The paper as the configuration has it: its seeds and rounds, and what it selects."""
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


def ends_too_early(run: Run, exhibit: Table) -> bool:
    """Whether a run ends before the first round after which it records what the exhibit shows."""
    rounds = run.params.get(RECORDED.get(exhibit.kind, ""), ())
    return bool(rounds) and min(rounds) > run.rounds


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


def _narrowed(exhibits: Mapping[str, Table], runs: tuple[Run, ...]) -> dict[str, Table]:
    """The exhibits of what these runs have; dropped if nothing is left to show."""
    narrowed = {}
    for name, exhibit in exhibits.items():
        pairs = {(r.federation, r.label) for r in runs if not ends_too_early(r, exhibit)}
        shown = [(f, label) for f in exhibit.federations for label in exhibit.labels]
        shown = _compared(exhibit, [pair for pair in shown if pair in pairs])
        if shown:
            federations, labels = ({pair[i] for pair in shown} for i in (0, 1))
            params = _without({*exhibit.federations} - federations, exhibit.params)
            if exhibit.kind in OVER_ROUNDS:
                params = _reached(params, [r for r in runs if (r.federation, r.label) in shown])
            narrowed[name] = dataclasses.replace(
                exhibit,
                labels=tuple(label for label in exhibit.labels if label in labels),
                federations=tuple(f for f in exhibit.federations if f in federations),
                params=params,
            )
    return narrowed


def _reached(params: Mapping, runs: list[Run]) -> Mapping:
    """The params without rounds to show that these runs, which may be stopped early, never see."""
    match params.get("rounds"):
        case None:
            return params
        case Mapping() as rounds:
            reached = {
                name: _until(some, [run for run in runs if run.federation == name])
                for name, some in rounds.items()
            }
        case rounds:
            reached = _until(rounds, runs)
    return {**params, "rounds": reached}


def _until(rounds: list[int], runs: list[Run]) -> list[int]:
    """Of the rounds those that all runs come to."""
    return [number for number in rounds if all(number <= run.rounds for run in runs)]


def _without(federations: Set[str], params: Mapping) -> dict:
    """The params without what they say by the names of these federations."""
    return {
        key: {name: x for name, x in value.items() if name not in federations}
        if isinstance(value, Mapping)
        else value
        for key, value in params.items()
    }


def _compared(exhibit: Table, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of (federation, label), those with which something is left to be set against each other."""
    params, there = exhibit.params, {federation for federation, _ in pairs}
    if exhibit.kind in AGAINST:  # on each federation a run and the best of others, or of groups
        groups = [{*group["labels"]} for group in params.get("groups", ())]
        for name in sorted(there):
            labels = {label for federation, label in pairs if federation == name}
            others = labels - {params["of"]}
            if params["of"] not in labels or not all(x & others for x in groups or [others]):
                pairs = [pair for pair in pairs if pair[0] != name]
    elif exhibit.kind == "global_accuracy":  # columns of a federation, or of one minus another
        columns = [{c["federation"], c.get("minus") or c["federation"]} for c in params["columns"]]
        pairs = pairs if any(column <= there for column in columns) else []
    elif exhibit.kind == "gain_bars":  # pairs of federations
        pairs = pairs if any({*pair.values()} <= there for pair in params["pairs"]) else []
    return pairs


def goes_on(run: Run, other: Run) -> bool:
    """Whether `run` begins like `other`, and is evaluated whenever that is."""
    return (
        (other.federation, other.method) == (run.federation, run.method)
        and (other.rounds % run.evaluate_every == 0 or other.rounds == run.rounds)
        and run.trains_like(other)
    )


def folder_note(config: Mapping, idle: Sequence[str] = ()) -> str:
    """What makes a folder of results differ from its scale's own, "" if nothing does.

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
