"""What the declaration of Fed-MoE says; sections of its specification."""

import pytest

from fedlib import papers
from fedlib.papers.fedmoe import settings
from fedlib.spec import SCALES

every_scale = pytest.mark.parametrize("scale", SCALES)


def declare(scale):
    return papers.load("fedmoe").declare(scale)


def changes(run, base):
    """Hyper-parameters in which two runs differ, if they differ in nothing else."""
    one, other = run.spec(0), base.spec(0)
    assert {name for name in one if one[name] != other[name]} <= {"params", "modules"}
    names = {*run.params, *base.params}
    return {name for name in names if run.params.get(name) != base.params.get(name)}


def test_an_ablation_changes_one_thing():
    paper = declare("full")
    expected = {
        **{"fedmoe-entropy": {"sync_weights"}, "fedmoe-sync": {"entropy_weight"}},
        "fedmoe-plain": {"sync_weights", "entropy_weight"},
        **{f"fedmoe-top-{n}": {"top_k"} for n in (2, 3, 5)},
        **{f"fedmoe-main-{n}": {"num_main"} for n in (0, 2, 3)},
        **{f"fedmoe-k{n}": set() for n in (10, 20, 30)},
        **{"fedmoe-wc-paper": {"sync_weights"}, "fedmoe-wc-convex": {"sync_weights"}},
        **{"fedmoe-wc-paper-mean": {"sync_weights", "sync_reduce"}},
        **{"fedmoe-wr-mean": {"relevance_reduce"}, "fedmoe-beta-1e-1": {"entropy_weight"}},
        **{"fedmoe-fresh": {"start", "sync_weights"}, "fedmoe-fixed-alpha": {"alpha_lr_scale"}},
        **{f"fedmoe-lambda-{lam:g}": {"lam", "client_lam"} for lam in (0.05, 0.3, 0.5, 1)},
        **{f"fedmoe-k{n}": set() for n in (1, 3)},
    }
    base = paper.run("femnist-m50", "fedmoe")
    for label, names in expected.items():
        assert changes(paper.run("femnist-m50", label), base) == names, label
    base, code = (paper.run("femnist-m50-code", label) for label in ("fedmoe", "fedmoe-code"))
    balanced = paper.run("femnist-m50-code", "fedmoe-balanced")
    assert changes(balanced, base) == {"query", "balance_weight"}
    assert changes(paper.run("femnist-m50-code", "fedmoe-code-shared"), code) == {"init_experts"}


@every_scale
def test_numbers_printed_of_fifty_clients_are_compared_with_fifty_clients_alone(scale):
    paper = declare(scale)
    clients = {data.name: data.partition.get("num_clients") for data in paper.data}
    names = ("num_experts", "parts", "entropy_weight", "top_l", "main_experts", "mixtures")
    for name in (*names, "reserved", "skewed"):
        for column in paper.tables[name].params["columns"]:
            elsewhere = None if clients[column["federation"]] == 50 else "M = 50"
            assert column.get("of") == elsewhere, (name, column)
    for criterion in paper.tables["criteria"].params["criteria"]:
        for term in criterion["terms"]:
            exhibit = term.get("published", {}).get("exhibit", "")
            number = int(exhibit.removeprefix("table2-m")) if exhibit.startswith("table2") else 50
            assert not exhibit or clients[term["federation"]] == number


def test_the_rate_of_a_cosine_falls_over_the_runs_own_rounds():
    for run in declare("reduced").runs:
        schedule = run.params.get("server", {}).get("schedule")
        if run.method == "fedmoe" and schedule:
            steps = run.rounds * run.params["inner_steps"] * run.params["server"]["epochs"]
            assert schedule["period"] == steps


@every_scale
def test_weights_are_drawn_in_rounds_in_which_they_are_written_down(scale):
    paper = declare(scale)
    for name in ("weights_over_rounds", "gate_by_class", "gate_of_the_code"):
        figure = paper.figures[name]
        rounds = figure.params["rounds"]
        for federation in figure.federations:
            mine = rounds[federation] if isinstance(rounds, dict) else rounds
            assert mine
            for label in figure.labels:
                assert {*mine} <= {*paper.run(federation, label).params["log_rounds"]}


def test_the_last_rounds_are_written_down_and_no_more_than_twenty():
    for run in declare("full").runs:
        if "log_rounds" in run.params:
            logged = run.params["log_rounds"]
            assert logged[0] == 1 and logged[-1] == run.rounds
            assert len(logged) <= settings.LOGS + 1


@pytest.mark.parametrize(("scale", "name"), [("full", "yelp-m50"), ("reduced", "femnist-m10")])
def test_a_warm_start_is_an_epoch_with_the_clients_solver_and_nothing_else_differs(scale, name):
    paper = declare(scale)
    cold, warm = (paper.run(name, label) for label in settings.WARM)
    assert warm.params == {**cold.params, "warm_start": {**cold.local, "epochs": 1}}
    assert {**vars(warm), "params": 0, "label": 0, "title": 0, "notes": 0} == {
        **vars(cold), "params": 0, "label": 0, "title": 0, "notes": 0}  # fmt: skip
    assert paper.tables["warm_start"].shows(name, "fedmoe-warm")
