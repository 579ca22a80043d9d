"""Which jobs of the demo an edit of a module repeats: those that can reach it, and no other.

`test_incremental.py` asks Snakemake the same of a small finished run; here it is asked of the plan
of all papers, by the closures that code digests are made of.
"""

import pytest
from workflow import ROOT

from fedlib.forecast.estimates import run_name
from fedlib.workflow import config, provenance
from fedlib.workflow.plan import Plan

PLAN = Plan(config.read([ROOT / "config.yaml"]) | {"scale": "demo", "papers": None})
JOBS = list(PLAN.jobs())
WORKFLOW = sorted((ROOT / "fedlib/workflow").glob("*.py"))
FORECAST = sorted((ROOT / "fedlib/forecast").glob("*.py"))
RUNS = [job for stage, job in JOBS if stage == "train"]


def name(module):
    """The dotted name of "engine/gossip" in the package."""
    return "fedlib." + module.replace("/", ".")


def repeated(module):
    """[(stage, wildcards)] of the jobs whose code an edit of `module` changes."""
    assert (ROOT / "fedlib" / f"{module}.py").is_file()
    return [
        (stage, job)
        for stage, job in JOBS
        if name(module) in provenance.closure(*PLAN.roots(stage, **job))
    ]


def stages(module):
    """The stages that have jobs which an edit of `module` repeats."""
    return {stage for stage, _ in repeated(module)}


def run_of(job):
    """The declared run of a training or an evaluation."""
    return PLAN.run(job["paper"], job["federation"], job["label"])


def check_runs(module, uses):
    """An edit of `module` repeats all of the runs that `uses`: tuning, training, evaluation."""
    again = repeated(module)
    for stage in ("train", "evaluate"):
        found = [job for found_stage, job in again if found_stage == stage]
        expected = [job for job in RUNS if uses(run_of(job))]
        assert expected and sorted(map(str, found)) == sorted(map(str, expected))
    tuned = {run_name(job) for job in RUNS if uses(run_of(job)) and run_of(job).tuning}
    assert {run_name(job) for stage, job in again if stage == "tune"} == tuned
    assert {stage for stage, _ in again} - {"tune"} == {"train", "evaluate"}


def test_an_edit_of_a_method_repeats_those_that_derive_from_it():
    check_runs("methods/fedem", lambda run: run.method in {"fedem", "pfedmm"})
    check_runs("methods/pfedme", lambda run: run.method == "pfedme")


def test_an_edit_of_gossip_repeats_the_decentralised_runs():
    check_runs("engine/gossip", lambda run: run.participation.get("aggregation") == "gossip")


@pytest.mark.parametrize("model", ["mlp", "linear", "vae", "lenet5"])
def test_an_edit_of_a_model_repeats_the_runs_that_train_it(model):
    def trains(run):
        return model in {run.model, *(one.model for one in run.architectures.values())}

    check_runs(f"models/{model}", trains)


@pytest.mark.parametrize(
    "module",
    "engine/cohort engine/executors engine/graphs engine/fingerprint run/scoring tree".split(),
)
def test_an_edit_of_what_may_have_computed_any_run_repeats_all(module):
    # Which executor computed a run is no part of its specification: each of them may have.
    check_runs(module, lambda run: True)


def test_an_edit_of_the_final_evaluation_trains_nothing():
    assert stages("run/operations") == {"evaluate"}
    assert stages("run/evaluate") == {"evaluate", "tune"}  # tuning scores what was tried


def test_an_edit_of_training_s_last_step_evaluates_nothing():
    assert stages("run/train") == {"train"}


@pytest.mark.parametrize(
    "module",
    ["errors", "files", "locks", "seals", "environment", "run/checkpoint", "run/progress"]
    + [f"workflow/{file.stem}" for file in WORKFLOW if file.stem != "__init__"]
    + [f"forecast/{file.stem}" for file in FORECAST if file.stem != "__init__"],
)
def test_an_edit_of_plumbing_repeats_nothing(module):
    assert repeated(module) == []


@pytest.mark.parametrize(
    "module",
    [
        *(f"partitions/{x}" for x in ("angled", "dirichlet", "majority", "permuted", "two_shard")),
        *("sources/digits", "sources/synthetic"),
    ],
)
def test_an_edit_of_a_partition_or_a_reader_repeats_the_federations_of_it(module):
    expected = []
    for job in PLAN.partitions():
        data = PLAN.data(job["paper"], job["federation"])
        if module in (f"partitions/{data.partition['kind']}", f"sources/{data.dataset}"):
            expected.append(("partition", job))
    assert expected and repeated(f"data/{module}") == expected


def test_an_edit_of_a_metric_trains_nothing():
    assert stages("report/metrics/definitions") == {"metrics", "table", "figure"}


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_run_depends_on_no_package_before_or_after_it(stage):
    others = ("data", "papers", "report", "workflow")
    reached = set().union(*(provenance.closure(*PLAN.roots(stage, **job)) for job in RUNS))
    assert [module for module in reached if module.split(".")[1:2] in [[x] for x in others]] == []
