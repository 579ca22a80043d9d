"""Bring the runs of kept results into results/FOLDER, as if they had been made here.

Specification and data must be the plan's: a run that differs is refused with a line, and the others
are taken. Its code may differ: the report lists the commit of each run. What was made here is never
replaced. A small file stands in for the weights, which packs lack; nothing is trained again unless
something needs them.
"""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from fedlib import files, locks, seals
from fedlib.cli import arguments, run
from fedlib.errors import DataError
from fedlib.report import packs
from fedlib.report.pages.origin import attributes
from fedlib.workflow import freshness
from fedlib.workflow.plan import Plan

# What packs have of each stage; the last file says what it was made of.
FILES = {"tune": ("choice", "trials"), "train": ("history",), "evaluate": ("evaluation",)}


class PackedResult(NamedTuple):
    """A tuning, or a run with one seed, in a pack.

    Attributes:
      stages: that make it, in their order.
      job: its wildcards.
      theirs: its files in the pack, by name in `fedlib.workflow.layout`.
      ours: the same files here.
    """

    stages: tuple[str, ...]
    job: dict
    theirs: dict[str, Path]
    ours: dict[str, Path]


def main(args: argparse.Namespace) -> None:
    """Take the runs, and print the result."""
    plan = arguments.plan(args)
    locks.hold_folder(command=args.said)
    bring(plan, args.source, run.config_options(args, plan))


def bring(plan: Plan, source: Path, configured: list[str]) -> None:
    """Take the tunings and runs of a plan from kept results, and print the result.

    Args:
      configured: Snakemake's options with the configuration.

    Raises:
      DataError: if there are none, or some are refused.
    """
    done, refused = Counter(), []
    with packs.unpack_runs(source) as pack:
        there = [x for x in results(plan, pack) if any(y.exists() for y in x.theirs.values())]
        _make_inputs(plan, there, configured)
        for result in there:
            try:
                done[take(plan, result)] += 1
            except DataError as error:
                refused.append(str(error))
        folders = {path.parent for path in pack.rglob("*") if path.is_file()}
        done["of other configurations"] = len(folders) - len(there)
        told = ", ".join(f"{number} {what}" for what, number in done.items() if number)
        print(f"results/{plan.folder}, from {source}: {told or 'nothing taken'}", flush=True)
        if refused:
            raise DataError("\n".join(refused))


def _make_inputs(plan: Plan, there: list[PackedResult], configured: list[str]) -> None:
    """Make the shards of what is there; made later, they would repeat it.

    Nothing is tuned, which may take days: a run without its tuning is refused.
    """
    read = {path for x in there for path in freshness.list_inputs(plan, x.stages[0], x.job)}
    if missing := [path for path in read - {*plan.files("choice")} if not Path(path).exists()]:
        run.start([*run.SNAKEMAKE, *sorted(missing), *configured])


def results(plan: Plan, pack: Path) -> list[PackedResult]:
    """All tunings and runs of a plan; each may be missing in the pack, and here."""
    jobs = [(("tune",), job) for job in plan.tunings()]
    jobs += [(("train", "evaluate"), training._asdict()) for training in plan.trainings()]
    found = []
    for stages, job in jobs:
        ours = {x: Path(plan.path(x, **job)) for stage in stages for x in FILES[stage]}
        theirs = {x: pack / ours[x].relative_to(plan.path("results")) for x in ours}
        found.append(PackedResult(stages, job, theirs, ours))
    return found


def take(plan: Plan, result: PackedResult) -> str:
    """Take a tuning or a run, unless it is here -> what became of it

    Raises:
      DataError: if its specification or an input differs, or a file is damaged.
    """
    theirs, ours = result.theirs, result.ours
    if not all(path.exists() for path in theirs.values()):
        return "unfinished there"
    found = [(stage, _check_result(plan, stage, result)) for stage in result.stages]
    weights = [Path(plan.path("state", **result.job))] if "history" in ours else []
    if any(x.exists() and not seals.is_stand_in(x) for x in weights or ours.values()):
        return "here already"
    # After all checks, as the evaluation was made from the history as it is. From now on their code
    # is the plan's.
    for stage, made in found:
        read = seals.contents(*_inputs(plan, stage, result))
        made = made._replace(code=plan.code(stage, **result.job), inputs=read)
        seals.write_origin(theirs[FILES[stage][-1]], made)
    pairs = [(path, theirs[name]) for name, path in ours.items()]
    if all(mine.exists() and files.digest(mine) == files.digest(other) for mine, other in pairs):
        return "here already"
    with files.folder_instead(next(iter(ours.values())).parent) as new:
        for path in theirs.values():
            shutil.copyfile(path, new / path.name)
        for path in weights:
            seals.stand_in(new / path.name, _state(theirs["history"]))
    return "taken"


def _check_result(plan: Plan, stage: str, result: PackedResult) -> seals.Made:
    """What the result of a stage was made of; see `take`."""
    for name in FILES[stage]:
        seals.verify(file := result.theirs[name])
    made, read = seals.origin(file), _inputs(plan, stage, result)
    if made is None or made.spec != plan.digest(stage, **result.job):
        spec = json.loads(plan.spec(stage, **result.job))
        found = attributes(file)[1] if stage != "tune" else spec
        odd = sorted(x for x in {*found, *spec} if found.get(x) != spec.get(x))
        told = [f"{x} is {found.get(x)} there and {spec.get(x)} here" for x in odd]
        raise DataError(f"{file} is refused: {', '.join(told) or 'it is of another tuning'}")
    if made.inputs != seals.contents(*read):
        raise DataError(f"{file} is refused: its inputs were not {', '.join(read)}")
    if stage == "train" and made.beside != seals.combine([_state(file)]):
        raise DataError(f"{file} is refused: it does not say what its weights are")
    return made


def _inputs(plan: Plan, stage: str, result: PackedResult) -> list[str]:
    """The files that a stage reads; of the result's own ones, those in the pack."""
    own = {str(path): str(result.theirs[name]) for name, path in result.ours.items()}
    return [own.get(path, path) for path in freshness.list_inputs(plan, stage, result.job)]


def _state(history: Path) -> str:
    """Digest of the weights of a history."""
    return str(attributes(history)[0].get("state_sha256"))
