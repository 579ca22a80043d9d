"""Builds every method, model, solver and partition of a plan before anything runs.

It also tries users' methods, and models with frozen weights, on a few made-up examples. A method
of a user's that cannot run on some federations is left out there.

Without this check a job would find a mistake in a declaration, perhaps hours later. Building needs
libraries that a plan does not, so another process does it (`scripts/check.py`). Its answers are
cached by specification and code, so a plan with nothing new only reads the cache.
"""

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from fedlib import seals
from fedlib.data import downloads
from fedlib.environment import cache_folder
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.run_spec import is_file
from fedlib.spec import RunName
from fedlib.workflow import own_methods
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT, code_digest, meanings

LEAST_FREE = 10_000_000  # bytes: with fewer Snakemake and Python fail with pages of text

SCRIPT = "scripts/check.py"
SHOWN = 5  # complaints shown; further ones are only counted
KILLED = ": there may be too little memory; stop other jobs or get more, and run again"


def check(plan: Plan) -> Plan:
    """Build everything not built before, and check that folders can be read and written.

    Returns:
      The plan without runs of a user's method that cannot be made.

    Raises:
      ConfigError: if something cannot be built, with the paper and the run, table or figure; or for
        a folder that is missing or not writable.
    """
    _check_folders(plan)
    _check_own_files(plan)
    known = _open_cache()
    new: dict[tuple, tuple[dict, list[str]]] = {}
    for where, built, trial in list_builds(plan):
        if not known.get(built):
            new.setdefault(built, (trial, []))[1].append(where)
    meanings().write()  # for the jobs, which parse the same code
    own, wrong = {*_own_places(plan)}, {}
    asked = [(stage, trial | json.loads(text)) for (stage, text, *_), (trial, _) in new.items()]
    for (built, (_, where)), (error, lasts) in zip(new.items(), _answers(asked), strict=True):
        if error and not (lasts and own.issuperset(where)):
            wrong.setdefault(error, []).extend(where)
        elif lasts:
            known.add(built, error or True)
    known.write()
    if wrong:
        lines = [f"{_names(where)}: {answer}" for answer, where in wrong.items()]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        raise ConfigError("\n  ".join([*lines[:SHOWN], *more]))
    if gone := unfit(plan):
        plan = Plan(plan.config, plan.finished, plan.left_out | gone)
    for method in map(own_methods.parse, plan.config["methods"] or ()):
        why = [*own_methods.reasons(method, plan.left_out)]
        if why and method.label not in {name.label for name in plan.runs}:
            raise ConfigError("\n  ".join(why))
    return plan


def unfit(plan: Plan) -> dict[RunName, str]:
    """The runs of users' methods that an earlier check found impossible, and why."""
    if not (own := _own_places(plan)):
        return {}
    known = _open_cache()
    found = {own[where]: known.get(built) for where, built, _ in list_builds(plan) if where in own}
    return {name: why for name, why in found.items() if isinstance(why, str)}


def _own_places(plan: Plan) -> dict[str, RunName]:
    """The runs of users' methods, by the place of their declarations."""
    return {_place(name): name for name, run in plan.runs.items() if own_methods.is_own(run)}


def _open_cache() -> seals.Cache:
    """For each thing that was built, by its code: True, or the reason why it cannot be built."""
    return seals.Cache(cache_folder() / "built.json")


