"""Published numbers: where a paper's own arithmetic says so, its numbers agree with each other."""

import functools

import pytest
import torch
from support import REPRODUCED

from fedlib import models
from fedlib.data import sources
from fedlib.report import printed
from fedlib.workflow.provenance import ROOT

CENTI = 1.1e-4  # numbers are printed to 0.01 percent, and so are sums of two
FEDMOE = ("fedavg", "fedprox", "centmoe", "avg-moe", "fedjets", "fedmoe")
MUTUAL = ("fml", "fedkd", "fedapen")
BASELINES = (*MUTUAL, "standalone", "lg-fedavg", "fd", "fedproto")
SIBLING = (*BASELINES, "fedgh", "fedtgp", "pfedes")


@functools.cache
def numbers(paper):
    return printed.read(ROOT / f"fedlib/papers/{paper}/published.csv")


def cells(paper, exhibit, metric="accuracy"):
    return printed.fractions(numbers(paper), exhibit, metric)


@pytest.mark.parametrize("paper", REPRODUCED)
def test_data_sets_are_those_of_the_project(paper):
    assert {*numbers(paper)["dataset"]} <= {*sources.NAMES, "all", "unspecified"}


@pytest.mark.parametrize("baseline", ["ifca", "local"])
def test_the_claims_of_adaptive_experts_are_the_arithmetic_of_its_table_2(baseline):
    claim = cells("adaptive_experts", "text", f"accuracy_gain_over_{baseline}")["cifar10", "moe"]
    ours = cells("adaptive_experts", "table2-p1.0-eps")["cifar10", "moe"]
    theirs = cells("adaptive_experts", "table2-p1.0-none")["cifar10", baseline]
    assert claim == pytest.approx(ours - theirs, abs=CENTI)


@pytest.mark.parametrize("method", FEDMOE)
def test_averages_of_fedmoe_s_table_2_are_those_of_its_columns(method):
    columns = [
        value
        for number in (10, 50, 100)
        for (_, label), value in cells("fedmoe", f"table2-m{number}").items()
        if label == method
    ]
    average = cells("fedmoe", "table2-average")["all", method]
    assert len(columns) == 12 and sum(columns) / 12 == pytest.approx(average, abs=CENTI)


@pytest.mark.parametrize(
    ("exhibit", "dataset", "label"),
    [
        ("table3", "femnist", "fedmoe-k5"),
        *(("table4", dataset, "fedmoe") for dataset in ("femnist", "cifar10")),
        ("table5", "cifar10", "fedmoe-beta-1e-3"),
        *(("table6", dataset, "fedmoe-top-1") for dataset in ("femnist", "cifar10")),
        *(("table7", dataset, "fedmoe") for dataset in ("femnist", "cifar10")),
        *(("table8", dataset, "fedmoe-main-1") for dataset in ("femnist", "sent140")),
        ("reserved-1280", "femnist", "fedmoe"),
        ("reserved-1000", "cifar10", "fedmoe"),
    ],
)
def test_ablations_have_table_2s_number_where_nothing_is_changed(exhibit, dataset, label):
    unchanged = cells("fedmoe", "table2-m50")[dataset, "fedmoe"]
    assert cells("fedmoe", exhibit)[dataset, label] == unchanged


def test_gains_of_a_uniform_reserved_set_add_up_to_fedmoe_s_table_2():
    skewed, gain = (cells("fedmoe", f"figure4-{part}") for part in ("skewed", "gain"))
    main = cells("fedmoe", "table2-m50")
    for key in skewed:
        assert skewed[key] + gain[key] == pytest.approx(main[key], abs=1.5 * CENTI)


def test_fedmoe_s_table_1_counts_the_networks_of_femnist():
    def millions(num_classes):
        with torch.device("meta"):
            network = models.load("fedmoe_cnn").build(num_classes)
        return sum(weights.numel() for weights in network.parameters()) / 1e6

    expert, gate = millions(62), millions(5)
    size, sent = (cells("fedmoe", "table1", f"{name}_millions") for name in ("parameters", "sent"))
    # Whole millions: six experts, gate and noise; five clients send theirs up.
    assert size["femnist", "fedmoe"] == int(6 * expert + 2 * gate)
    assert sent["femnist", "fedmoe"] == sent["femnist", "fedavg"] == round(5 * expert)
    mixture = round(2 * expert + 2 * gate)
    assert (size["femnist", "avg-moe"], sent["femnist", "avg-moe"]) == (mixture, 5 * mixture)
    # One client is 6.6 million, which Table 1 has as 6.5.
    assert (round(expert, 1), size["femnist", "fedavg"]) == (6.6, 6.5)


def sibling(setting, clients, dataset, metric="accuracy_client_mean") -> dict[str, float]:
    """By label, what pFedMoE's sibling paper prints of one data set."""
    found = cells("pfedmoe", f"sibling-{setting}-n{clients}", metric)
    return {
        label.removesuffix("-homogeneous"): x for (d, label), x in found.items() if d == dataset
    }


@pytest.mark.parametrize("setting", ["heterogeneous", "homogeneous"])
@pytest.mark.parametrize("clients", [10, 50, 100])
@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "cifar100"])
def test_every_method_of_pfedmoe_s_sibling_has_an_accuracy_or_failed(setting, clients, dataset):
    metrics = ("accuracy_client_mean", "accuracy_client_mean_std", "converged")
    accuracy, spread, failed = (sibling(setting, clients, dataset, name) for name in metrics)
    assert accuracy.keys() == spread.keys()
    assert {*failed.values()} <= {0.0} and not accuracy.keys() & failed.keys()
    assert accuracy.keys() | failed.keys() == {*SIBLING}


@pytest.mark.parametrize(
    ("setting", "dataset", "end"),
    [
        ("heterogeneous", "cifar10", "min"),
        ("heterogeneous", "cifar100", "max"),
        ("homogeneous", "cifar10", "min"),
    ],
)
def test_an_accuracy_inferred_of_pfedmoe_follows_from_both_of_its_gains(setting, dataset, end):
    suffix = "-homogeneous" if setting == "homogeneous" else ""
    theirs = sibling(setting, 10, dataset)
    inferred = cells("pfedmoe", f"inferred-{setting}-n10", "accuracy_client_mean")
    for among, name in ((BASELINES, "gain"), (MUTUAL, "gain_mutual")):
        gain = cells("pfedmoe", f"range-{setting}", f"{name}_{end}")
        best = max(theirs[label] for label in among if label in theirs)
        expected = best + gain["unspecified", f"pfedmoe{suffix}"]
        assert inferred[dataset, f"pfedmoe{suffix}"] == pytest.approx(expected)
