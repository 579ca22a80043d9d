"""What the declaration of Adaptive Expert Models says; sections of its specification."""

import numpy as np
import pytest

from fedlib import papers
from fedlib.data.build import build
from fedlib.engine.participation import sample
from fedlib.spec import SCALES

every_scale = pytest.mark.parametrize("scale", SCALES)


def declare(scale):
    return papers.load("adaptive_experts").declare(scale)


def clients(paper, run):
    """Clients that train, and those of a round."""
    partition = paper.federation(run.federation).partition
    number = partition["num_clients"]
    seen = np.arange(number - int(number * partition.get("unseen_fraction", 0)))
    return len(seen), len(sample(seen, run.participation["rate"], seed=0, round=0))


@pytest.mark.parametrize(
    ("federation", "expected"),
    [
        ("cifar10-p0.2", (50, 5)),
        ("cifar10-p0.2-k20", (20, 20)),
        ("cifar10-p0.6-optout", (25, 2)),  # a tenth of those who train
        ("rotated-cifar10-2", (200, 20)),
        ("femnist", (182, 6)),
    ],
)
def test_cohorts_are_those_of_the_configurations(federation, expected):
    paper = declare("full")
    assert clients(paper, paper.run(federation, "none")) == expected


@every_scale
def test_trials_redraw_the_partition_but_of_writers_that_the_official_data_have_drawn(scale):
    shared = {data.name for data in declare(scale).data if not data.per_seed}
    assert shared == ({"femnist"} if scale == "full" else set())


def test_two_trials_of_the_demo_have_other_clients_of_the_same_kind():
    for declared in declare("demo").data:
        one, other = (build(declared.spec(seed), "data/raw") for seed in (0, 1))
        again = build(declared.spec(0), "data/raw")
        assert one.digests == again.digests
        assert one.digests["train/rows"] != other.digests["train/rows"]
        assert one.train.sizes.tolist() == other.train.sizes.tolist()


@pytest.mark.parametrize("scale", ["demo", "full"])
def test_rotated_images_show_whether_their_clusters_are_found(scale):
    paper = declare(scale)
    rotated = [data.name for data in paper.data if data.partition["kind"] == "rotated"]
    assert rotated and [*paper.tables["cluster_recovery"].federations] == rotated
    assert "local" not in paper.tables["cluster_recovery"].labels


@every_scale
def test_every_run_is_shown_somewhere(scale):
    paper = declare(scale)
    for run in paper.runs:
        about = paper.exhibits_of(run.federation, run.label)
        assert not all(exhibit.shows_data for exhibit in about), run


def test_the_full_scale_has_every_exhibit_of_the_paper():
    paper = declare("full")
    assert {"hyperparameters", "methods", "headlines"} <= paper.tables.keys()  # Tables 1 and 2
    sweep, usage, others = (
        paper.figures[name].federations
        for name in ("effect_of_clusters", "cluster_usage", "effect_of_clusters_other")
    )
    assert paper.figures["methods"].federations == sweep  # Figures 3 and 4
    assert [paper.federation(name).partition["p"] for name in sweep] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert [paper.federation(name).partition["p"] for name in usage] == [0.2, 0.6, 1.0]  # Figure 5
    # Claims of the text: J = 2 on two rotations, J = 9 on FEMNIST, both with smaller and larger J.
    for federation, best in [("rotated-cifar10-2", 2), ("femnist", 9)]:
        assert federation in others
        numbers = {r.params["num_experts"] for r in paper.runs if mixes(r, federation)}
        assert best in numbers and len(numbers) == 4
    assert set(paper.figures["client_accuracy"].federations) > {"femnist", "rotated-cifar10-2"}


def mixes(run, *federations):
    """Whether a run has clusters, on one of the federations if any are named."""
    return run.method == "adaptive_experts" and run.federation in (federations or [run.federation])


def differences(one, other):
    """Entries of two dicts that differ."""
    return {key: other.get(key) for key in one | other if one.get(key) != other.get(key)}


def test_the_number_of_clients_is_calibrated_on_runs_that_differ_in_it_alone():
    paper = declare("full")
    table = paper.tables["clients"]
    assert table.labels == ("none",)
    assert table.federations == ("cifar10-p0.2", "cifar10-p0.2-k20")
    ours, other = (paper.federation(name) for name in table.federations)
    assert differences(ours.partition, other.partition) == {"num_clients": 20}
    run, twin = (paper.run(name, "none").spec(0) for name in table.federations)
    assert differences(run, twin).keys() == {"participation", "params"}
    assert differences(run["params"], twin["params"]) == {"both_mixtures": False}


def test_clients_that_opt_out_change_nothing_else():
    paper = declare("full")
    [name] = paper.tables["opt_out"].federations
    assert paper.tables["opt_out"].params["group"] == "unseen"
    base = paper.federation(name.removesuffix("-optout"))
    assert differences(base.partition, paper.federation(name).partition) == {"unseen_fraction": 0.5}
    for label in ("eps", "none"):
        assert paper.run(name, label).spec(0) == paper.run(base.name, label).spec(0)


def test_the_profiles_differ_in_what_section_9_says():
    paper = declare("full")
    for federation in paper.tables["methods"].federations:
        published, clean = (
            paper.run(name, "eps").spec(0) for name in (federation, f"{federation}-clean")
        )
        params = differences(published["params"], clean["params"])
        assert params == {
            "stop_split": "val",  # X6
            "member": "best",
            "local_weight_decay": 9.89e-3,  # X3, Table 1
            "finetune_weight_decay": 1e-4,
            "personal_clients": None,  # X5
        }
        assert published["params"]["personal_clients"] == 10
        relu = differences(published["model_params"], clean["model_params"])
        assert relu == {"logit_relu": False}  # X4
        data = differences(
            paper.federation(federation).partition,
            paper.federation(f"{federation}-clean").partition,
        )
        assert data == {"val_fraction": 0.2}


def test_the_reduced_scale_keeps_what_orderings_are_about():
    paper = declare("reduced")
    assert [data.partition["p"] for data in paper.data] == [0.2, 0.6, 1.0]
    assert {data.dataset for data in paper.data} == {"cifar10"}
    assert {(run.label, run.params["num_experts"]) for run in paper.runs if mixes(run)} == {
        ("eps", 3),
        ("none", 3),
    }
    assert len(paper.seeds) == 2
