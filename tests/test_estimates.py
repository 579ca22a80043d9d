"""What a plan is estimated to cost, and what a budget buys."""

import json
import re

import pytest

from fedlib import seals
from fedlib.cli import estimate
from fedlib.errors import ConfigError, DataError
from fedlib.forecast import cells, estimating
from fedlib.forecast import estimates as requests
from fedlib.forecast.cells import RunCost, duration, hours
from fedlib.forecast.estimates import TIMED, Estimate, Estimates, run_name
from fedlib.workflow import config, dryrun, stale, unfinished
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
        costs[f"toy/{name}", "train"] = Estimate(0.9 * seconds, flops=0, mb=2000)
        costs[f"toy/{name}", "evaluate"] = Estimate(0.1 * seconds, flops=0, mb=500)
    return Estimates("core", "an abacus", costs)


def cells_of(plan: Plan, done=()) -> list[RunCost]:
    seconds = {}
    for stage, job in plan.jobs():
        if stage in TIMED and (job["federation"], job["label"]) not in done:
            found = estimates().seconds(stage, job, None)
            seconds.setdefault((run_name(job), stage), []).append(found)
    return cells.cells(plan.papers, seconds, estimates())


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("10h", 36000), ("1.5d", 129600)])
def test_a_budget_has_minutes_hours_or_days(text, seconds):
    assert budget_seconds(text) == seconds


def test_a_cell_is_a_run_with_all_its_seeds_and_the_cheapest_comes_first(plan):
    found = cells_of(plan)
    assert [cell.name for cell in found] == [f"toy/{name}" for name in SECONDS]
    assert [cell.seconds for cell in found] == pytest.approx([2 * s for s in SECONDS.values()])
    assert {cell.mb for cell in found} == {2000.0} and {cell.jobs for cell in found} == {4}
    assert {cell.tables for cell in found} == {("main",)}


def test_a_budget_buys_whole_cells_cheapest_first(plan):
    found = cells_of(plan)
    for seconds, names in ((199, 0), (200, 1), (800, 2), (2799, 2), (2800, 3), (1e9, 4)):
        assert [c.name for c in cells.affordable(found, seconds)] == [c.name for c in found][:names]


def test_a_budget_buys_cells_with_a_published_number_before_all_others(plan):
    found = cells_of(plan)
    first, second, third, _ = (cell.name for cell in found)
    bought = cells.affordable(found, 2000 + 200, {third})
    assert [cell.name for cell in bought] == [third, first]
    assert [cell.name for cell in cells.affordable(found, 800, {third})] == [first, second]


@pytest.mark.parametrize(
    ("paper", "those", "others"),
    [
        ("pfedmm", ["emnist/gated-experts", "cifar10/local"], ["synthetic/pfedmm"]),
        ("adaptive_experts", ["cifar10-p0.2/eps"], ["cifar10-p0.2/local"]),
        ("fedmix", ["two-shard-mnist/fedmix-vae", "femnist/fedavg"], ["cifar10/fedmix-k14"]),
    ],
)
def test_cells_with_a_published_number_are_those_that_a_table_shows_beside_it(paper, those, others):
    plan = Plan({"scale": "full", "papers": [paper]})
    found = cells.with_published(plan.papers[paper], ROOT / plan.path("published", paper=paper))
    assert {f"{paper}/{name}" for name in those} <= found
    assert found.isdisjoint(f"{paper}/{name}" for name in others)


def test_what_is_done_costs_nothing_and_stays_selected(plan):
    found = cells_of(plan, done=[("mnist", "fedem")])
    bought = cells.affordable(found, 200)
    assert [cell.name for cell in bought] == ["toy/mnist/fedem", "toy/digits/fedavg"]
    chosen = json.loads(cells.configuration(bought))
    runs = ["toy/digits/fedavg", "toy/mnist/fedem"]
    assert chosen == {"runs": runs, "budget": None}
    narrowed = Plan(chosen)
    assert [*narrowed.runs] == [("toy", "digits", "fedavg"), ("toy", "mnist", "fedem")]
    assert [*narrowed.papers["toy"].tables] == ["main"]


