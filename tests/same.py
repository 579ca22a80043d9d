"""Whether a change that should change nothing changes nothing.

  python tests/same.py write before.json      on the old code
  python tests/same.py compare before.json    on the new code: what differs, by name

By default three things are digested: the specification and the code digest of every job at every
scale (declarations, and what would run again); what every table and figure of the kept packs says;
and, if `make demo` was run in this checkout, its tables, states, histories and evaluations, without
their provenance. tests/kept.json has what tests compare in a short time: `kept` and `declared`.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import h5py
import pictures
import torch
from matplotlib.figure import Figure

from fedlib import papers
from fedlib.files import canonical_json
from fedlib.report import frames, packs
from fedlib.report.figures import FigureInputs
from fedlib.report.tables import render
from fedlib.report.tables.render import Sheet
from fedlib.report.tables.sheets import TableInputs
from fedlib.spec import SCALES, Paper
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

KINDS = ("jobs", "kept", "demo", "declared")
READ = lru_cache(8)(frames.read_parquet)  # the exhibits of a pack are made of the same files
CHAOTIC = ("representations",)  # kinds whose positions follow the last digit of a processor


def jobs() -> Iterator[tuple[str, str]]:
    """Specification and code of every job, as (its name, digest)."""
    for scale in SCALES:
        plan = Plan({"scale": scale})
        for stage, wildcards in plan.jobs():
            name = "/".join([scale, stage, *map(str, wildcards.values())])
            yield f"{name} spec", _digest(plan.spec(stage, **wildcards).encode())
            yield f"{name} code", plan.code(stage, **wildcards)


def kept() -> Iterator[tuple[str, str]]:
    """What the tables and figures of all these packs say: what tests/kept.json has.

    Figures are as they are before they are laid out, whatever the fonts of this machine.
    """
    for pack in (*sorted(ROOT.glob("docs/results/**/pack")), *several()):
        for spec, sheet in sheets_of(pack):
            yield from table_of(pack, spec, sheet)
        for spec, figure in drawn(pack):
            yield from figure_of(pack, spec, figure)


def several() -> list[Path]:
    """The folders of kept results whose packs are drawn together."""
    folders = sorted(ROOT.glob("docs/results/*/*"))
    return [x for x in folders if not (x / "pack").exists() and [*x.glob("*/pack")]]


def where(pack: Path) -> Path:
    """The folder of kept results of a pack, or the folder of several, in the checkout."""
    return (pack.parent if pack.name == packs.FOLDER else pack).relative_to(ROOT)


def table_of(pack: Path, spec: dict, sheet: Sheet) -> Iterator[tuple[str, str]]:
    """Each form of a table of a pack."""
    for form in (render.to_csv, render.to_markdown, render.to_latex):
        name = f"{where(pack)}: {spec['name']}, {form.__name__}"
        yield name, _digest(form(sheet).encode())


def sheets_of(pack: Path, names: Collection | None = None) -> Iterator[tuple[dict, Sheet]]:
    """Every table of a pack, or those of these names, and its specification."""
    for spec, given in exhibits(pack, "table", names):
        yield spec, TableInputs.read(*given).make()


def figure_of(pack: Path, spec: dict, figure: Figure) -> Iterator[tuple[str, str]]:
    """A figure of a pack; nothing of a chaotic one."""
    if spec["kind"] not in CHAOTIC:
        name = f"{where(pack)}: {spec['name']}, figure"
        yield name, _digest(pictures.described(figure).encode())


def drawn(pack: Path, names: Collection | None = None) -> Iterator[tuple[dict, Figure]]:
    """Every figure of a pack, or those of these names, and its specification."""
    for spec, given in exhibits(pack, "figure", names):
        yield spec, FigureInputs.read(*given).make()


def exhibits(pack: Path, stage: str, names: Collection | None) -> Iterator[tuple[dict, tuple]]:
    """The tables or figures of a pack: their specification, and all they are made of."""
    with packs.join(pack) as one, mock.patch.object(frames, "read_parquet", READ):
        metrics, clients, found = packs.read(one)
        for exhibit in (x for x in found if x.stage == stage):
            spec = exhibit.spec
            if names is not None and spec["name"] not in names:
                continue
            printed = ROOT / f"fedlib/papers/{spec['paper']}/published.csv"
            yield spec, (spec, metrics, clients, printed if exhibit.published else None)


def declared() -> Iterator[tuple[str, str]]:
    """What each paper declares at each scale, without its words: also in tests/kept.json."""
    yield from published()
    for paper in papers.names():
        for scale in SCALES:
            yield from declared_by(papers.declare(paper, scale))


def published() -> Iterator[tuple[str, str]]:
    """The numbers that each paper printed."""
    for paper in filter(papers.count_printed, papers.names()):
        numbers = ROOT / f"fedlib/papers/{paper}/published.csv"
        yield f"{paper}: published", _digest(numbers.read_bytes())


def declared_by(paper: Paper) -> Iterator[tuple[str, str]]:
    """Data, runs and exhibits of a paper at one scale."""
    shown = {**paper.tables, **paper.figures}
    trained = [r.spec(0).to_json() for r in paper.runs]
    for spec in trained:
        del spec["data"]  # which the part of the data has
    parts = {
        "data": [[data.name, data.per_seed, data.spec()] for data in paper.data],
        "runs": [
            [r.federation, r.label, paper.seeds_of(r), spec]
            for r, spec in zip(paper.runs, trained, strict=True)
        ],
        "exhibits": [
            [name, x.kind, x.labels, x.federations, x.published, x.params]
            for name, x in shown.items()
        ],
    }
    for part, content in parts.items():
        yield f"{paper.name} at {paper.scale}: {part}", _digest(canonical_json(content).encode())


def demo() -> Iterator[tuple[str, str]]:
    """What `make demo` left: tables, states, histories and evaluations."""
    for folder in ("results/demo/tables", "results/demo/runs"):
        for path in sorted(path for path in (ROOT / folder).rglob("*") if path.is_file()):
            yield str(path.relative_to(ROOT)), _of_file(path)


def _of_file(path: Path) -> str:
    """Digest of what a file says."""
    match path.suffix:
        case ".pt":
            state = torch.load(path, weights_only=True)
            return _digest(*(part for name in sorted(state) for part in _tensor(name, state[name])))
        case ".h5":
            with h5py.File(path) as file:
                arrays: list[bytes] = []
                file.visititems(lambda name, item: arrays.extend(_array(name, item)))
                return _digest(*arrays)
        case ".json":
            value = json.loads(path.read_bytes())
            return _digest(json.dumps({k: v for k, v in value.items() if k != "seal"}).encode())
        case _:
            return _digest(path.read_bytes())


def _tensor(name: str, value: torch.Tensor) -> tuple[bytes, ...]:
    flat = value.contiguous().flatten()
    raw = flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)
    return name.encode(), str((value.dtype, value.shape)).encode(), raw.numpy().tobytes()


def _array(name: str, item: h5py.Dataset | h5py.Group) -> list[bytes]:
    return [name.encode(), item[()].tobytes()] if isinstance(item, h5py.Dataset) else []


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def main() -> int:
    """Write the digests, or compare them with those of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS[:3])
    args = parser.parse_args()
    now = {kind: dict(globals()[kind]()) for kind in args.only}
    if args.what == "write":
        args.file.write_text(json.dumps(now, indent=0, sort_keys=True), encoding="utf-8")
        return 0
    before = json.loads(args.file.read_bytes())
    different = 0
    for kind, found in now.items():
        names = sorted(found.keys() | before[kind].keys())
        changed = [name for name in names if found.get(name) != before[kind].get(name)]
        print(f"{kind}: {len(names) - len(changed)} the same, {len(changed)} not")
        print("".join(f"  {name}\n" for name in changed), end="")
        different += len(changed)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
