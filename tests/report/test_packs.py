"""Kept results: what is drawn from a pack is what was drawn from the runs."""

import io
import re
import shutil
import tarfile
from pathlib import Path

import made_up
import pandas as pd
import pytest

from fedlib import seals
from fedlib.cli import arguments, figures_from, keep
from fedlib.errors import DataError
from fedlib.report import frames, packs
from fedlib.report.metrics.runs import collect
from fedlib.report.tables import render
from fedlib.report.tables.sheets import TableInputs
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT

PUBLISHED = ROOT / "fedlib/papers/pfedmm/published.csv"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with metrics of some runs, the table made of them, and a pack."""
    root = tmp_path_factory.mktemp("packs")
    exhibit = made_up.exhibit(["fedavg", "pfedmm"], published="main")
    made_up.save_runs(exhibit, root / "runs")
    inputs = root / "m.parquet", root / "c.parquet"
    frames_of = collect(made_up.metrics_spec(exhibit), root / "runs")
    for file, frame in zip(inputs, frames_of, strict=True):
        frames.write_parquet(frame, file)
    sheet = TableInputs.read(exhibit, *inputs, PUBLISHED).make()
    render.write(sheet, *(root / f"run.{form}" for form in ("csv", "md", "tex", "json")))
    packs.write(root / "kept/pack", *inputs, [packs.Entry("table", exhibit, True)])
    return root


def test_a_table_drawn_from_a_pack_is_that_of_the_run_byte_for_byte(made, tmp_path):
    assert figures_from.draw(made / "kept", tmp_path) == (1, tmp_path)
    [name] = {path.stem for path in tmp_path.glob("[!.]*")}
    for form in ("csv", "md", "tex", "json"):
        assert (tmp_path / f"{name}.{form}").read_bytes() == (made / f"run.{form}").read_bytes()


def test_files_of_an_earlier_pack_are_replaced_and_no_others(made, tmp_path):
    *files, [exhibit] = packs.read(made / "kept/pack")
    packs.write(tmp_path / "pack", *files, [exhibit._replace(spec=exhibit.spec | {"name": "b"})])
    for name in ("mine.csv", "b.csv", "b.png"):
        (tmp_path / name).touch()
    assert keep._old_files(tmp_path) == [tmp_path / "b.csv"]
    for source in (made / "kept", tmp_path / "pack"):
        figures_from.draw(source, tmp_path)
    assert {path.name for path in tmp_path.glob("*.csv")} == {"mine.csv", "b.csv"}


def test_a_folder_without_a_pack_is_told_so(tmp_path):
    with pytest.raises(DataError, match="has no exhibits.json: `make keep` packs results"):
        packs.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../../../TRAVERSED"}, "name of a pack.s table must be .*'../../../TRAVERSED'"),
        ({"paper": "/tmp/TRAVERSED"}, "paper of a pack.s table must be"),
        ({"name": None}, "name of a pack.s table must be .*got None"),
        ({"kind": "../x"}, "kind must be accuracy or .*, got '../x'"),
        ({"params": {"x": 1}}, "unexpected keyword argument 'x'"),
        ({"params": None}, "params must be a dict, got None"),
    ],
)
def test_a_pack_of_anybodys_is_drawn_in_its_folder_or_refused_in_a_line(
    made, tmp_path, monkeypatch, capsys, change, message
):
    """Its seal says that it is whole, and not whose it is."""
    metrics_file, clients_file, [exhibit] = packs.read(made / "kept/pack")
    shown = [exhibit, exhibit._replace(spec=exhibit.spec | change)]
    packs.write(tmp_path / "kept", metrics_file, clients_file, shown)
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    args = arguments.read(["figures-from", str(tmp_path / "kept")])
    assert command.run(lambda: figures_from.main(args)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    written = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert {path.parent for path in written} <= {tmp_path / "root/figures/from/kept"}
    assert not list(tmp_path.rglob("*TRAVERSED*"))


def parted(made, folder, **change) -> Path:
    """A folder with two packs, which have a run each of a kept one."""
    *files, [exhibit] = packs.read(made / "kept/pack")
    for i, label in enumerate(("fedavg", "pfedmm")):
        mine = [run for run in exhibit.spec["runs"] if run["label"] == label]
        spec = exhibit.spec | {"runs": mine} | (change if i else {})
        for source, name in zip(files, ("m", "c"), strict=True):
            frame = frames.read_parquet(source)
            frames.write_parquet(frame[frame["label"] == label], folder / f"{name}.parquet")
        shown = [exhibit._replace(spec=spec)]
        packs.write(folder / label / "pack", folder / "m.parquet", folder / "c.parquet", shown)
    return folder


def test_packs_of_a_folder_are_drawn_as_one_pack_of_all_their_runs_would_be(made, tmp_path):
    _, one = figures_from.draw(made / "kept/pack", tmp_path / "one")
    both = parted(made, tmp_path)
    shutil.copytree(both / "fedavg", both / "more")  # a later pack has what was finished before
    (both / ".one-abcd1234/old/pack").mkdir(parents=True)  # of a process that was killed
    number, several = figures_from.draw(both, tmp_path / "several")
    assert number == 1
    for table in one.glob("*.csv"):
        assert (several / table.name).read_text() == table.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": "full"}, "packs of one scale .* 'demo' and 'full'"),
        ({"paper": "fedmix"}, "packs of one paper .* and 'fedmix'"),
        ({"folder_note": "3 rounds"}, "packs of one folder_note .* '' and '3 rounds'"),
        ({"federations": [{"name": "emnist", "seed": 9}]}, "two packs have .*, with other"),
        ({"seeds": None}, "cannot be drawn together"),
    ],
)
def test_packs_of_other_settings_are_not_drawn_together(made, tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        figures_from.draw(parted(made, tmp_path, **change), tmp_path / "out")


def test_packs_whose_runs_share_no_seed_are_not_drawn_together(made, tmp_path):
    both = parted(made, tmp_path)
    *files, [exhibit] = packs.read(both / "pfedmm/pack")
    for source, name in zip(files, ("m", "c"), strict=True):
        frame = frames.read_parquet(source)
        frames.write_parquet(frame.assign(seed=frame["seed"] + 100), tmp_path / f"{name}.parquet")
    seeds = [seed + 100 for seed in exhibit.spec["seeds"]]
    spec = [exhibit._replace(spec=exhibit.spec | {"seeds": seeds})]
    packs.write(both / "pfedmm/pack", tmp_path / "m.parquet", tmp_path / "c.parquet", spec)
    with pytest.raises(DataError, match="share no seed for .*; draw one of them"):
        figures_from.draw(both, tmp_path / "out")


def test_packs_drawn_together_have_the_rows_and_rounds_of_all():
    a, b, c = ({"title": x.upper(), "labels": [x], "home": [x]} for x in "abc")
    again = a | {"labels": ["a-retuned"], "again": True}  # another row of the same title
    mine = {"averaged": {"one": 2}, "rows": [again, a, b], "steps": None, "of": ["A"]}
    theirs = {"averaged": {"two": 3}, "steps": 7, "of": ["A", "C"]}
    theirs["rows"] = [again, a | {"labels": ["d"], "home": ["e"]}, c]
    both = packs._params(mine, theirs)
    assert both["of"] == ["A", "C"]
    assert both["averaged"] == {"one": 2, "two": 3} and both["steps"] is None
    assert both["rows"] == [again, a | {"labels": ["a", "d"], "home": ["a", "e"]}, b, c]
    assert packs._params({"rows": None}, {"rows": None}) == {"rows": None}


OLDER = [["table", {"kind": "accuracy"}, True]]  # with all entries in its specification


@pytest.mark.parametrize(
    "exhibits", [None, [], [["table"]], [["x", {}, True]], [["table", 1, 1]], OLDER]
)
def test_a_pack_without_exhibits_or_of_another_version_is_refused(made, tmp_path, exhibits):
    seals.write_json(tmp_path / "exhibits.json", {"exhibits": exhibits})
    with pytest.raises(DataError, match="has no tables and figures|or is of another version"):
        packs.read(tmp_path)


def changed(made, folder, metrics_row=None, client_row=None) -> Path:
    """A pack with changed rows: of a name, the first row again with another value."""
    metrics_file, clients_file, shown = packs.read(made / "kept/pack")
    for file, name, row in ((metrics_file, "m", metrics_row), (clients_file, "c", client_row)):
        frame = frames.read_parquet(file)
        more = frame[:1].assign(**row) if row is not None else frame[:0]
        frames.write_parquet(pd.concat([frame, more]), folder / f"{name}.parquet")
    packs.write(folder, folder / "m.parquet", folder / "c.parquet", shown)
    return folder


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (({"value": 0.5}, None), "metrics.parquet has the number of pfedmm, .* twice"),
        (({"value": 7.0, "seed": 9, "metric": "accuracy"}, None), "must have fractions, got 7.0"),
        ((None, {"accuracy": 0.5}), "clients.parquet has the number of pfedmm, .* twice"),
        ((None, {"accuracy": -0.5, "seed": 9}), "must have fractions, got -0.5"),
    ],
)
def test_a_pack_with_a_number_twice_or_one_that_cannot_be_is_refused(made, tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        packs.read(changed(made, tmp_path, *rows))


def test_a_pack_of_another_paper_says_so(made):
    with pytest.raises(DataError, match="is a pack of 'pfedmm', and not of fedmix"):
        packs.read(made / "kept/pack", "fedmix")


RUN = "runs/a/b/c/seed0/history.h5"


def archive(folder, *members: tarfile.TarInfo, form: str = "w:xz") -> Path:
    """A folder with an archive of runs, whose files have as many zeros as their headers say."""
    with tarfile.open(folder / packs.ARCHIVE, form) as file:
        for member in members:
            file.addfile(member, io.BytesIO(bytes(member.size)))
    return folder


def member(name: str, size: int = 9, **changes) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for key, value in {"size": size, **changes}.items():
        setattr(found, key, value)
    return found


NO_RUNS = {
    **{name: [member(name)] for name in ("../outside", "runs/../../outside", "/outside", ".", "")},
    **{name: [member(name)] for name in ("other/file", f"{RUN}/below", "runs/a/../c/seed0/x.h5")},
    "long": [member(RUN.replace("b", "b" * 300))],
    "nul": [member("runs", pax_headers={"path": RUN.replace("b", "\0")})],
    "link": [member(RUN, 0, type=tarfile.SYMTYPE, linkname="/etc/passwd")],
}


@pytest.mark.parametrize("members", NO_RUNS.values(), ids=NO_RUNS)
def test_an_archive_of_anything_but_runs_is_refused_and_writes_nowhere_else(tmp_path, members):
    with pytest.raises(DataError, match="no file of a run"):
        packs.unpack_runs(archive(tmp_path, *members)).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == [packs.ARCHIVE]


def test_a_run_that_two_packs_have_must_have_the_same_content(tmp_path):
    with pytest.raises(DataError, match="history.h5', which another pack has with other content"):
        packs.unpack_runs(archive(tmp_path, member(RUN), member(RUN, 8))).__enter__()


def test_the_runs_of_all_packs_in_a_folder_are_there(tmp_path):
    names = RUN, RUN.replace("seed0", "seed7"), RUN  # a later pack has what was finished before
    for i, name in enumerate(names):
        (tmp_path / f"{i}/pack").mkdir(parents=True)
        archive(tmp_path / f"{i}/pack", member(name))
    with packs.unpack_runs(tmp_path) as folder:
        assert all((folder / name).exists() for name in names)


def test_an_archive_that_is_cut_or_of_another_kind_is_damaged(tmp_path):
    whole = archive(tmp_path, member(RUN)) / packs.ARCHIVE
    with packs.unpack_runs(tmp_path) as folder:
        assert (folder / RUN).read_bytes() == bytes(9)
    whole.write_bytes(whole.read_bytes()[:-5])
    with pytest.raises(DataError, match="is damaged"):
        packs.unpack_runs(tmp_path).__enter__()
    with pytest.raises(DataError, match="is damaged"):
        packs.unpack_runs(archive(tmp_path, member(RUN), form="w:gz")).__enter__()
