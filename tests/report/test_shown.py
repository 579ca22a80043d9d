"""What final evaluations score: what tables and figures show, and nothing else."""

import dataclasses
import importlib
import importlib.util
import inspect
import json
import re

import pytest
from conftest import toy_run

from fedlib import papers
from fedlib.errors import ConfigError
from fedlib.report.figures import curves
from fedlib.spec import SCALES
from fedlib.spec.exhibits import COMMON, KINDS, PRIMARY, from_kind
from fedlib.spec.figures import Curves
from fedlib.spec.worlds import rows_left
from fedlib.workflow.plan import Plan

NEW = ("seen", "new_shard", "val")
CRITERION = {"title": "A", "source": "B", "kind": "between", "at_least": 0}


def exhibit(kind="views", **params):
    return from_kind("table", kind, params, "A title", "A caption.", ("fedavg",), ("digits",))


def figure(kind, **params):
    return from_kind("figure", kind, params, "A title", "A caption.", ("fedavg",), ("digits",))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (exhibit("accuracy"), set()),
        (exhibit(columns=[{"title": "a"}, {"title": "b", "split": "train"}]),
         {("seen", "default", "train")}),
        (exhibit("protocol_grid", protocols=[{"name": "moe"}, {"name": "default"}]),
         {("seen", "moe", "test")}),
        (exhibit("criteria", criteria=[{**CRITERION, "terms": [
            {"federation": "digits", "label": "fedavg", "split": "val"},
            [{"federation": "digits", "label": "fedavg", "group": "unseen"},
             {"federation": "digits", "label": "fedem", "protocol": "moe"}]]}]),
         {("seen", "default", "val"), ("unseen", "default", "test")}),
        (exhibit("global_accuracy", columns=[]), {("server", "last", "test")}),
        (figure("gate_weights"), {("seen", "moe", "test")}),
        (figure("accuracy_over_bytes", protocol="new_shard", split="val"), {NEW}),
        (figure("client_accuracy_cdf", protocols=[{"name": "moe"}], variants={}),
         {("seen", "moe", "test")}),
    ],
)  # fmt: skip
def test_an_exhibit_says_what_it_shows(declared, expected):
    assert {*declared.views("digits", "fedavg")} - {PRIMARY} == expected


@pytest.mark.parametrize(
    ("stage", "kind"), [(stage, kind) for stage, kinds in KINDS.items() for kind in kinds]
)
def test_a_kind_has_a_module_that_makes_it_and_uses_all_of_its_fields(stage, kind):
    module = importlib.import_module(KINDS[stage][kind].module_name())
    made = getattr(module, "draw" if stage == "figure" else "build", None)
    assert callable(made or getattr(module, kind))
    text = inspect.getsource(module)
    if importlib.util.find_spec(f"fedlib.report.{kind}"):  # what a page shares with it
        text += inspect.getsource(importlib.import_module(f"fedlib.report.{kind}"))
    if issubclass(KINDS[stage][kind], Curves):
        text += inspect.getsource(curves)
    if "kind.parse()" in text:
        text += inspect.getsource(KINDS[stage][kind].parse).replace("self.", "kind.")
    unused = [
        field.name
        for field in dataclasses.fields(KINDS[stage][kind])[COMMON:]
        if not re.search(rf'\bkind\.({field.name}\b|entries\("{field.name}"\))', text)
    ]
    assert not unused


def test_a_field_that_a_kind_does_not_have_is_refused_where_it_is_written():
    with pytest.raises(ConfigError, match="table 'A title': .*Views.*unexpected .*'column'"):
        exhibit(columns=[], column=[])
    with pytest.raises(ConfigError, match="Views.*missing .*'columns'"):
        exhibit()
    with pytest.raises(ConfigError, match="figure 'A title': kind must be accuracy_.*, got 'pie'"):
        figure("pie")


@pytest.fixture
def planned(toy):
    """Function that plans a paper of two runs with these tables and figures."""
    runs = [toy_run(), toy_run(label="fedem", title="FedEM")]

    def make(tables=(), figures=(), **config):
        shown = {"tables": dict(tables), "figures": dict(figures)}
        return toy({"papers": ["toy"], **config}, federations=["digits"], runs=runs, **shown)

    return make


def specs(plan: Plan, stage: str) -> dict[str, dict]:
    return {
        cell.label: json.loads(plan.spec(stage, **cell._asdict()))
        for cell in plan.trainings()
        if cell.seed == plan.trainings()[0].seed
    }


def test_an_exhibit_that_shows_more_repeats_the_evaluations_of_its_runs_and_no_training(planned):
    before = planned()
    trained, evaluated = specs(before, "train"), specs(before, "evaluate")
    nothing = {"views": [], "predictions": []}
    assert evaluated == {label: spec | nothing for label, spec in trained.items()}
    columns = [{"title": "Training examples", "split": "train"}]
    after = planned(tables={"train": exhibit(columns=columns)})
    assert specs(after, "train") == trained
    assert specs(after, "evaluate") == evaluated | {
        "fedavg": trained["fedavg"] | nothing | {"views": [["seen", "default", "train"]]}
    }


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("global_accuracy", {"columns": [
            {"federation": "digits", "title": "F1", "metric": "macro_f1"}]}),
        ("criteria", {"criteria": [{**CRITERION, "terms": [
            [{"federation": "x", "label": "y", "metric": "auc"}]]}]}),
    ],
)  # fmt: skip
def test_an_evaluation_is_asked_for_the_metrics_of_predictions_that_its_exhibits_name(
    planned, kind, params
):
    plan = planned(tables={"a": exhibit(kind, **params)})
    asked = {label: spec["predictions"] for label, spec in specs(plan, "evaluate").items()}
    assert asked == {"fedavg": ["macro_f1" if kind == "global_accuracy" else "auc"], "fedem": []}
    assert not exhibit("protocol_grid", protocols=[{"name": "auc"}]).of_predictions


def test_what_is_shown_twice_is_scored_once(planned):
    curve = {"protocol": "new_shard", "split": "val"}
    plan = planned(
        tables={"views": exhibit(columns=[{"title": "New shard", **curve}])},
        figures={"curve": figure("accuracy_over_rounds", **curve)},
    )
    assert specs(plan, "evaluate")["fedavg"]["views"] == [list(NEW)]


@pytest.mark.parametrize("scale", SCALES)
def test_no_paper_scores_training_examples_that_it_does_not_show(scale):
    plan = Plan({"scale": scale})
    views = {
        (paper, tuple(view))
        for paper in papers.names()
        for cell in plan.trainings(paper)
        for view in json.loads(plan.spec("evaluate", **cell._asdict()))["views"]
    }
    assert views and not [view for view in views if view[1][2] not in ("val", "test", "shared")]


def test_a_row_of_methods_keeps_the_runs_that_are_left():
    rows = [{"title": "FedAvg", "labels": ["fedavg"]}, {"title": "Local", "labels": ["local"]}]
    pick = {"title": "Pick", "labels": ["fedavg", "local"], "pick": True}
    left = rows_left((*rows, pick), [toy_run(label="fedavg")])
    assert left == [rows[0]]  # a pick is of all its runs
    two, words = ("fedavg", "local"), "All. Pick: of two runs."
    whole = from_kind("figure", "regret", {"rows": (*rows, pick)}, "A", words, two, ("digits",))
    assert whole.narrow([toy_run(label=x) for x in two]).caption == words
    assert whole.narrow([toy_run(label="fedavg")]).caption == "All."
