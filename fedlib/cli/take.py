"""Bring the runs of kept results into results/FOLDER, as if they had been made here.

Specification and data must be the plan's: a run that differs is refused with a line, and the others
are taken. Its code may differ: the report lists the commit of each run. Weights, histories and
tunings that were made here are never replaced, and a run that has other numbers here is an error. A
small file stands in for the weights, which packs lack; nothing is trained again unless something
needs them.
"""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import h5py

from fedlib import files, locks, seals
from fedlib.cli import arguments, run
from fedlib.errors import DataError
from fedlib.report import packs
from fedlib.report.pages.origin import attributes
from fedlib.results import opened
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
    bring(plan, args.source, run.configured(args, plan))


def bring(plan: Plan, source: Path, configured: list[str]) -> None:
    """Take the tunings and runs of a plan from kept results, and print the result.

    Args:
      configured: Snakemake's options with the configuration.

    Raises:
      DataError: if there are none, or some are refused.
    """
    done, refused = Counter(), []
    with packs.opened(source) as pack:
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
    missing = [path for path in read - {*plan.tuned("choice")} if not Path(path).exists()]
    if missing:
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
      DataError: if it is not the plan's, or has other numbers here.
    """
    if not all(path.exists() for path in result.theirs.values()):
        return "unfinished there"
    _adopt(plan, result)
    here = {name: path for name, path in result.ours.items() if path.exists()}
    for name, path in here.items():
        _check_numbers(result.theirs[name], path)
    weights = [Path(plan.path("state", **result.job))] if "history" in result.ours else []
    is_own = any(path.exists() for path in (*here.values(), *weights))
    is_own = is_own and not any(map(seals.is_stand_in, weights))
    same = [files.digest(path) == files.digest(result.theirs[name]) for name, path in here.items()]
    if here == result.ours and (is_own or all(same)):
        return "here already"
    if is_own:
        return "begun here, and left so"
    with files.folder_instead(next(iter(result.ours.values())).parent) as new:
        for path in result.theirs.values():
            shutil.copyfile(path, new / path.name)
        for path in weights:
            seals.stand_in(new / path.name, _state(result.theirs["history"]))
    return "taken"


def _adopt(plan: Plan, result: PackedResult) -> None:
    """Check that a result is the plan's, and let its copy in the pack say that its code is.

    Raises:
      DataError: if its specification or an input differs, or a file is damaged.
    """
    found = [(stage, _checked(plan, stage, result)) for stage in result.stages]
    for stage, made in found:  # after all checks: the evaluation was made from the history as it is
        code, read = plan.code(stage, **result.job), _inputs(plan, stage, result)
        file = result.theirs[FILES[stage][-1]]
        seals.write_made(file, made._replace(code=code, inputs=seals.contents(*read)))


def _checked(plan: Plan, stage: str, result: PackedResult) -> seals.Made:
    """What the result of a stage was made of; see `_adopt`."""
    for name in FILES[stage]:
        seals.checked(file := result.theirs[name])
    made, read = seals.made(file), _inputs(plan, stage, result)
    if made is None or made.spec != plan.digest(stage, **result.job):
        spec = json.loads(plan.spec(stage, **result.job))
        fields = freshness.compare(attributes(file)[1], spec) if stage != "tune" else iter(())
        field, there, here = next(fields, ("its specification", "another", "the plan's"))
        raise DataError(f"{file} is refused: {field} is {there} there and {here} here")
    if made.inputs != seals.contents(*read):
        raise DataError(f"{file} is refused: it was made from others than {', '.join(read)}")
    if stage == "train" and made.beside != seals.combined([_state(file)]):
        raise DataError(f"{file} is refused: it does not say what its weights are")
    return made


def _inputs(plan: Plan, stage: str, result: PackedResult) -> list[str]:
    """The files that a stage reads; of the result's own ones, those in the pack."""
    own = {str(path): str(result.theirs[name]) for name, path in result.ours.items()}
    return [own.get(path, path) for path in freshness.list_inputs(plan, stage, result.job)]


def _state(history: Path) -> str:
    """Digest of the weights of a history."""
    return str(attributes(history)[0].get("state_sha256"))


def _check_numbers(theirs: Path, ours: Path) -> None:
    """Raise DataError if two results of one specification have different numbers."""
    if theirs.suffix != ".h5" or seals.made(ours).spec != seals.made(theirs).spec:
        return
    if _numbers(theirs) != _numbers(ours):
        raise DataError(f"{ours} has other numbers than {theirs}: delete it to take those")


def _numbers(path: Path) -> dict[str, bytes]:
    """All arrays of a result, without its provenance."""
    arrays: dict[str, bytes] = {}

    def add(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()].tobytes()

    with opened(path) as file:
        file.visititems(add)
    return arrays
