"""Gathered tunings and runs of older code, which the plan accepts and every table marks.

`make gather ARGS=--older-code` records the code digest of each of their files in
results/FOLDER/older.json. A file that is made again loses its record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fedlib import seals
from fedlib.spec import Paper, Run, RunName

MARK = " †"
NOTE = "†: made elsewhere with older code, which may compute something else"


def read(path: str | Path) -> dict[str, str]:
    """Code digests of the recorded files that are still the same, by path."""
    noted = seals.remembered(path)
    return {file: code for file, code in noted.items() if _is_of(Path(file), code)}


def note(path: str | Path, codes: Mapping[str, str]) -> None:
    """Record more files with their code digests."""
    if codes:
        seals.write_json(path, {**read(path), **codes})


def marked(paper: Paper, noted: Iterable[str]) -> Paper:
    """The paper with a mark and a note on the runs whose files, or whose tuning's, are recorded."""
    folders = {Path(file).parts[-5:-1] for file in noted}

    def of(name: RunName, run: Run) -> Run:
        of_run = {("tuned", *name), *((*name, f"seed{seed}") for seed in paper.seeds_of(run))}
        if folders.isdisjoint(of_run):
            return run
        return replace(run, title=run.title + MARK, notes=(*run.notes, NOTE))

    return replace(paper, runs=tuple(of(*one) for one in paper.named().items()))


def _is_of(file: Path, code: str) -> bool:
    made = seals.made(file) if file.exists() else None
    return made is not None and made.code == code
