"""Specifications of tables and figures fit through a shell, and come out as they went in."""

import json
import shlex

import made_up
import pytest

from fedlib import papers
from fedlib.errors import ConfigError
from fedlib.workflow import packing
from fedlib.workflow.plan import Plan

MOST = 98_000  # bytes, 3/4 of what a shell takes as one argument (MAX_ARG_STRLEN, 32 pages)


def exhibit(*params: dict) -> dict:
    """An exhibit with a run for each of these params."""
    runs = [made_up.describe("emnist", f"r{i}", params=one) for i, one in enumerate(params)]
    return made_up.exhibit([], ["emnist"], runs=runs)


@pytest.fixture(autouse=True)
def titles(monkeypatch):
    for number in range(4):
        monkeypatch.setitem(made_up.TITLES, f"r{number}", f"Run {number}")


def test_an_exhibit_comes_out_of_its_text_as_it_went_in():
    # 1, 1.0 and True are equal, but tables do not show them alike.
    plain = exhibit({"x": 1}, {"x": 1.0}, {"x": True}, {"x": [None]})
    found = packing.unpacked(json.loads(json.dumps(packing.packed(plain))))
    assert json.dumps(found) == json.dumps(plain)


def test_a_value_of_which_some_runs_have_none_is_kept():
    plain = exhibit({}, {})
    plain["runs"][0]["class_weights"], plain["runs"][1]["class_weights"] = None, [0.5, 2.0]
    assert packing.unpacked(packing.packed(plain)) == plain


def test_what_runs_have_in_common_is_written_down_once():
    packed = packing.packed(exhibit({"x": "once"}, {"x": "once"}, {"x": "twice"}))
    assert packed["common"]["params"] == [{"x": "once"}, {"x": "twice"}]
    assert [run["params"] for run in packed["runs"]] == [0, 0, 1]


@pytest.mark.parametrize("change", [{"common": {"params": []}}, {"runs": None}, {"runs": [1]}])
def test_what_was_not_packed_so_is_refused(change):
    packed = packing.packed(exhibit({"x": 1})) | change
    with pytest.raises(ConfigError, match="lacks what its runs have in common"):
        packing.unpacked(packed)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["demo", "reduced", "full"])
@pytest.mark.parametrize("paper", papers.names())
def test_every_specification_of_a_table_or_figure_fits_through_a_shell(paper, scale):
    plan = Plan({"scale": scale, "papers": [paper]})
    for stage in ("table", "figure"):
        for name in getattr(plan.papers[paper], f"{stage}s"):
            text = shlex.quote(plan.spec(stage, paper=paper, **{stage: name}))
            assert len(text.encode()) < MOST, name