def _check_folders(plan: Plan) -> None:
    """Raise ConfigError for folders that would make Snakemake or a job fail with pages of text."""
    downloads.check_mirror(plan.config["mirror"])
    try:
        getpass.getuser()
        cache = cache_folder().with_name("snakemake")
    except (KeyError, OSError, RuntimeError):  # of the number of a user whom no account names
        raise ConfigError("this user has no account; set USER and HOME") from None
    if re.search("[{}]", str(ROOT)):
        raise ConfigError(f"{ROOT}: move the checkout to a path without braces, as Snakemake needs")
    wanted = {cache: "Snakemake keeps its cache in it; set XDG_CACHE_HOME to another"}
    for receipt in plan.files("receipt"):
        if not Path(receipt).exists():
            wanted[Path(receipt).parent] = f"{receipt} is to be written; set raw to another"
    for folder, why in wanted.items():
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(f"{there} is not writable, and {why}, or make it writable")
    if re.search("[\ud800-\udfff]", here := os.getcwd()):
        raise ConfigError(f"{here}: work in a folder whose path is UTF-8, as pyarrow needs")
    if (free := shutil.disk_usage(".").free) < LEAST_FREE:
        raise ConfigError(f"the disk of {Path.cwd()} has {free / 1e6:.1f} MB free; make room first")


def _check_own_files(plan: Plan) -> None:
    """Raise ConfigError if a federation is still to be cut, and the user's files of it are missing.

    DataError for files that cannot be data.
    """
    for names in plan.partitions():
        data = plan.data(names["paper"], names["federation"])
        if not (local := downloads.table(data.dataset).local):
            continue
        raw, source = plan.config["raw"], data.params.get("source")
        folder = Path(raw) / local / str(source or "")
        if not folder.is_dir() and not Path(plan.path("manifest", **names)).exists():
            raise ConfigError(
                f"{folder} does not exist, from which {data.name} is cut: docs/data.md"
            )
        downloads.own_files(data.dataset, source, raw)  # raises DataError


def list_builds(plan: Plan) -> Iterator[tuple[str, tuple[str, ...], dict]]:
    """Everything that a plan builds, once for all seeds: place of its declaration, a key, a trial.

    The key is the stage that builds it, canonical JSON of its specification, and code digests. The
    trial is what the specification lacks for `fedlib.forecast.own_trial`.
    """
    script, raw = code_digest(SCRIPT), plan.config["raw"]
    state = cache(lambda dataset, source: downloads.state(dataset, source, raw))
    for name, run in plan.runs.items():
        if plan.is_kept(*name):
            continue
        spec = replace(run.spec((run.tuning or {}).get("seed", 0)), tuning=run.tuning).to_json()
        spec |= {"groups": plan.papers[name.paper].required_groups(name.federation, name.label)}
        data = plan.data(name.paper, name.federation)
        how = {"data": data.spec(0), "executor": plan.config["executor"], "raw": raw}
        if is_file(run.method):  # what it does may depend on the data
            spec |= {"trial": {**how, "state": state(data.dataset, data.params.get("source"))}}
        stage = "tune" if run.tuning else "train"
        code = plan.code(stage, **name._asdict())
        yield _place(name), (stage, canonical_json(spec), code, script), {"trial": how}
    for name, paper in plan.papers.items():
        for data in paper.data:
            code = plan.code("partition", paper=name, federation=data.name)
            where = f"papers.{name}.data[{data.name}]"
            yield where, ("partition", canonical_json(data.spec(0)), code, script), {}


def _place(name: RunName) -> str:
    """Where a run is declared, for messages."""
    return f"papers.{name.paper}.runs[{name.federation}/{name.label}]"


def _answers(wanted: list[tuple[str, dict]]) -> list[tuple[str, bool]]:
    """What is wrong with each ("" if nothing) and whether that lasts, from `scripts/check.py`."""
    if not wanted:
        return []
    how = {"input": json.dumps(wanted), "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, str(ROOT / SCRIPT)], **how)
    if (signal := -done.returncode) > 0:
        raise ConfigError(f"{SCRIPT} was ended by signal {signal}{KILLED if signal == 9 else ''}")
    if done.returncode:
        raise RuntimeError(f"{SCRIPT} failed:\n{done.stderr}")
    for line in dict.fromkeys(done.stderr.splitlines()):
        print(line, file=sys.stderr)
    return json.loads(done.stdout)


def _names(where: list[str]) -> str:
    """The first of several declarations, and the number of further ones."""
    return f"{where[0]} and {len(where) - 1} more" if where[1:] else where[0]
