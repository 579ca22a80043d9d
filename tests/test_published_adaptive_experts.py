"""The published numbers of Adaptive Expert Models: complete, readable, and consistent."""

from pathlib import Path

import pytest

from fedlib.data import sources
from fedlib.report import printed

FILE = Path(__file__).resolve().parents[1] / "fedlib/papers/adaptive_experts/published.csv"
LABELS = ("moe", "ifca", "ensemble", "finetuned", "local")
FRACTIONS = ("0.2", "0.4", "0.6", "0.8", "1.0")


@pytest.fixture(scope="module")
def numbers():
    return printed.read(FILE)


def cell(numbers, p, explore, label, metric="accuracy"):
    found = printed.fractions(numbers, f"table2-p{p}-{explore}", metric)
    return found["cifar10", label]


def test_every_cell_of_table_2_can_be_looked_up(numbers):
    for p in FRACTIONS:
        for explore in ("eps", "none"):
            for label in LABELS:
                assert 0.3 < cell(numbers, p, explore, label) < 0.95
                assert 0.003 < cell(numbers, p, explore, label, "accuracy_std") < 0.1
            assert cell(numbers, p, explore, "all", "num_trials") in range(6, 16)
    assert len(numbers) == 5 * 2 * (5 * 2 + 1) + 20 + 7  # Table 2, Table 1, claims of the text


def test_data_sets_are_those_of_the_project(numbers):
    assert set(numbers["dataset"]) <= set(sources.NAMES)


def test_the_claims_of_the_text_are_the_arithmetic_of_table_2(numbers):
    claim = printed.fractions(numbers, "text", "accuracy_gain_over_ifca")
    gain = cell(numbers, "1.0", "eps", "moe") - cell(numbers, "1.0", "none", "ifca")
    rounding = 1.1e-4  # either number is rounded to 0.01 percent
    assert claim["cifar10", "moe"] == pytest.approx(gain, abs=rounding)
    claim = printed.fractions(numbers, "text", "accuracy_gain_over_local")
    gain = cell(numbers, "1.0", "eps", "moe") - cell(numbers, "1.0", "none", "local")
    assert claim["cifar10", "moe"] == pytest.approx(gain, abs=rounding)


def test_exploration_helps_the_mixture_in_every_row(numbers):
    for p in FRACTIONS:
        assert cell(numbers, p, "eps", "moe") > cell(numbers, p, "none", "moe")
        assert cell(numbers, p, "eps", "moe") > cell(numbers, p, "none", "ifca")
    gaps = [cell(numbers, p, "eps", "moe") - cell(numbers, p, "none", "ifca") for p in FRACTIONS]
    section_8 = [0.011, 0.038, 0.138, 0.185, 0.298]  # in tenths of a point
    assert gaps == pytest.approx(section_8, abs=5.01e-4)


def test_hyper_parameters_are_plain_numbers(numbers):
    lr = printed.fractions(numbers, "table1", "lr")
    assert lr == {
        ("cifar10", "global"): 0.00586,
        ("cifar10", "local"): 0.000269,
        ("cifar10", "gate"): 0.000003,
    }