def test_a_cell_that_was_begun_is_finished_first_so_that_no_table_loses_it(plan):
    seconds = {(f"toy/{name}", "train"): [1.0] * 2 for name in SECONDS}
    seconds |= {(f"toy/{name}", "evaluate"): [1.0] * 2 for name in SECONDS}
    seconds["toy/mnist/fedem", "train"] = [9000.0]  # of two seeds
    bought = cells.affordable(cells.cells(plan.papers, seconds, estimates()), 8)
    assert [cell.name for cell in bought] == ["toy/mnist/fedem"]


def test_a_table_says_which_of_its_cells_are_not_run(plan):
    chosen = Plan({"runs": ["toy/digits/fedavg", "toy/mnist/fedem"]})
    spec = json.loads(chosen.spec("table", paper="toy", table="main"))
    assert spec["caption"] == ("All runs. Not run: fedem on Digits; fedavg on Mnist.")
    everything = json.loads(plan.spec("table", paper="toy", table="main"))
    assert everything["caption"] == "All runs."


def test_selecting_labels_changes_no_caption(toy):
    spec = json.loads(toy({"labels": ["fedem"]}).spec("table", paper="toy", table="main"))
    assert spec["caption"] == "All runs."


def test_a_tuning_takes_as_long_as_its_trials_and_their_evaluations():
    job = {"paper": "toy", "federation": "digits", "label": "fedavg"}
    tuning = {"trials": 8, "rates": [0.1, 1], "seed": 1}
    assert estimates().seconds("tune", job, tuning) == pytest.approx(8 * 90)
    assert estimates().seconds("tune", job, tuning | {"rung": True}) == pytest.approx(4 * 90)
    fine = tuning | {"protocol": "fine_tuned"}
    assert estimates().seconds("tune", job, fine) == pytest.approx(8 * (90 + 10))
    assert Estimates().seconds("tune", job, tuning) is None


def test_memory_is_estimated_with_room_to_spare_and_4_gb_where_nothing_is_known():
    job = {"paper": "toy", "federation": "mnist", "label": "fedavg"}
    assert estimates().megabytes("train", job) == 2500
    assert estimates().megabytes("evaluate", job) == 1000
    assert estimates().megabytes("partition", job) == 4000
    assert Estimates().megabytes("train", job) == 4000


def test_a_slower_node_has_three_times_the_estimate_in_whole_minutes():
    job = {"paper": "toy", "federation": "digits", "label": "fedavg"}
    assert estimates().minutes("train", job) == 5  # 3 * 90 s
    assert estimates().minutes("evaluate", job) == 1  # 3 * 10 s
    assert Estimates().minutes("train", job) == 480
    assert Estimates().minutes("evaluate", job) == 60


def test_a_plan_tells_hours_by_paper_exhibit_and_cell(plan):
    planned = [
        dryrun.Job(stage, {key: str(value) for key, value in job.items()}, "Missing output files")
        for stage, job in plan.jobs()
    ]
    lines = "\n".join(dryrun.summary(plan, planned, estimates()))
    assert "  train          8  3.2 h          not there yet" in lines
    assert "  metrics        1                 not there yet" in lines
    assert "Estimated: 3.56 core-hours on an abacus, up to 2.0 GB a job" in lines
    assert "table main" in lines and "figure curves" in lines
    first = lines.index("toy/digits/fedavg (main)")
    assert first < lines.index("toy/mnist/fedem (main)")


def test_a_run_that_cannot_be_estimated_is_neither_done_nor_free(plan, monkeypatch):
    jobs = [
        dryrun.Job(stage, {key: str(value) for key, value in job.items()}, "Missing output files")
        for stage, job in plan.jobs()
    ]
    lines = "\n".join(dryrun.summary(plan, jobs, Estimates()))
    assert re.search(r"Estimated: unknown core-hours.*\n  toy +unknown  4 cells\n", lines)
    some = Estimates(
        "core", "an abacus", {k: x for k, x in estimates().costs.items() if "em" in k[0]}
    )
    assert "Estimated: 2.94 + unknown core" in "\n".join(dryrun.summary(plan, jobs, some))
    for given, least in ((Estimates(), "unknown"), (estimates(), "0.0556")):
        monkeypatch.setattr(estimate.Estimates, "read", lambda _, given=given: given)
        monkeypatch.setattr(estimate.cells, "with_published", lambda *_: set())
        with pytest.raises(
            ConfigError, match=f"budget=1m buys no cell: the cheapest takes {least}"
        ):
            estimate.choose(Plan({"budget": "1m"}))


