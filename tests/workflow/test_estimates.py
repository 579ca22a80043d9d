"""What a plan is estimated to cost, and what a budget buys."""

import math
import re
from pathlib import Path

import pytest

from fedlib.cli import estimate
from fedlib.errors import ConfigError
from fedlib.forecast.estimates import TIMED, Estimate, Estimates
from fedlib.workflow import cells, freshness
from fedlib.workflow.cells import RunCost
from fedlib.workflow.config import budget_seconds
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

SECONDS = {"digits/fedavg": 100, "digits/fedem": 300, "mnist/fedavg": 1000, "mnist/fedem": 5000}


@pytest.fixture
def plan(toy):
    return toy()


def estimates() -> Estimates:
    costs = {}
    for name, seconds in SECONDS.items():
        costs[f"toy/{name}", "train"] = Estimate(0.9 * seconds, mb=2000)
        costs[f"toy/{name}", "evaluate"] = Estimate(0.1 * seconds, mb=500)
    return Estimates("core", "an abacus", costs)


def cells_of(plan: Plan, done=(), known=None) -> list[RunCost]:
    jobs = [one for one in nothing_done(plan) if one.stage in TIMED]
    jobs = [one for one in jobs if (one.job["federation"], one.job["label"]) not in done]
    return cells.cells(plan, jobs, known or estimates())


def nothing_done(plan: Plan) -> list[freshness.OpenJob]:
    return [freshness.OpenJob(*one, freshness.MISSING) for one in plan.jobs()]


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("10h", 36000), ("1.5d", 129600)])
def test_a_budget_has_minutes_hours_or_days(text, seconds):
    assert budget_seconds(text) == seconds


def test_a_cell_is_a_run_with_all_its_seeds_and_the_cheapest_comes_first(plan):
    found = cells_of(plan)
    assert [cell.name for cell in found] == [f"toy/{name}" for name in SECONDS]
    assert [cell.seconds for cell in found] == pytest.approx([2 * s for s in SECONDS.values()])
    assert {cell.mb for cell in found} == {2000.0} and {cell.jobs for cell in found} == {4}
    assert {cell.tables for cell in found} == {("main",)}


def bought(found: list[RunCost], budget: float, **numbers: int) -> list[str]:
    """Names of the cells that a budget buys, if these have published numbers."""
    shown = {f"toy/{name.replace('_', '/')}": number for name, number in numbers.items()}
    return [cell.name.removeprefix("toy/") for cell in cells.affordable(found, budget, shown)]


def test_a_budget_buys_whole_cells_cheapest_first(plan):
    found = cells_of(plan)
    for seconds, number in ((199, 0), (200, 1), (800, 2), (2799, 2), (2800, 3), (1e9, 4)):
        assert bought(found, seconds) == [*SECONDS][:number]


def test_a_budget_buys_first_what_costs_least_for_each_published_number(plan):
    found = cells_of(plan)  # of 200, 600, 2,000 and 10,000 seconds
    assert bought(found, 2200, mnist_fedavg=1) == ["mnist/fedavg", "digits/fedavg"]
    numbers = {"digits_fedavg": 1, "digits_fedem": 4, "mnist_fedavg": 5}
    assert bought(found, 1e9, **numbers) == [
        *("digits/fedem", "digits/fedavg", "mnist/fedavg", "mnist/fedem")
    ]
    assert bought(found, 600, **numbers) == ["digits/fedem"]


@pytest.mark.parametrize(
    ("paper", "those", "others"),
    [
        ("pfedmm", {"emnist/gated-experts": 2, "cifar10/local": 2}, ["synthetic/pfedmm"]),
        ("adaptive_experts", {"cifar10-p0.2/eps": 5, "cifar10-p0.2/local": 2}, ["femnist/local"]),
        ("fedmix", {"two-shard-mnist/fedmix-vae": 3, "femnist/fedavg": 1}, ["cifar10/fedmix-k14"]),
        ("fedmoe", {"femnist-m10/fedmoe": 1, "femnist-m50/fedmoe-main-2": 1}, []),
        ("pfedmoe", {"mnist-n10/fedproto": 1, "cifar10-n50/fedgh-homogeneous": 1}, []),
    ],
)
def test_published_numbers_of_a_run_are_those_that_tables_show_beside_it(paper, those, others):
    plan = Plan({"scale": "full", "papers": [paper]})
    found = estimate.count_numbers(plan.papers[paper], ROOT / plan.path("published", paper=paper))
    assert {name: found.get(f"{paper}/{name}") for name in those} == those
    assert found.keys().isdisjoint(f"{paper}/{name}" for name in others)


def test_what_is_done_costs_nothing_and_stays_selected(plan):
    kept = cells.affordable(cells_of(plan, done=[("mnist", "fedem")]), 200, {})
    assert [cell.name for cell in kept] == ["toy/mnist/fedem", "toy/digits/fedavg"]
    narrowed = Plan({"runs": [cell.name for cell in kept]})
    assert [*narrowed.runs] == [("toy", "digits", "fedavg"), ("toy", "mnist", "fedem")]
    assert [*narrowed.papers["toy"].tables] == ["main"]


