"""Statistics over federations: against textbooks and planted truths."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.report import contrasts, statistics
from fedlib.report.tables import claims
from fedlib.report.tables import contrasts as tables_of_contrasts

DATASETS = ["digits"] * 3 + ["mnist"] * 4 + ["cifar10"] * 3 + ["emnist", "femnist"]


def values(effects, noise=0.01, seeds=3, spread=0.05, draw=0):
    """Accuracies of methods with these effects on twelve federations of five data sets."""
    draw = np.random.default_rng(draw)
    rows = []
    for number, dataset in enumerate(DATASETS):
        level = draw.normal(0.8, spread)
        for seed in range(seeds):
            common = draw.normal(0, noise)  # of a cut, the same for all methods
            for title, effect in effects.items():
                value = level + common + effect + draw.normal(0, noise)
                about = {"federation": f"f{number}", "dataset": dataset, "title": title}
                rows.append(about | {"seed": seed, "value": value})
    return pd.DataFrame(rows)


# Posteriors: baycomp 1.0.3, SignedRankTest.sample(rope=0.01, nsamples=100000, random_state=1).
@pytest.mark.parametrize(
    ("differences", "golden"),
    [
        ([0.03, 0.012, -0.004, 0.025, 0.06, -0.02, 0.001, 0.015], (0.73893, 0.2576, 0.00347)),
        ([0.002, -0.004, 0.006, 0.001, 0.015, -0.003], (0.00562, 0.99438, 0.0)),
        ([0.05] * 4, (0.99771, 0.00229, 0.0)),
        ([-0.03, -0.02, 0.01], (0.0, 0.51492, 0.48508)),
    ],
)
def test_the_bayesian_signed_rank_test_gives_what_baycomp_gives(differences, golden):
    # Four standard errors of 20,000 draws against 100,000 others.
    error = 4 * np.sqrt(0.25 * (1 / 20_000 + 1 / 100_000))
    np.testing.assert_allclose(statistics.signed_rank(differences), golden, atol=error)


def test_an_interval_leaves_out_as_many_means_of_pairs_as_tables_of_wilcoxon_say():
    # Critical values of T, two-sided 5 %: Wilcoxon, 1945; of five or fewer there is none.
    critical = {5: -1, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13}
    assert {n: statistics.num_below(n) for n in critical} == critical
    found = statistics.hodges_lehmann([1.0, 2, 3, 4, 5, 6])
    assert (found.median, found.low, found.high, found.p) == (3.5, 1, 6, 2 / 2**6)


def test_the_signed_rank_test_is_that_of_scipy_also_with_ties_and_zeros():
    draw = np.random.default_rng(5)
    for number in range(1, 7):
        samples = draw.integers(-4, 5, size=(6, number)) / 2
        samples[0] = np.arange(1, number + 1)  # without any
        found = statistics.wilcoxon(samples)
        for sample, p in zip(samples, found, strict=True):
            assert p == (stats.wilcoxon(sample).pvalue if sample.any() else 1), sample
        np.testing.assert_array_equal(statistics.wilcoxon(samples.reshape(3, 2, -1)).ravel(), found)


def test_holm_adjusts_by_how_many_are_left_and_keeps_the_order():
    ps, adjusted = [0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]
    np.testing.assert_allclose(statistics.holm(ps), adjusted)
    np.testing.assert_allclose(statistics.holm(pd.Series(ps, index=[3, 1, 2, 0])), adjusted)
    np.testing.assert_allclose(statistics.holm([ps, ps[::-1]]), [adjusted, adjusted[::-1]])


def test_an_interval_of_the_median_covers_it():
    draw, covered = np.random.default_rng(3), 0
    for _ in range(200):
        found = statistics.hodges_lehmann(draw.standard_t(3, 12) + 1)
        covered += found.low <= 1 <= found.high
    assert covered >= 0.95 * 200 - 3 * np.sqrt(0.95 * 0.05 * 200)


def test_a_planted_winner_is_clear_and_a_renamed_method_equal():
    table = values({"base": 0.0, "winner": 0.03, "near": 0.0, "loser": -0.05})
    table = pd.concat([table, table[table["title"] == "base"].assign(title="renamed")])
    expected = {"winner": "clear", "renamed": "equal", "loser": "unknown"}
    found = contrasts.all_contrasts(table, [*expected], ["base"]).set_index("title")
    assert found["verdict"].to_dict() == expected
    assert found.loc["winner", "p_holm"] < 0.05 and found.loc["renamed", "p_holm"] == 1
    assert found.loc["winner", "low"] < 0.03 < found.loc["winner", "high"]
    assert found.loc["loser", "worse"] > 0.9


def test_a_winner_that_one_data_set_reverses_is_not_clear():
    table = values({"base": 0.0, "winner": 0.05})
    turned = (table["dataset"] == "femnist") & (table["title"] == "winner")
    table.loc[turned, "value"] -= 0.1
    [found] = contrasts.all_contrasts(table, ["winner"], ["base"]).to_dict("records")
    assert found["verdict"] == "leaning" and found["better"] > 0.9


@pytest.mark.parametrize("left", [["f0", "f1"], ["f0", "f1", "f2"]])
def test_two_federations_or_one_data_set_say_nothing(left):
    table = values({"base": 0.0, "winner": 0.2})
    table = table[table["federation"].isin(left)]
    [found] = contrasts.all_contrasts(table, ["winner"], ["base"]).to_dict("records")
    assert found["verdict"] == "unknown" and np.isnan(found["low"])


EDGE = -statistics.ROPE
TWO, THREE, FOUR = [0.1, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1, 0.1, EDGE]


@pytest.mark.parametrize(
    ("differences", "better", "equal", "expected"),
    [
        (FOUR, 0.9, 0.1, "clear"),  # three of four in front, and the other data set not reversed
        (FOUR, 0.899, 0.1, "leaning"),
        ([*FOUR[:3], 0, EDGE], 0.9, 0.1, "leaning"),
        ([*FOUR[:3], 1.001 * EDGE], 0.9, 0.1, "leaning"),
        (THREE, 0.9, 0.1, "clear"),
        (TWO, 0.9, 0.1, "unknown"),
        (FOUR, 0.75, 0.25, "leaning"),
        (FOUR, 0.749, 0.251, "unknown"),
        (FOUR, 0.25, 0.75, "equal"),
        (FOUR, 0.25, 0.749, "unknown"),
    ],
)
def test_a_verdict_is_given_from_these_numbers_on(differences, better, equal, expected):
    datasets = ["digits"] * (len(differences) - 1) + ["mnist"]
    found = pd.DataFrame({"dataset": datasets, "value": differences})
    posterior = statistics.Posterior(better, equal, 1 - better - equal)
    assert statistics.verdict(found, posterior) == expected


def paired(*rows):
    """Differences of (federation, data set, its seeds' values)."""
    every = [(name, dataset, n, v) for name, dataset, values in rows for n, v in enumerate(values)]
    return pd.DataFrame(every, columns=["federation", "dataset", "seed", "value"])


def test_a_federation_counts_once_however_many_seeds_it_has():
    table = paired(("b", "mnist", [0.0] * 5 + [6.0]), ("a", "digits", [10.0] * 3))
    found = statistics.by_federation(table)
    assert found.values.tolist() == [["b", "mnist", 1.0], ["a", "digits", 10.0]]
    # Drawn again, the first has the mean 0 in 33 % of the samples, 3 in 5.4 %, and 4 to 6 in 0.9 %.
    assert statistics.bootstrap(table, "seed") == (5.0, 6.5)


def test_a_data_set_is_drawn_with_all_its_federations():
    names = ["digits"] * 3 + ["mnist", "cifar10", "emnist"]
    table = paired(*((str(n), name, [float(n < 3)]) for n, name in enumerate(names)))
    # Of four draws k are of digits, whose three federations have 1: the mean is 3 k / (2 k + 4).
    # No digits are in 32 % of the samples, three in 4.7 % and four in 0.4 %.
    assert statistics.bootstrap(table, "dataset") == (0.0, 0.9)


def test_an_interval_over_seeds_is_never_from_the_least_to_the_greatest_mean():
    # The least seed of each of two federations is 1 draw of 16, of three 1 of 64.
    table = paired(*((f"f{n}", "digits", [0.0, 1.0]) for n in range(3)))
    assert np.isnan(statistics.bootstrap(table[table["federation"] != "f2"], "seed")).all()
    assert statistics.bootstrap(table, "seed") == (1 / 6, 5 / 6)


def test_bootstraps_of_few_hold_the_mean_as_seldom_as_the_note_says():
    draw, found = np.random.default_rng(4), {"seed": 0, "dataset": 0}
    for _ in range(300):
        by_dataset = dict(zip([*dict.fromkeys(DATASETS)], draw.normal(size=5), strict=True))
        rows = [(f"f{n}", name, draw.normal(size=3)) for n, name in enumerate(DATASETS)]
        shifted = [(name, dataset, [by_dataset[dataset]]) for name, dataset, _ in rows]
        for over, table in (("seed", paired(*rows)), ("dataset", paired(*shifted))):
            low, high = statistics.bootstrap(table, over)
            found[over] += low <= 0 <= high
    assert all(0.8 <= number / 300 <= 0.9 for number in found.values()), found
    assert "hold the mean in less than 90 % of cases" in tables_of_contrasts.how("")[2]


def test_data_sets_drawn_again_say_less_than_seeds_drawn_again():
    draw = np.random.default_rng(1)
    effects = dict(zip([*dict.fromkeys(DATASETS)], draw.normal(0.02, 0.03, 5), strict=True))
    paired = contrasts.subtract(values({"base": 0.0, "other": 0.0}), "other", "base")
    paired["value"] += paired["dataset"].map(effects)
    spans = [np.diff(statistics.bootstrap(paired, over))[0] for over in ("seed", "dataset")]
    assert spans[1] > 2 * spans[0]
    three = paired[paired["dataset"].isin([*paired["dataset"].unique()][:3])]
    assert np.isnan(statistics.bootstrap(three, "dataset")).all()  # it would be their range
    one = paired[paired["federation"] == "f0"]
    assert len(one) == 3 and np.isnan(statistics.bootstrap(one, "seed")).all()


def test_only_seeds_and_federations_that_both_methods_have_are_compared():
    table = values({"base": 0.0, "other": 0.1}, noise=0)
    gone = (table["title"] == "base") & (table["federation"] == "f0")
    found = contrasts.subtract(table[~gone & (table["seed"] < 2)], "other", "base")
    assert len(found) == 22 and "f0" not in set(found["federation"])
    np.testing.assert_allclose(found["value"], 0.1)


def test_a_rounding_error_is_no_difference():
    ahead, zeros = [0.7 - 0.6, 0.8 - 0.7, 0.5 - 0.4, 0.3 - 0.2], [0.1 + 0.2 - 0.3, 0.3 - 0.2 - 0.1]
    every = enumerate([*ahead, 0.8 - 0.9, *zeros])
    found = contrasts.contrast(paired(*((str(n), "digits", [x]) for n, x in every)))
    assert (found["ahead"], found["p"]) == (4, stats.wilcoxon([1, 1, 1, 1, -1]).pvalue)


def test_claims_are_judged_together():
    medians, ps = [0.1, -0.1, 0.1, 0.1, np.nan], [0.01, 0.012, 0.03, 0.04, np.nan]
    found = claims.judge(pd.DataFrame({"median": medians, "p": ps}))
    assert found["p_holm"][:4].tolist() == pytest.approx([0.04, 0.04, 0.06, 0.06])
    assert [*found["verdict"]] == ["holds", "reversed", "undecided", "undecided", "not tested"]
    # The test leaves zeros out, and the median does not: it has no direction.
    mostly_equal = statistics.hodges_lehmann([0.0] * 15 + [0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    assert mostly_equal.p < 0.05
    assert [*claims.judge(pd.DataFrame([mostly_equal]))["verdict"]] == ["undecided"]