def test_hours_are_told_to_three_digits():
    assert [hours(s) for s in (3600 * 1234, 3600, 9)] == ["1,230", "1", "0.0025"]
    assert [duration(86400 * days) for days in (6417, 45.678, 2)] == [
        *("6,420 days", "45.7 days", "2 days")
    ]


def test_what_an_older_rehearsal_found_is_not_taken_for_a_newer_ones(tmp_path, monkeypatch):
    """The cache of a user outlives a checkout; what is kept there has another form, perhaps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = Plan(
        {"scale": "demo", "papers": ["fedmix"], "federations": ["digits"], "labels": ["fedavg"]}
    )
    [request] = unfinished.requests(plan)
    before, raw = request.key(), plan.config["raw"]
    estimator = estimating.Estimator("cpu", raw)
    found = estimator.costs(request)
    estimator.keep()
    cache = tmp_path / "fedlib/forecasts.json"
    kept = seals.read_json(cache)
    old = {key: ["of old"] for key, value in kept.items() if "loads" in value}
    assert len(old) == 1
    seals.write_json(cache, kept | old)
    edited, digest = {requests.REHEARSAL[0]: "edited"}, requests.digest
    for module in (requests, estimating):
        monkeypatch.setattr(module, "digest", lambda path: edited.get(path) or digest(path))
    assert estimating.Estimator("cpu", raw).costs(request) == found
    assert request.key() != before


def test_runs_that_differ_in_what_changes_no_count_share_a_rehearsal(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    values = {"papers": ["fedmix"], "federations": ["digits"], "labels": ["fedavg"]}
    [request] = unfinished.requests(Plan(values))
    rehearsed, rehearse = [], estimating.rehearsal.rehearse
    monkeypatch.setattr(
        estimating.rehearsal, "rehearse", lambda *x: rehearsed.append(x) or rehearse(*x)
    )
    estimator = estimating.Estimator("cpu", "data/raw")
    local = request.spec["local"]
    changes = {"seed": 9, "rounds": 77, "tuned": "0f", "local": {**local, "lr": 2 * local["lr"]}}
    for name, value in changes.items():
        estimator.costs(request)
        estimator.costs(request._replace(spec={**request.spec, name: value}))
        assert len(rehearsed) == 1, name
    estimator.costs(request._replace(spec={**request.spec, "local": {**local, "epochs": 7}}))
    assert len(rehearsed) == 2


def test_an_edit_of_an_own_method_has_it_estimated_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "ROOT", tmp_path)
    monkeypatch.setattr(requests, "digest", lambda path: path.exists() and path.read_text())
    method = tmp_path / "mine.py"
    method.write_text("1")
    spec = {"method": "mine.py", "model": "mlp", "modules": {}, "participation": {}}
    before = requests.code_of(spec)
    method.write_text("2")
    assert requests.code_of(spec) != before


@pytest.fixture
def estimated(tmp_path, monkeypatch):
    """Function that estimates a plan of one run with two seeds as `make plan` does; its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    selected = {"papers": ["fedmix"], "federations": ["digits"], "seeds": [1]}
    plan = Plan(selected | {"labels": ["fedavg", "local-global"]})
    return lambda: estimate.estimate(plan) or tmp_path / "results/demo"


def made_up(monkeypatch, costs):
    monkeypatch.setattr(estimating.Estimator, "costs", costs)
    monkeypatch.setattr(estimating, "TELL_EVERY", -1)


