"""Add finished runs of other machines to results/FOLDER, as if they had been made here.

They come from folders of results, such as results/full of another clone, and from kept results
(`make keep`). Specification, code and shards must be the plan's, and every seal must hold; a run
that differs is refused with a line that names the field, and the others are taken. Runs that are
already here with the same numbers stay as they are. If a run comes without weights, a small file
stands in for them, and nothing is trained again unless something needs the weights.
"""

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py

from fedlib import files, locks, seals
from fedlib.cli import arguments, run
from fedlib.errors import DataError
from fedlib.report import packs
from fedlib.report.pages.origin import attributes
from fedlib.results import opened
from fedlib.workflow import stale, why
from fedlib.workflow.declarations import Training
from fedlib.workflow.layout import RESULTS_OF_RUNS
from fedlib.workflow.plan import Plan

WEIGHTS = "state.pt"
MANIFEST, STATE = "manifest_sha256", "state_sha256"  # in the provenance of results


class RunFolder(NamedTuple):
    """The folder of a run with one seed.

    Attributes:
      runs: the folder of all runs.
    """

    runs: Path
    training: Training

    def file(self, name: str) -> Path:
        """One of its files, such as "history.h5"."""
        *names, seed = map(str, self.training)
        return self.runs.joinpath(*names, f"seed{seed}", name)

    @property
    def results(self) -> list[tuple[str, Path]]:
        """Its results, each with the stage that makes it."""
        return [(stage, self.file(f"{name}.h5")) for stage, name in RESULTS_OF_RUNS.items()]

    @property
    def is_finished(self) -> bool:
        """Whether it is trained and evaluated."""
        return all(path.exists() for _, path in self.results)

    @property
    def has_weights(self) -> bool:
        """Whether its final state exists and is not a stand-in."""
        return self.file(WEIGHTS).exists() and not seals.is_stand_in(self.file(WEIGHTS))

    def copy_results(self, to: "RunFolder") -> None:
        """Copy its results; the history last, because without it there is no finished run."""
        theirs, ours = ([file for _, file in folder.results] for folder in (self, to))
        copy(reversed(theirs), reversed(ours))

    def copy_weights(self, to: "RunFolder") -> None:
        """Copy its final state, which must be that of the history."""
        expected = attributes(self.file("history.h5"))[0][STATE]
        with files.atomic(to.file(WEIGHTS)) as temporary:
            shutil.copyfile(self.file(WEIGHTS), temporary)
            _same(self.file(WEIGHTS), [("sha256", files.digest(temporary), expected)])


def main(args: argparse.Namespace) -> None:
    """Gather, and print the result."""
    plan = arguments.plan(args)
    locks.hold_folder(command=args.said)
    bring(plan, args.sources, run.configured(args, plan))


def bring(plan: Plan, sources: Sequence[Path], configured: list[str]) -> None:
    """Gather the runs of a plan, print the result, and refuse runs that differ.

    Args:
      configured: Snakemake's options with the configuration.
    """
    with ExitStack() as stack:
        places = [stack.enter_context(place(source)) for source in sources]
        for runs in places:
            take_tunings(plan, runs.parent / packs.TUNED)
        _prepare(plan, places, configured)
        done, refused = gather(plan, places)
        counts = [f"{number} {what}" for what, number in done.items()]
        print(f"results/{plan.folder}, runs: {', '.join(counts) or 'none to take'}", flush=True)
        if refused:
            raise DataError("\n".join(refused))


def _prepare(plan: Plan, places: list[Path], configured: list[str]) -> None:
    """Make the inputs of tunings that are here, and of all runs finished in `places`.

    Nothing is tuned, which may take days: `check` refuses runs without their tuning.
    """
    jobs = [("train", there.training._asdict()) for there, _ in finished(plan, places)]
    jobs += [("tune", job) for job in plan.tunings() if Path(plan.path("choice", **job)).exists()]
    inputs = {path for stage, job in jobs for path in stale.inputs(plan, stage, job)}
    missing = sorted(path for path in inputs - {*plan.tuned("choice")} if not Path(path).exists())
    if missing:  # made later, they would repeat all tuning and training
        run.start([*run.SNAKEMAKE, *missing, *configured])


def take_tunings(plan: Plan, there: Path) -> None:
    """Copy the plan's missing tunings from the folder of tunings `there`.

    Tunings of another specification or code are not copied, and their runs are refused.

    Raises:
      DataError: for a damaged file.
    """
    here = Path(plan.path("results")) / packs.TUNED
    for job in plan.tunings():
        theirs, ours = tuning(there, job), tuning(here, job)
        if not all(file.exists() for file in theirs):
            continue
        for file in theirs:
            seals.checked(file)
        made = seals.made(theirs[1])
        wanted = plan.digest("tune", **job), plan.code("tune", **job), seals.contents(theirs[0])
        is_new = not all(file.exists() for file in ours)
        if is_new and made and (made.spec, made.code, made.beside) == wanted:
            copy(theirs, ours)


def tuning(folder: Path, job: dict) -> list[Path]:
    """The files of a tuning in a folder of tunings: its choice, and its trials."""
    return [folder.joinpath(*job.values(), f"{name}.json") for name in ("choice", "trials")]


