"""Files that vouch for themselves: no damage goes unnoticed, and other programs read them too."""

import json
import random
import re
from dataclasses import replace

import h5py
import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report import frames
from fedlib.results import RunResult, View
from fedlib.workflow.provenance import ROOT

SELDOM = __file__  # a file that says nothing
FRAME = pd.DataFrame({"label": ["fedavg", "fedem"], "round": [1, 2], "value": [0.799, np.nan]})


def result() -> RunResult:
    scores = {View("seen", "default", "test"): made_up.scores([3 / 7, 4 / 9], [7, 9])}
    return made_up.result(scores, [1], diagnostics={"pi": np.eye(2)}, spec={"seed": 1})


# How a file of each kind is written and read.
KINDS = {
    "json": (lambda path: seals.write_json(path, {"a": [1, 2.5]}), seals.read_json),
    "parquet": (lambda path: frames.write_parquet(FRAME, path), frames.read_parquet),
    "h5": (lambda path: result().save(path), RunResult.load),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def written(tmp_path, kind):
    path = tmp_path / f"file.{kind}"
    KINDS[kind][0](path)
    return path


@kinds
def test_no_flipped_bit_goes_unnoticed(written, kind):
    content, draw = written.read_bytes(), random.Random(0)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        written.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{written} is .*; delete it and run again") as raised:
            KINDS[kind][1](written)
        assert "\n" not in str(raised.value)


@kinds
def test_a_missing_file_or_a_folder_in_its_place_is_named(tmp_path, kind):
    with pytest.raises(DataError, match=f"no.{kind} does not exist; run the stage that writes it"):
        KINDS[kind][1](tmp_path / f"no.{kind}")
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read"):
        KINDS[kind][1](tmp_path)


READERS = {
    "json": lambda path: seals.read_json(path, has=("a",)),
    "parquet": lambda path: frames.read_parquet(path, has=("round",)),
    "h5": RunResult.load,
}


@kinds
@pytest.mark.parametrize("other", KINDS)
def test_a_sealed_file_of_another_kind_is_refused_in_a_line(tmp_path, kind, other):
    path = tmp_path / "file"
    if kind != other:
        KINDS[other][0](path)
    elif kind == "json":
        seals.write_json(path, {"b": 1})
    elif kind == "parquet":
        frames.write_parquet(FRAME[["label"]], path)
    else:
        with h5py.File(path, "w", userblock_size=seals.USERBLOCK) as file:
            file.attrs["format"] = 3
        seals.close_hdf5(path)
    with pytest.raises(DataError, match="file (is another file|has format)") as raised:
        READERS[kind](path)
    assert "\n" not in str(raised.value)


@kinds
def test_a_file_says_of_what_it_is_the_result_and_readers_compare(tmp_path, kind):
    spec, path = {"seed": 1}, tmp_path / "x"
    assert seals.origin(SELDOM) is None
    made = seals.Made(seals.spec_digest(spec), "0" * 16, seals.contents(SELDOM), seals.contents())
    if kind == "json":
        seals.write_json(path, {"a": 1, seals.MADE: str(made)})
    elif kind == "parquet":
        frames.write_parquet(FRAME, path, made)
        assert frames.read_of(path, made.spec, ("round",)).equals(FRAME)
        for other in (None, seals.spec_digest({"seed": 2})):
            with pytest.raises(DataError, match="x was made from specification"):
                frames.read_of(path, other, ("round",))
    else:
        replace(result(), provenance={"code": made.code, "inputs_sha256": made.inputs}).save(path)
    assert seals.origin(path) == made
    assert READERS[kind](path) is not None  # the seal is of all that


@pytest.mark.parametrize("before", [0, 262, 483, 512])
def test_the_origin_is_found_wherever_it_is_in_a_file(tmp_path, before):
    made = seals.Made("a" * 64, "b" * 16, "c" * 64, "d" * 64)
    seals.write_json(tmp_path / "x", {"caption": "x" * before, seals.MADE: str(made)})
    assert seals.origin(tmp_path / "x") == made


def test_other_programs_read_sealed_files(tmp_path):
    for kind, (write, _) in KINDS.items():
        write(tmp_path / f"x.{kind}")
    assert json.loads((tmp_path / "x.json").read_text())["a"] == [1, 2.5]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "x.parquet"), FRAME)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["scores/seen/default/test/correct"][:].tolist() == [[3.0, 4.0]]


DAMAGE = {
    "missing": lambda file: file.unlink(),
    "not sealed": lambda file: file.write_text('{"a": 1}'),
    "one bit": lambda file: file.write_bytes(file.read_bytes().replace(b"known", b"knowm")),
    "not UTF-8": lambda file: file.write_bytes(file.read_bytes().replace(b"known", b"kn\xffwn")),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "empty": lambda file: file.write_bytes(b""),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=[*DAMAGE])
def test_a_damaged_cache_is_no_cache_and_one_that_cannot_be_written_costs_nothing(tmp_path, damage):
    file = tmp_path / "cache/x.json"
    seals.remember(file, {"known": 1})
    assert seals.recall(file) == {"known": 1}
    damage(file)
    assert seals.recall(file) == {}
    (tmp_path / "place").touch()
    seals.remember(tmp_path / "place/x.json", {"known": 1})


def test_a_cache_finds_a_value_once_and_adds_to_what_other_processes_find(tmp_path):
    first, second = (seals.Cache(tmp_path / "x.json") for _ in range(2))
    assert first.find(["a"], lambda: 1) == 1
    assert second.find(["b"], lambda: 2) == 2
    first.write()
    second.write()
    again = seals.Cache(tmp_path / "x.json")
    assert [again.find([name], lambda: pytest.fail("is known")) for name in "ab"] == [1, 2]


@pytest.mark.parametrize("job", ["partition", "tune", "metrics", "table", "figure", "report"])
def test_what_changes_while_a_job_reads_it_counts_as_changed(job):
    code = (ROOT / ("fedlib/run/tune.py" if job == "tune" else f"scripts/{job}.py")).read_text()
    reads = re.search(r"= (build|collect|gather)\(|job\.federation\(|Inputs\.read\(", code)
    assert code.index("seals.contents(") < reads.start()
