"""Bad input, drawn: an error in one line that names what is wrong, soon, and nothing left behind.

What is drawn is a value of a wrong type, range, name or encoding in the place of a right one, or a
file with pieces cut out, put in and changed. The line is an error that a user can mend, of
`fedlib.errors`; whatever else is raised is a bug, and fails.
"""

import dataclasses
import io
import json
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import stages
import yaml
from data_fixtures import leaf
from faults import often
from PIL import Image
from support import toy_federation

from fedlib import papers
from fedlib.data import build, downloads
from fedlib.data.sources import _femnist_leaf, own
from fedlib.errors import ConfigError, DataError
from fedlib.run.build import build_simulation
from fedlib.run_spec import RunSpec
from fedlib.workflow import command, config, preflight
from fedlib.workflow.plan import Plan

hypothesis = pytest.importorskip("hypothesis", reason="make install")
st = hypothesis.strategies

pytestmark = pytest.mark.slow

# A file that a test writes is written again for every example, which is what is meant.
HARMLESS = [hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow]


def drawn(briefly: int, at_length: int = 300):
    """The same examples in every run."""
    return hypothesis.settings(
        max_examples=often(briefly, at_length),
        derandomize=True,
        database=None,
        deadline=None,  # of a wall clock, which other work makes slow; see `refused`
        suppress_health_check=HARMLESS,
        phases=[hypothesis.Phase.generate],  # to shrink a failure takes far longer than to find it
    )


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2, 3, 0.5, 1e300]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["", " ", "../..", "/etc/passwd", "$(touch x)", "; x", "{x}", "\0", "é\n", "a" * 300]
    ),
)
VALUES = st.recursive(
    JUNK,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
MENDABLE = (ConfigError, DataError)


def refused(tally, what: str, use, *names: str) -> None:
    """Use the input: it is taken, or refused in one line, which has one of the names."""
    began = time.process_time()
    try:
        use()
    except MENDABLE as error:
        told = str(error)
        assert time.process_time() - began < 5
        assert "\n" not in told and len(told) < 2000, told
        assert not names or any(name in told for name in names), told
        tally(what, "refused in a line")
    else:
        tally(what, "taken, as it makes sense")


# --- Configurations -------------------------------------------------------------------------------


def planned(words: dict) -> None:
    preflight.check(Plan(config.normalise(config.DEFAULTS | {"papers": ["pfedmm"]} | words)))


@pytest.mark.usefixtures("in_this_process")
@drawn(25)
@hypothesis.given(key=st.sampled_from(sorted(config.DEFAULTS)), value=VALUES)
def test_a_value_of_the_configuration(tally, key, value):
    refused(tally, "configuration", lambda: planned({key: value}), key, "tag")


@drawn(10, 100)
@hypothesis.given(key=st.text(max_size=10), value=JUNK)
def test_a_key_of_the_configuration(tally, key, value):
    hypothesis.assume(key not in config.DEFAULTS)
    refused(tally, "configuration, unknown key", lambda: planned({key: value}), "config")


@drawn(25)
@hypothesis.given(data=st.data())
def test_a_file_of_the_configuration(tmp_path, tally, data):
    whole = yaml.safe_dump(config.DEFAULTS | {"papers": ["pfedmm"]}).encode()
    path = tmp_path / "x.yaml"
    path.write_bytes(data.draw(changed(whole)))
    # What is wrong is in the file, or in a value of it.
    refused(tally, "configuration file", lambda: Plan(config.read([path])))


BOMB = "[&a [x,x,x,x,x,x,x,x,x]" + "".join(  # within a known key: an unknown one is refused before
    f", &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("key", ["labels", "tag", "raw", "rounds", "set"])
def test_a_bomb_of_references_is_refused_at_once(tmp_path, key):
    (tmp_path / "x.yaml").write_text(f"{key}: {BOMB}]\n")
    with pytest.raises(ConfigError) as raised:
        Plan(config.read([tmp_path / "x.yaml"]))
    assert len(str(raised.value)) < 400


# --- Declarations and specifications --------------------------------------------------------------

DIGITS = papers.load("pfedmm").declare("demo").data[0].spec(0)


@drawn(40)
@hypothesis.given(data=st.data(), value=VALUES)
def test_a_declaration_of_data(tally, data, value):
    declared = json.loads(json.dumps(DIGITS))
    place = data.draw(st.sampled_from(["dataset", "seed", "params", "partition", "inner", "new"]))
    if place == "inner":
        key = data.draw(st.sampled_from(sorted(declared["partition"])))
        declared["partition"][key] = value
    else:
        declared[place] = value
    refused(tally, "declaration of data", lambda: build.check(declared))


FEDERATION = toy_federation((7, 12, 6, 10))


def read(text):
    return RunSpec.from_json(command.json_argument(text))


@drawn(60)
@hypothesis.given(data=st.data(), value=VALUES)
def test_a_specification_of_a_run(tally, data, value):
    spec = json.loads(json.dumps({**stages.SPEC, "rounds": 1}))
    place = data.draw(st.sampled_from([*sorted(stages.SPEC), "inner", "inner", "missing", "new"]))
    if place == "inner":
        outer = data.draw(st.sampled_from(["local", "model_params", "params", "participation"]))
        inner = data.draw(st.sampled_from([*sorted(spec[outer]), "new"]))
        spec[outer][inner] = value
    elif place == "missing":
        del spec[data.draw(st.sampled_from(sorted(spec)))]
    else:
        spec[place] = value

    def use():
        given_spec = read(json.dumps(spec))
        build_simulation(given_spec, FEDERATION, device="cpu", executor="loop", weights=[])

    refused(tally, "specification of a run", use)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{}", "[]", "NaN", "@", "@/"])
def test_a_strange_specification(text, capsys):
    assert command.run(lambda: read(text)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and len(line) < 2000


# --- Raw files ------------------------------------------------------------------------------------


@st.composite
def changed(draw, content: bytes) -> bytes:
    """A content cut, with pieces changed, taken out, put in or repeated; or a web page."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found)))
        piece = draw(st.binary(max_size=12))
        match draw(st.sampled_from(["cut", "change", "remove", "insert", "repeat", "page"])):
            case "cut":
                del found[at:]
            case "change":
                found[at : at + len(piece)] = piece
            case "remove":
                del found[at : at + draw(st.integers(1, 50))]
            case "insert":
                found[at:at] = piece
            case "repeat":
                found[at:at] = found[at : at + 100]
            case "page":
                found = bytearray(b"<!DOCTYPE html><html><title>404 Not Found</title></html>")
    return bytes(found)


@drawn(40)
@hypothesis.given(data=st.data(), value=VALUES)
def test_a_value_in_a_file_of_leaf(tmp_path, tally, data, value):
    leaf(tmp_path, "train", "1.json", {"a": [1, 2], "b": [3]})
    leaf(tmp_path, "test", "1.json", {"a": [1, 2], "b": [3]})
    path = tmp_path / "femnist/data/train/1.json"
    content = json.loads(path.read_text())
    match data.draw(st.sampled_from(["users", "num_samples", "user_data", "a", "x", "y", "label"])):
        case "a":
            content["user_data"]["a"] = value
        case ("x" | "y") as key:
            content["user_data"]["a"][key] = value
        case "label":
            content["user_data"]["a"]["y"][0] = value
        case key:
            content[key] = value
    path.write_text(json.dumps(content))
    files = downloads.files("femnist", "leaf")
    refused(tally, "raw file, LEAF", lambda: _femnist_leaf.read(tmp_path, files), "femnist/data")


def own_file(kind: str) -> bytes:
    """A small file of a user's own, of each kind that is read."""
    x, y = np.arange(24, dtype=np.float32).reshape(8, 3), np.arange(8) % 2
    content = io.BytesIO()
    match kind:
        case "csv":
            rows = [",".join(map(str, [*row, label])) for row, label in zip(x, y, strict=True)]
            return "\n".join(["a,b,c,label", *rows]).encode()
        case "npz":
            np.savez(content, x=x, y=y)
        case "png":
            Image.fromarray(np.full((4, 4), 7, np.uint8)).save(content, "png")
    return content.getvalue()


@drawn(60)
@hypothesis.given(kind=st.sampled_from(["csv", "npz", "png"]), data=st.data())
def test_a_file_of_ones_own(tmp_path, tally, kind, data):
    folder = tmp_path / "own/mine"
    path = folder / "cat/1.png" if kind == "png" else folder / f"data.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in filter(Path.is_file, folder.rglob("*")):
        other.unlink()
    path.write_bytes(data.draw(changed(own_file(kind))))
    for number in range(2, 6) if kind == "png" else ():
        (folder / f"cat/{number}.png").write_bytes(own_file(kind))
    for empty in [folder / "cat"] if kind != "png" and (folder / "cat").exists() else ():
        empty.rmdir()
    refused(tally, f"raw file, own {kind}", lambda: own.read(tmp_path, source="mine"), "mine")


def test_an_array_that_claims_to_be_huge_is_refused(tmp_path):
    folder = tmp_path / "own/mine"
    folder.mkdir(parents=True)
    header = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(folder / "data.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
        archive.writestr("y.npy", own_file("npz"))
    with pytest.raises(DataError, match="data.npz is not an npz file of plain arrays"):
        own.read(tmp_path, source="mine")


# --- Declarations of papers -----------------------------------------------------------------------

PAPER = papers.load("pfedmm").declare("demo")


@pytest.mark.usefixtures("in_this_process")
@drawn(15)
@hypothesis.given(data=st.data(), value=VALUES)
def test_a_declaration_of_a_run(declare, tally, data, value):
    run = PAPER.runs[0]
    names = [field.name for field in dataclasses.fields(run)]

    def use():
        other = dataclasses.replace(run, **{data.draw(st.sampled_from(names)): value})
        declare(toy=dataclasses.replace(PAPER, name="toy", runs=(other,), tables={}, figures={}))
        preflight.check(Plan(config.DEFAULTS | {"papers": ["toy"]}))

    refused(tally, "declaration of a run", use)