JOB = {"paper": "toy", "federation": "digits", "label": "fedavg"}


def test_a_tuning_takes_as_long_as_its_trials_and_their_evaluations():
    tuning = {"trials": 8, "rates": [0.1, 1], "seed": 1}
    assert estimates().seconds("tune", JOB, tuning) == pytest.approx(8 * 90)
    assert estimates().seconds("tune", JOB, tuning | {"rung": True}) == pytest.approx(4 * 90)
    fine = tuning | {"protocol": "fine_tuned"}
    assert estimates().seconds("tune", JOB, fine) == pytest.approx(8 * (90 + 10))
    assert Estimates().seconds("tune", JOB, tuning) == math.inf


def test_schedulers_are_asked_for_spare_memory_and_thrice_the_time():
    for stage, mb in {"train": 2500, "evaluate": 1000, "partition": 4000}.items():
        assert estimates().megabytes(stage, JOB) == mb
    assert estimates().minutes("train", JOB) == 5  # 3 * 90 s
    assert estimates().minutes("evaluate", JOB) == 1  # 3 * 10 s
    assert Estimates().megabytes("train", JOB) == 4000
    assert [Estimates().minutes(stage, JOB) for stage in TIMED] == [480, 60]


def test_a_plan_tells_times_by_stage_and_cell(plan):
    lines = "\n".join(cells.summary(plan, nothing_done(plan), estimates()))
    assert "  train          8  3.2 h          not there yet" in lines
    assert "  metrics        1                 not there yet" in lines
    assert "Estimated core time on an abacus: 3.56 h, up to 2.0 GB a job" in lines
    first = lines.index("3.33 min    2.0 GB  toy/digits/fedavg (main)")
    assert first < lines.index("toy/mnist/fedem (main)")
    assert [*cells.summary(plan, [], estimates())] == ["results/demo is up to date: nothing to do"]


def test_runs_without_an_estimate_are_neither_bought_nor_done(plan, monkeypatch, tmp_path, capsys):
    assert bought(cells_of(plan, known=Estimates()), 1e12) == []
    lines = "\n".join(cells.summary(plan, nothing_done(plan), Estimates()))
    assert re.search("Estimated core time on : unknown, ", lines)
    some = {k: x for k, x in estimates().costs.items() if "em" in k[0]}
    lines = "\n".join(cells.summary(plan, nothing_done(plan), Estimates("core", "an abacus", some)))
    assert "an abacus: 2.94 h + unknown" in lines
    for given, least in ((Estimates(), "unknown"), (estimates(), "3.33 min")):
        monkeypatch.setattr(estimate.Estimates, "read", lambda _, given=given: given)
        monkeypatch.setattr(estimate, "count_numbers", lambda *_: {})
        said = f"budget=1m buys no cell of a table: the cheapest takes {least}"
        with pytest.raises(ConfigError, match=said):
            estimate.choose(Plan({"budget": "1m"}), freshness.Freshness({}, set()))
    every = cells_of(plan)
    in_figures = [cell._replace(tables=(), jobs=0) for cell in every]
    with monkeypatch.context() as patch, pytest.raises(ConfigError, match="no table shows these"):
        patch.setattr(estimate.cells, "cells", lambda *_: in_figures)
        estimate.choose(Plan({"budget": "99h"}), freshness.Freshness({}, set()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate.cells, "cells", lambda *_: every + in_figures)
    chosen = estimate.choose(Plan({"budget": "99h"}), freshness.Freshness({}, set()))
    assert ", 0 done, 0 not run" in capsys.readouterr().out
    assert chosen.config["runs"] and not Path(chosen.path("budget")).exists()  # a plan changes none


def test_only_runs_that_are_to_be_done_are_estimated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selected = {"papers": ["fedmix"], "federations": ["digits"], "seeds": [1, 2]}
    plan = Plan(selected | {"labels": ["fedavg", "local-global"]})

    def files(label: str, seed: int) -> list[str]:
        folder = f"results/demo/runs/fedmix/digits/{label}/seed{seed}"
        return [f"{folder}/history.h5", f"{folder}/evaluation.h5"]

    first = {*files("fedavg", 1), *files("fedavg", 2), *files("local-global", 1)}
    [request] = estimate.list_requests(plan, freshness.Freshness({}, first))
    assert set(request.finished) == {"train", "evaluate"}
    done = {*files("fedavg", 1), *files("fedavg", 2), files("local-global", 2)[0]}
    [request] = estimate.list_requests(plan, freshness.Freshness({}, done))
    assert request.name == "fedmix/digits/local-global"
    assert request.finished == {"train": Path(files("local-global", 2)[0])}
    assert request.spec.seed == 1 and request.data["dataset"] == "digits"
    assert request.spec.views is None
