"""What the declaration of pFedMoE says; sections of its specification."""

import csv

import numpy as np
import pytest

from fedlib import papers
from fedlib.engine.participation import sample
from fedlib.papers.pfedmoe import settings
from fedlib.spec import SCALES
from fedlib.workflow.provenance import ROOT

every_scale = pytest.mark.parametrize("scale", SCALES)
WITH_SMALL = ("pfedmoe", "fml", "fedkd", "fedapen")
KINDS = ("heterogeneous", "homogeneous")
FULL = [(dataset, n) for dataset in ("mnist", "cifar10", "cifar100") for n in (10, 50, 100)]


def declare(scale):
    return papers.load("pfedmoe").declare(scale)


def published():
    with (ROOT / "fedlib/papers/pfedmoe/published.csv").open() as file:
        return list(csv.DictReader(file))


def sizes(run):
    """Architectures of the clients in turn; () if all have the run's own."""
    return tuple(module["params"]["size"] for module in run.modules.get("large", ()))


def test_every_published_cell_has_a_run_but_those_of_the_sibling_itself():
    paper = declare("full")
    for row in published():
        source, _, setting = row["exhibit"].partition("-")
        if source == "range" or row["label"].startswith("pfedes"):
            continue
        kind, _, number = setting.rpartition("-")
        run = paper.run(f"{row['dataset']}-{number}", row["label"])
        assert run.label.endswith(settings.SAME) == (kind == "homogeneous")


@every_scale
def test_every_run_is_shown_somewhere(scale):
    paper = declare(scale)
    for run in paper.runs:
        about = paper.exhibits_of(run.federation, run.label)
        assert not all(exhibit.shows_data for exhibit in about), run


@pytest.mark.parametrize(("dataset", "number"), FULL)
def test_federations_are_those_of_section_4(dataset, number):
    paper = declare("full")
    data = paper.federation(f"{dataset}-n{number}")
    assert data.partition == {
        "kind": "path_line",
        "num_clients": number,
        "classes_per_client": 10 if dataset == "cifar100" else 2,
        "train_fraction": 0.8,
    }
    run = paper.run(data.name, "pfedmoe")
    cohort = sample(np.arange(number), run.participation["rate"], seed=0, round=0)
    assert len(cohort) == 10  # 10 of 10, 20 % of 50, 10 % of 100
    assert run.participation["aggregation"] == "renormalised"


def test_the_full_scale_has_the_settings_of_section_5():
    for run in declare("full").runs:
        assert (run.rounds, run.local["epochs"], run.local["batch_size"]) == (500, 10, 512)
        assert (run.local["lr"], run.local["momentum"]) == (0.01, 0.9)
        assert (run.local["weight_decay"], run.local["clip_norm"]) == (1e-3, 50)
        assert run.local["keeps"] == "round"


@every_scale
def test_every_method_runs_with_five_architectures_and_with_one(scale):
    paper = declare(scale)
    labels = {run.label for run in paper.runs}
    assert {*settings.MAIN} <= labels
    same = {label for label in labels if label.endswith(settings.SAME)}
    few = {*settings.same(settings.NEW)}
    assert same == (few if scale.startswith("demo") else {*settings.HOMOGENEOUS})


@pytest.mark.parametrize("scale", ["reduced", "full"])
def test_the_shared_extractor_may_be_as_large_as_all_others_with_one_architecture(scale):
    paper = declare(scale)  # section 3, option G = CNN-1
    run, base = (paper.run("cifar10-n10", f"{x}-homogeneous") for x in ("pfedmoe-g1", "pfedmoe"))
    assert changes(run, base) == {"model_params"}
    assert (sizes(run), run.model_params["size"]) == (("cnn1",), "cnn1")
    assert run.label in paper.tables["accuracy_homogeneous"].labels


@pytest.mark.parametrize(("scale", "dataset"), [("reduced", "mnist"), ("full", "cifar10")])
def test_one_federation_has_uneven_shares_of_the_same_classes(scale, dataset):
    paper = declare(scale)
    even, uneven = (paper.federation(name) for name in paper.tables["shares"].federations)
    assert (even.name, uneven.partition["kind"]) == (f"{dataset}-n10", "path_dir")
    assert even.partition | {"kind": "path_dir", "alpha": 0.5} == uneven.partition
    assert paper.run(uneven.name, "pfedmoe").local == paper.run(even.name, "pfedmoe").local


@every_scale
def test_every_round_is_evaluated_where_rounds_to_a_target_are_counted(scale):
    paper = declare(scale)
    targets = [paper.tables[f"to_target_{name}"].params["targets"] for name in KINDS]
    aimed = {name for found in targets for name in found}
    assert aimed
    assert {run.evaluate_every for run in paper.runs if run.federation in aimed} == {1}


