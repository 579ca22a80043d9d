"""What the declaration of Fed-MoE says; sections of its specification."""

import csv

import numpy as np
import pytest

from fedlib import methods, papers
from fedlib.engine.participation import sample
from fedlib.papers.fedmoe import presets, settings
from fedlib.spec import SCALES
from fedlib.workflow.provenance import ROOT

every_scale = pytest.mark.parametrize("scale", SCALES)
DATASETS = ("femnist", "cifar10", "sent140", "yelp")
NUM_CLIENTS = (10, 50, 100)


def declare(scale):
    return papers.load("fedmoe").declare(scale)


def published():
    with (ROOT / "fedlib/papers/fedmoe/published.csv").open() as file:
        return list(csv.DictReader(file))


def changes(run, base):
    """Hyper-parameters in which two runs differ, if they differ in nothing else."""
    one, other = run.spec(0), base.spec(0)
    assert {name for name in one if one[name] != other[name]} <= {"params", "modules"}
    names = {*run.params, *base.params}
    return {name for name in names if run.params.get(name) != base.params.get(name)}


@every_scale
def test_every_run_is_shown_somewhere(scale):
    paper = declare(scale)
    for run in paper.runs:
        about = paper.exhibits_of(run.federation, run.label)
        assert not all(exhibit.shows_data for exhibit in about), run


@every_scale
def test_every_exhibit_of_the_paper_and_of_ours_is_there(scale):
    paper = declare(scale)
    assert {*paper.tables} == {
        *("criteria", "size", "accuracy", "num_experts", "parts", "entropy_weight", "top_l"),
        *("mixtures", "main_experts", "reserved", "skewed", "weights", "released_code"),
        *("warm_start", "alpha", "own_models"),
        *("cost",),
        *(() if scale == "reduced" else ("rolling",)),
        *(("steps",) if scale in ("reduced", "full") else ()),
    }
    assert {*paper.figures} == {
        *("accuracy_over_rounds", "alpha_over_rounds", "gate_by_class", "gate_of_the_code"),
        *("weights_over_rounds", "skewed_reserved_set", "client_labels"),
    }


def test_every_cell_of_table_2_has_a_run():
    paper = declare("full")
    columns = {c["published"]: c["federation"] for c in paper.tables["accuracy"].params["columns"]
               if c["published"] != "table2-average"}  # fmt: skip
    cells = [row for row in published() if row["exhibit"].startswith("table2-m")]
    assert len(cells) == 6 * 12
    for row in cells:
        number = row["exhibit"].removeprefix("table2-m")
        run = paper.run(f"{row['dataset']}-m{number}", row["label"])
        assert row["exhibit"] in columns
        assert paper.federation(run.federation).partition["num_clients"] == int(number)


@pytest.mark.parametrize(
    ("table", "exhibit", "role"),
    [
        ("parts", "table4", "parts"),
        ("entropy_weight", "table5", "betas"),
        ("top_l", "table6", "kept"),
        ("main_experts", "table8", "mains"),
        ("num_experts", "table3", None),
    ],
)
def test_the_ablations_have_a_row_for_every_printed_one(table, exhibit, role):
    declared = declare("full").tables[table]
    assert declared.published == exhibit
    rows = {row.get("printed", row["label"]) for row in declared.params["rows"]}
    fewer = {f"fedmoe-k{number}" for number in settings.FEWER}  # ours
    assert rows - fewer == {row["label"] for row in published() if row["exhibit"] == exhibit}
    if role:
        assert {*settings.PRINTED_AS[role].values()} <= rows


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


@pytest.mark.parametrize(
    ("label", "beta"),
    [("fedmoe-sync", 0), ("fedmoe-beta-1e-4", 1e-4), ("fedmoe", 1e-3), ("fedmoe-beta-1e-2", 1e-2),
     ("fedmoe-beta-1e-1", 1e-1)],
)  # fmt: skip
def test_the_weights_of_the_entropy_are_those_of_table_5(label, beta):
    run = declare("full").run("cifar10-m50", label)
    method = methods.load("fedmoe")
    default = method.__dataclass_fields__["entropy_weight"].default
    assert run.params.get("entropy_weight", default) == beta


def test_the_number_of_experts_is_that_of_the_gates_outputs():
    paper = declare("full")
    for label, number in (("fedmoe", 5), ("fedmoe-k30", 30), ("avg-moe", 2), ("avg-moe-k5", 5)):
        gate = paper.run("femnist-m50", label).modules["gate"]["params"]
        assert gate["num_classes"] == number
    assert paper.run("yelp-m50", "fedmoe").modules["gate"]["params"]["num_classes"] == 3


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("number", NUM_CLIENTS)
def test_cohorts_are_those_of_section_0(dataset, number):
    paper = declare("full")
    size = 5 if dataset in ("femnist", "cifar10") else 3
    for label, times in (("fedmoe", 1), ("fedavg", 1), ("fedjets", 2)):
        course = paper.run(f"{dataset}-m{number}", label).participation
        drawn = sample(np.arange(number), course["rate"], 0, 0, course["selection"])
        assert len(drawn) == times * size
        assert course["aggregation"] == "renormalised"
    selection = "residue" if size == 5 else "uniform"
    assert paper.run(f"{dataset}-m{number}", "fedmoe").participation["selection"] == selection