def copy(sources: Iterable[Path], targets: Iterable[Path]) -> None:
    """Copy sealed files, one after the other."""
    for source, target in zip(sources, targets, strict=True):
        content = seals.checked(source)
        with files.atomic(target) as temporary:
            temporary.write_bytes(content)


def finished(plan: Plan, places: Sequence[Path]) -> Iterator[tuple[RunFolder, RunFolder]]:
    """Every run of the plan that is finished in one of these places: its folders there and here."""
    for here in of_plan(plan):
        for there in (here._replace(runs=runs) for runs in places):
            if there.is_finished:
                yield there, here


def of_plan(plan: Plan) -> list[RunFolder]:
    """The folders of all runs of a plan."""
    runs = Path(plan.path("results")) / packs.RUNS
    return [RunFolder(runs, training) for training in plan.trainings()]


def gather(plan: Plan, places: Sequence[Path]) -> tuple[Counter, list[str]]:
    """Take the plan's runs -> (numbers of runs by outcome, reasons of refusals)

    Args:
      places: folders of runs, see `place`; the shards of their finished runs must be here.
    """
    done, refused = Counter(), []
    for there, here in finished(plan, places):
        try:
            check(plan, there)
            done["here already" if _is_there(plan, there, here) else "taken"] += 1
        except DataError as error:
            refused.append(str(error))
    found = sum(len([*runs.glob("*/*/*/seed*/evaluation.h5")]) for runs in places)
    if others := found - done.total() - len(refused):
        done["of other configurations, left where they are"] = others
    return done, refused


@contextmanager
def place(source: Path) -> Iterator[Path]:
    """The folder of runs in a folder of results or of kept results; a pack is unpacked meanwhile.

    Errors about files of a pack name them by the path of its archive.

    Raises:
      DataError: if there are no runs.
    """
    if (source / packs.RUNS).is_dir():
        yield source / packs.RUNS
        return
    for pack in (source, source / packs.FOLDER):
        if (pack / packs.ARCHIVE).exists():
            with packs.opened(pack) as folder:
                try:
                    yield folder / packs.RUNS
                except DataError as error:
                    text = str(error).replace(str(folder), str(pack / packs.ARCHIVE))
                    raise DataError(text) from None
            return
    raise DataError(
        f"{source} has no runs: FROM names folders of results, such as ../other/results/full, or "
        "of what is kept, such as docs/results/full/pfedmm; packs of older versions have no runs"
    )


def check(plan: Plan, there: RunFolder) -> None:
    """Check that a finished run is the plan's.

    Raises:
      DataError: for the first field that differs, or a damaged file.
    """
    job = there.training._asdict()
    states, histories = [], {plan.path("history", **job): str(there.file("history.h5"))}
    for stage, file in there.results:
        read = [histories.get(path, path) for path in stale.inputs(plan, stage, job)]
        provenance, spec = attributes(file)
        made = seals.made(file)
        _same(file, why.differences(spec, json.loads(plan.spec(stage, **job))))
        if made is None or made.spec != seals.spec_digest(spec):
            raise DataError(f"{file} is refused: it does not say what it was made of")
        manifest = files.digest(read[0])
        _same(file, [(f"{MANIFEST}, of the shards,", provenance.get(MANIFEST), manifest)])
        _same(file, [("the digest of the code", made.code, plan.code(stage, **job))])
        if choices := [x for x in plan.choice(**job) if not Path(x).exists()]:
            raise DataError(
                f"{file} is refused: {choices[0]} is missing, as the tuning there is missing, too, "
                "of another specification or of other code"
            )
        _same(file, [("the digest of its inputs", made.inputs, seals.contents(*read))])
        states.append(provenance.get(STATE))
    if states[0] != states[1]:
        raise DataError(f"{file} is refused: its {STATE} is not that of the history beside it")


def _same(file: Path, fields: Iterable[tuple]) -> None:
    """Raise DataError for the first (field, there, here) whose values differ."""
    for field, there, here in fields:
        if there != here:
            raise DataError(f"{file} is refused: {field} is {there} there and {here} here")


def _is_there(plan: Plan, there: RunFolder, here: RunFolder) -> bool:
    """Copy a run unless the plan has it -> whether it had it

    Raises:
      DataError: if the two have different numbers.
    """
    job = there.training._asdict()
    is_new = not here.is_finished
    for (stage, theirs), (_, ours) in zip(there.results, here.results, strict=True):
        code, now = seals.made(theirs).code, plan.code(stage, **job)
        made = None if is_new else seals.made(ours)
        if made is None or made.spec != plan.digest(stage, **job) or made.code not in (code, now):
            is_new = True
        elif made.code == code and _numbers(theirs) != _numbers(ours):
            raise DataError(f"{theirs} and {ours} have different numbers: delete one of them")
    if is_new:
        if there.has_weights:
            there.copy_weights(here)
        else:
            seals.stand_in(here.file(WEIGHTS), attributes(there.file("history.h5"))[0][STATE])
        there.copy_results(here)
    return not is_new


def _numbers(path: Path) -> dict[str, bytes]:
    """All arrays of a result, without its provenance."""
    arrays: dict[str, bytes] = {}

    def add(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()].tobytes()

    with opened(path) as file:
        file.visititems(add)
    return arrays