@every_scale
def test_fedavg_says_that_its_row_is_the_servers_model(scale):
    paper = declare(scale)
    (title,) = {run.title for run in paper.runs if run.method == "fedavg"}
    assert "server's model" in title
    assert all(run.notes for run in paper.runs if run.method == "fedavg")


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_heterogeneous_clients_have_the_five_architectures_in_turn(dataset):
    paper = declare("reduced")
    zoo = "mnist" if dataset == "mnist" else "cnn"
    for label in settings.MAIN:
        run = paper.run(f"{dataset}-n10", label)
        assert sizes(run) == tuple(f"{zoo}{number}" for number in range(1, 6))
        shared = run.model_params["size"]
        assert shared == (f"{zoo}5" if label in WITH_SMALL else f"{zoo}1")


def test_homogeneous_clients_have_the_first_architecture():
    paper = declare("reduced")
    for label in (*settings.MAIN, *settings.NEW):
        run = paper.run("cifar10-n10", f"{label}{settings.SAME}")
        if label in WITH_SMALL:
            assert (sizes(run), run.model_params["size"]) == (("cnn1",), "cnn5")
        else:
            assert (sizes(run), run.model_params["size"]) == ((), "cnn1")


@every_scale
def test_only_pfedmoe_has_a_gate_which_sees_what_the_experts_see(scale):
    for run in declare(scale).runs:
        assert ("gate" in run.modules) == (run.method == "pfedmoe")
        if "gate" in run.modules:
            gate = run.modules["gate"]["params"]
            for name in ("in_channels", "side", "augment"):
                assert gate.get(name) == run.model_params.get(name)


def changes(run, base):
    """Names of the fields in which two runs differ."""
    one, other = run.spec(0), base.spec(0)
    return {name for name in one if one[name] != other[name]}


def test_a_variant_of_pfedmoe_differs_in_one_thing():
    paper = declare("full")
    base = paper.run("cifar10-n10", "pfedmoe")
    for label in (*settings.GATES[1:], *settings.EXTRACTORS[:-1]):
        run = paper.run("cifar10-n10", label)
        found = changes(run, base)
        recorded = {key: x for key, x in base.params.items() if key != "recorded"}
        if run.params == recorded:
            found -= {"params"}
        assert len(found) == 1, (label, found)


def test_the_ablations_are_those_of_section_2():
    paper = declare("full")
    runs = {run.label: run for run in paper.runs if run.federation == "cifar10-n10"}
    gates = [runs[label].modules["gate"]["params"] for label in settings.GATES]
    assert {g.get("input_norm", "switch1d") for g in gates} == {
        "switch1d", "switch2d", "batch1d", "layer", "none",
    }  # fmt: skip
    assert {g.get("hidden_norm", "none") for g in gates} == {"none", "batch", "layer"}
    assert {g.get("hidden", 64) for g in gates} == {16, 32, 64, 128, 256}
    rates = {0.01 * runs[x].params.get("gate_lr_scale", 1) for x in settings.GATES}
    assert sorted(rates) == pytest.approx([0.001, 0.01, 0.1, 1.0])
    modes = {runs[label].params.get("gate_mode", "learned") for label in settings.GATES}
    assert modes == {"learned", "fixed:0.5", "global_only", "local_only"}


def test_the_sweeps_are_those_of_sections_4_and_6():
    paper = declare("full")

    def values(figure, dataset, key):
        data = (paper.federation(name) for name in paper.figures[figure].federations)
        return sorted(d.partition[key] for d in data if d.dataset == dataset)

    classes = {"cifar10": [2, 4, 6, 8, 10], "cifar100": [10, 30, 50, 70, 90, 100]}
    for dataset, expected in classes.items():
        assert values("accuracy_over_classes", dataset, "classes_per_client") == expected
        assert values("accuracy_over_gamma", dataset, "alpha") == [0.1, 0.3, 0.5, 1.0]


def test_every_sweep_is_drawn_in_one_panel_per_data_set():
    for scale, panels in (("demo", 1), ("reduced", 1), ("full", 2)):
        paper = declare(scale)
        names = paper.figures["accuracy_over_classes"].federations
        assert len({paper.federation(name).describe()["family"] for name in names}) == panels


def test_targets_are_those_of_section_9_1():
    paper = declare("full")
    for setting in KINDS:
        assert paper.tables[f"to_target_{setting}"].params["targets"] == {
            **{f"cifar10-n{n}": 0.9 for n in (10, 50, 100)},
            **{"cifar100-n10": 0.7, "cifar100-n50": 0.6, "cifar100-n100": 0.5},
        }


def test_the_reduced_scale_has_what_the_acceptance_targets_are_about():
    paper = declare("reduced")
    for label in ("pfedmoe", "standalone", "lg-fedavg", "pfedmoe-fixed"):
        run = paper.run("cifar10-n10", label)
        assert (run.rounds, paper.seeds_of(run)) == (40, (0, 1, 2))
    assert {data.dataset for data in paper.data} == {"cifar10", "mnist"}
    assert all(data.partition["num_clients"] == 10 for data in paper.data)


def test_published_numbers_are_looked_for_where_they_are():
    paper = declare("full")
    exhibits = {row["exhibit"] for row in published()}
    for setting in KINDS:
        table = paper.tables[f"accuracy_{setting}"]
        assert {*table.params["names"]} == {*table.federations}
        for name in table.params["names"].values():
            assert f"sibling-{name}" in exhibits
        assert paper.tables[f"gains_{setting}"].published in exhibits