@pytest.mark.parametrize("dataset", DATASETS)
def test_all_methods_have_the_rounds_and_client_solvers_of_the_code(dataset):
    paper = declare("full")
    usual = presets.fedmoe(dataset)
    for number in NUM_CLIENTS:
        for label in (*settings.PRINTED, *settings.OURS):
            run = paper.run(f"{dataset}-m{number}", label)
            assert run.local == usual.local
            assert run.rounds == presets.SETTINGS[dataset].rounds
        params = dict(paper.run(f"{dataset}-m{number}", "fedmoe").params)
        assert params.pop("log_rounds")[-1] == presets.SETTINGS[dataset].rounds
        assert params == usual.params


def test_federations_have_the_sizes_of_section_0():
    paper = declare("full")
    sizes = {10: 3750, 50: 750, 100: 375}
    for number, size in sizes.items():
        partition = paper.federation(f"cifar10-m{number}").partition
        assert (partition["train_examples"], partition["alpha"]) == (size, 1.0)
        assert 10 * partition["server_per_class"] == 1000
        assert number * size <= 10 * partition["pool_per_class"]
        assert paper.federation(f"femnist-m{number}").partition["server_examples"] == 1280
        yelp = paper.federation(f"yelp-m{number}").partition
        assert (yelp["train_examples"], 5 * yelp["server_per_class"]) == (5000, 1000)
    tweets = paper.federation("sent140-m100").partition
    assert (tweets["train_examples"], tweets["share"]) == (2 * 190, 0.5)
    assert 2 * tweets["server_per_class"] == 1000


def test_reserved_sets_have_the_sizes_of_section_5_3():
    paper = declare("full")
    columns = paper.tables["reserved"].params["columns"]
    printed = {row["exhibit"] for row in published() if row["exhibit"].startswith("reserved-")}
    assert {column["published"] for column in columns} == printed
    for column in columns:
        partition = paper.federation(column["federation"]).partition
        found = partition.get("server_examples") or 10 * partition["server_per_class"]
        assert column["published"] == f"reserved-{found}"


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


@pytest.mark.parametrize("dataset", ["sent140", "yelp"])
def test_a_skewed_reserved_set_differs_in_its_majority_alone(dataset):
    paper = declare("full")
    even, skewed = (paper.federation(f"{dataset}-m50{end}") for end in ("", "-skewed"))
    assert skewed.spec() == even.spec() | {"partition": even.partition | {"majority": 0.6}}


def test_the_codes_partition_is_that_of_section_4_2():
    paper = declare("full")
    assert paper.federation("cifar10-m50-code").spec() == {
        "dataset": "cifar10",
        "params": {"scaling": "imagenet"},
        "partition": {
            "kind": "server_dirichlet",
            "num_clients": 50,
            "pool_per_class": 3480,
            "alpha": 1.0,
            "probe_per_class": 20,
            "val_per_class": 500,
            "server_per_class": 1000,
        },
        "seed": 42,
    }
    run = paper.run("cifar10-m50-code", "fedmoe-code")
    expected = presets.fedmoe("cifar10", "code").params
    assert run.params == expected | {"log_rounds": run.params["log_rounds"]}
    straight = paper.run("cifar10-m50-code", "fedmoe-code-straight-through")
    assert changes(straight, run) == {"gate_value"}


def test_texts_start_from_published_weights():
    paper = declare("full")
    for name, own, gate in (
        ("sent140-m50", "bert_base_weights", "bert_base_weights"),
        ("yelp-m50", "gpt2_medium_weights", "gpt2_weights"),
    ):
        run = paper.run(name, "fedmoe")
        assert (run.weights, run.modules["gate"]["weights"]) == (own, gate)


def test_the_reduced_scale_has_what_the_orderings_of_table_2_are_about():
    paper = declare("reduced")
    for number in (50, 100):
        for label in ("fedavg", "fedmoe"):
            assert paper.run(f"cifar10-m{number}", label)
    assert {data.dataset for data in paper.data} == {"femnist", "cifar10"}
    assert all(run.model_params.get("hidden", 256) == 256 for run in paper.runs)
    assert all(run.model_params.get("width", 16) == 16 for run in paper.runs)
    assert len(paper.seeds) == 1


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
