"""Builds every method, model, solver and partition of a plan before anything runs.

Otherwise a job would find a mistake in a declaration, maybe hours later. Building needs libraries
that a plan does not, so another process does it (`scripts/check.py`). Successes are cached by
specification and code, so a plan with nothing new only reads the cache.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedlib import seals
from fedlib.data import downloads
from fedlib.environment import cache_folder
from fedlib.errors import ConfigError
from fedlib.files import canonical_json
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT, code_digest, remember

SCRIPT = "scripts/check.py"
SHOWN = 5  # complaints; others are counted


class Piece(NamedTuple):
    """Something to build.

    Attributes:
      where: it is declared, as messages name it.
      stage: of the job that builds it: train or partition.
      spec: canonical JSON of what determines it.
      code: digest of the code of that job.
    """

    where: str
    stage: str
    spec: str
    code: str

    @property
    def facts(self) -> tuple:
        """What decides whether it can be built."""
        return self.stage, self.code, code_digest(SCRIPT), self.spec


def check(plan: Plan) -> None:
    """Build what was not built before, and check that folders can be read and written.

    Raises:
      ConfigError: if something cannot be built; names the paper and the run, table or figure. Or
        for a folder that is missing or not writable.
    """
    _check_folders(plan)
    known = seals.Cache(cache_folder() / "built.json")
    new: dict[tuple, list[Piece]] = {}
    for piece in pieces(plan):
        if not known.get(piece.facts):
            new.setdefault(piece.facts, []).append(piece)
    remember()  # for the jobs, which look at the same code
    if not new:
        return
    answers = _answers([same[0] for same in new.values()])
    alike: dict[str, list[Piece]] = {}
    for facts, answer in answers.items():
        if answer:
            alike.setdefault(answer, []).extend(new[facts])
        elif answer is None:
            known.add(facts, True)
    known.write()
    wrong = [f"{_names(same)}: {answer}" for answer, same in alike.items()]
    if wrong:
        more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        raise ConfigError("\n  ".join([*wrong[:SHOWN], *more]))


def _check_folders(plan: Plan) -> None:
    """Raise ConfigError for folders at which Snakemake or a job would fail with pages of text."""
    downloads.check_mirror(plan.config["mirror"])
    if re.search("[{}]", str(ROOT)):
        raise ConfigError(f"{ROOT}: move the checkout to a path without braces, as Snakemake needs")
    cache = cache_folder().with_name("snakemake")
    wanted = {cache: "Snakemake keeps its cache in it; set XDG_CACHE_HOME to another"}
    for receipt in plan.receipts():
        if not Path(receipt).exists():
            wanted[Path(receipt).parent] = f"{receipt} is to be written; set raw to another"
    for folder, why in wanted.items():
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(f"{there} may not be written, and {why}, or allow it")


def check_frames(plan: Plan) -> None:
    """Check the existing inputs of tables and figures once, and not in every job.

    Raises:
      DataError: for a file that is truncated or changed.
    """
    for paper in plan.papers:
        for file in ("metrics", "clients"):
            if (path := Path(plan.path(file, paper=paper))).exists():
                seals.checked(path)


def pieces(plan: Plan) -> Iterator[Piece]:
    """What a plan builds, seeds taken together."""
    for (paper, federation, label), run in plan.runs.items():
        names = {"paper": paper, "federation": federation, "label": label}
        groups = plan.papers[paper].tested(federation, label)
        spec, code = run.spec(0) | {"groups": groups}, plan.code("train", **names)
        where = f"papers.{paper}.runs[{federation}/{label}]"
        yield Piece(where, "train", canonical_json(spec), code)
    for name, paper in plan.papers.items():
        for data in paper.data:
            where, names = f"papers.{name}.data[{data.name}]", {"paper": name}
            code = plan.code("partition", **names, federation=data.name)
            yield Piece(where, "partition", canonical_json(data.spec(0)), code)


def _answers(found: list[Piece]) -> dict[tuple, str | bool | None]:
    """What `scripts/check.py` says of each, by its facts."""
    done = subprocess.run(
        [sys.executable, str(ROOT / SCRIPT)],
        input=json.dumps([(piece.stage, json.loads(piece.spec)) for piece in found]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{SCRIPT} failed:\n{done.stderr}")
    for line in dict.fromkeys(done.stderr.splitlines()):
        print(line, file=sys.stderr)
    return {
        piece.facts: answer for piece, answer in zip(found, json.loads(done.stdout), strict=True)
    }


def _names(same: list[Piece]) -> str:
    """Where the same thing is declared."""
    more = len(same) - 1
    return same[0].where + (f" and {more} more" if more else "")