def test_what_has_been_estimated_is_kept_while_others_are_and_how_long_it_takes_is_told(
    estimated, monkeypatch, tmp_path, capsys
):
    kept = []

    def costs(estimator, request):
        kept.append(seals.remembered(tmp_path / "results/demo/estimates.json").get("runs", {}))
        return {stage: Estimate(seconds=1, flops=1, mb=1) for stage in TIMED}

    made_up(monkeypatch, costs)
    folder = estimated()
    assert [len(found) for found in kept] == [0, 1]  # a kill at the second loses nothing
    assert re.search(r"^estimating: 1 of 2 runs, about \d+ s left$", capsys.readouterr().out, re.M)
    read = Estimates.read(folder / "estimates.json")
    assert (read.unit, len(read.costs)) == ("core", 4)
    assert {*read.costs.values()} == {Estimate(seconds=1, flops=1, mb=1)}
    (folder / "estimates.json").write_text('{"runs": {"x": {"train": {"secomds": 1}}}}')
    assert Estimates.read(folder / "estimates.json").costs == {}
    estimated()
    assert len(kept) == 4
    # Another version had no memory, or no evaluations.
    runs = seals.read_json(folder / "estimates.json")["runs"]
    without = [("fedmix/digits/fedavg", "evaluate"), ("fedmix/digits/local-global", "train", "mb")]
    for first, stage, *field in without:
        runs[first] = {**runs[first], stage: {}} if field else {"key": runs[first]["key"]}
    seals.write_json(folder / "estimates.json", {"runs": runs})
    assert Estimates.read(folder / "estimates.json").costs == {}
    estimated()
    assert len(kept) == 6 and len(Estimates.read(folder / "estimates.json").costs) == 4


def test_only_runs_that_are_to_be_done_are_estimated(estimated, monkeypatch):
    asked = []
    costs = {stage: Estimate(seconds=1, flops=1, mb=1) for stage in TIMED}
    made_up(monkeypatch, lambda estimator, request: asked.append(request.name) or costs)
    fedavg = "results/demo/runs/fedmix/digits/fedavg/seed1"
    done = {f"{fedavg}/history.h5", f"{fedavg}/evaluation.h5"}
    done.add("results/demo/runs/fedmix/digits/local-global/seed1/evaluation.h5")
    monkeypatch.setattr(unfinished.stale, "look", lambda plan: stale.Looked(set(), done))
    estimated()
    assert asked == ["fedmix/digits/local-global"]


def test_what_keeps_runs_from_being_estimated_is_said_once(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def fail():\n    1 / 0\n")
    monkeypatch.setattr(requests, "ROOT", tmp_path)
    names = {}
    exec(compile((tmp_path / "mine.py").read_text(), str(tmp_path / "mine.py"), "exec"), names)
    missing, undealt = DataError("no such file"), estimating.UndealtError("100000 clients")
    errors = dict(zip("abcdef", [missing] * 3 + [undealt] * 2 + [None], strict=True))

    def costs(estimator, request):
        if errors[request.name]:
            raise errors[request.name]
        names["fail"]()

    monkeypatch.setattr(estimating.Estimator, "costs", costs)
    estimator = estimating.Estimator("cpu", "data/raw")

    def estimated(name: str, method: str = "fedavg"):
        spec = {"method": method}
        return estimator.estimated(requests.Request(name, spec, {}, tmp_path, "cpu", "auto"))

    unknown = [*map(estimated, "abcde"), estimated("f", "mine.py")]
    wrong = (
        r"d and 1 more: 100000 clients\n  f: mine.py, line 2: ZeroDivisionError: division by zero"
    )
    with pytest.raises(ConfigError, match=wrong):
        estimating.tell(unknown)
    assert capsys.readouterr().out == "not estimated: a and 2 more: no such file\n"
    with pytest.raises(ZeroDivisionError):
        estimated("f")  # a bug of ours keeps its traceback


def test_a_federation_that_cannot_be_dealt_is_no_plan(tmp_path):
    given = ["papers=[pfedmm]", "federations=[digits]", "labels=[fedavg]", "tag=t"]
    values = config.read([], [*given, "set=[digits.num_clients=100000]"])
    [request] = unfinished.requests(Plan(values))
    with pytest.raises(estimating.UndealtError, match="cannot be dealt to 100000 clients"):
        estimating.Estimator("cpu", "data/raw").costs(request)
