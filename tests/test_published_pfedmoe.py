"""The published numbers of pFedMoE and its sibling: complete, and in agreement with each other."""

from pathlib import Path

import pytest

from fedlib.report import printed

FILE = Path(__file__).resolve().parents[1] / "fedlib/papers/pfedmoe/published.csv"
SIBLING = (
    *("standalone", "lg-fedavg", "fedgh", "fml", "fedkd", "fedapen", "fd", "fedproto", "fedtgp"),
)
BASELINES = tuple(label for label in SIBLING if label not in ("fedgh", "fedtgp"))
MUTUAL = ("fml", "fedkd", "fedapen")
SETTINGS = {"heterogeneous": "", "homogeneous": "-homogeneous"}
ROUNDING = 1e-9  # of decimal numbers in binary


@pytest.fixture(scope="module")
def numbers():
    return printed.read(FILE)


def sibling(numbers, setting, clients, dataset, metric="accuracy_client_mean") -> dict[str, float]:
    found = printed.fractions(numbers, f"sibling-{setting}-n{clients}", metric)
    suffix = SETTINGS[setting]
    assert all(label.endswith("-homogeneous") == bool(suffix) for _, label in found)
    return {label.removesuffix(suffix): x for (data, label), x in found.items() if data == dataset}


def inferred(numbers, setting, dataset) -> float:
    found = printed.fractions(numbers, f"inferred-{setting}-n10", "accuracy_client_mean")
    return found[dataset, f"pfedmoe{SETTINGS[setting]}"]


def gain(numbers, setting, metric) -> float:
    found = printed.fractions(numbers, f"range-{setting}", metric)
    return found["unspecified", f"pfedmoe{SETTINGS[setting]}"]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("clients", [10, 50, 100])
@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "cifar100"])
def test_every_method_of_the_sibling_has_an_accuracy_or_failed(numbers, setting, clients, dataset):
    accuracy = sibling(numbers, setting, clients, dataset)
    spread = sibling(numbers, setting, clients, dataset, "accuracy_client_mean_std")
    failed = sibling(numbers, setting, clients, dataset, "converged")
    assert accuracy.keys() == spread.keys()
    assert set(failed.values()) <= {0.0}
    assert not accuracy.keys() & failed.keys()
    assert accuracy.keys() | failed.keys() == {*SIBLING, "pfedes"}


def test_there_are_162_cells_of_baselines(numbers):
    cells = numbers[numbers["exhibit"].str.startswith("sibling-")]
    cells = cells[cells["metric"].isin(["accuracy_client_mean", "converged"])]
    assert (~cells["label"].str.startswith("pfedes")).sum() == 162


@pytest.mark.parametrize("clients", [10, 50, 100])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_fml_and_fedapen_fail_with_heterogeneous_models(numbers, clients, dataset):
    failed = sibling(numbers, "heterogeneous", clients, dataset, "converged")
    assert {"fml", "fedapen"} <= failed.keys()


@pytest.mark.parametrize(
    ("setting", "dataset", "overall", "mutual"),
    [
        ("heterogeneous", "cifar10", "gain_min", "gain_mutual_min"),
        ("heterogeneous", "cifar100", "gain_max", "gain_mutual_max"),
        ("homogeneous", "cifar10", "gain_min", "gain_mutual_min"),
    ],
)
def test_an_inferred_accuracy_follows_from_both_of_its_gains(
    numbers, setting, dataset, overall, mutual
):
    theirs = sibling(numbers, setting, 10, dataset)
    known = [label for label in BASELINES if label in theirs]
    over_all = max(theirs[label] for label in known) + gain(numbers, setting, overall)
    over_mutual = max(theirs[x] for x in MUTUAL if x in theirs) + gain(numbers, setting, mutual)
    ours = inferred(numbers, setting, dataset)
    assert over_all == pytest.approx(ours, abs=ROUNDING)
    assert over_mutual == pytest.approx(ours, abs=ROUNDING)


def test_the_best_baselines_are_those_that_section_9_1_names(numbers):
    def best(setting, dataset, among):
        theirs = sibling(numbers, setting, 10, dataset)
        label = max((x for x in among if x in theirs), key=theirs.get)
        return label, theirs[label]

    assert best("heterogeneous", "cifar10", BASELINES) == ("standalone", 0.9653)
    assert best("heterogeneous", "cifar10", MUTUAL) == ("fedkd", 0.8020)
    assert best("heterogeneous", "cifar100", BASELINES) == ("fedproto", 0.7259)
    assert best("heterogeneous", "cifar100", MUTUAL) == ("fedkd", 0.5323)
    assert best("homogeneous", "cifar10", BASELINES) == ("lg-fedavg", 0.9647)
    assert best("homogeneous", "cifar10", MUTUAL) == ("fedapen", 0.9538)


def test_ranges_are_as_printed(numbers):
    names = ("gain_min", "gain_max", "gain_mutual_min", "gain_mutual_max")
    printed = {
        "homogeneous": [0.0033, 0.0174, 0.0142, 0.0547],
        "heterogeneous": [0.0005, 0.0280, 0.1638, 0.2216],
    }
    for setting, expected in printed.items():
        assert [gain(numbers, setting, name) for name in names] == pytest.approx(expected)
