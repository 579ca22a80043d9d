"""The statistics of tuning's luck: against planted variances, all subsets, and known orders."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedlib import papers
from fedlib.errors import DataError
from fedlib.report import luck
from fedlib.report.tables import of_tunings

SPREADS = {"dataset": 0.10, "federation": 0.05, "tuning": 0.04, "training": 0.01}


def planted(effects, spreads=SPREADS, datasets=5, each=3, seeds=3, draw=0):
    """Accuracies of methods, with a tuning for each seed and with one for all seeds."""
    draw, rows = np.random.default_rng(draw), []
    of = {name: (lambda name=name: draw.normal(0, spreads[name])) for name in spreads}
    for title, effect in effects.items():
        for dataset in range(datasets):
            level = 0.6 + effect + of["dataset"]()
            for number in range(each):
                mean, shared = level + of["federation"](), of["tuning"]()
                about = {"federation": f"{dataset}-{number}", "dataset": str(dataset)}
                about["title"] = title
                for seed, again in ((s, a) for s in range(1, seeds + 1) for a in (True, False)):
                    tuned = of["tuning"]() if again else shared + 0.02
                    value = mean + tuned + of["training"]()
                    rows.append({**about, "seed": seed, "again": again, "value": value})
    found = pd.DataFrame(rows)
    return tuple(found[found["again"] == it].reset_index(drop=True) for it in (True, False))


def test_planted_spreads_are_found():
    found = luck.components(*planted({"A": 0.0}, datasets=60, each=4))
    assert found["mean"] == pytest.approx(0.6, abs=3 * SPREADS["dataset"] / np.sqrt(60))
    # Relative standard errors of deviations: 1 / sqrt(2 n), with 60, 180, 720 and 480 of freedom.
    for source, freedom in zip(luck.SOURCES, (60, 180, 720, 480), strict=True):
        error = SPREADS[source] / np.sqrt(2 * freedom)
        assert found[source] == pytest.approx(SPREADS[source], abs=4 * error), source


def test_spreads_of_unlike_sizes_are_those_of_an_analysis_of_variance():
    only = {"dataset": 0.0, "federation": 0.15, "tuning": 0.0, "training": 0.01}
    both = planted({"A": 0.0}, only, datasets=2, each=4, draw=4)
    found = luck.components(*both)
    # Each of eight federations has six values; those of a kind may be shifted.
    values = pd.concat(one.assign(value=one["value"] - one["value"].mean()) for one in both)
    of_federation = values.groupby("federation")["value"]
    within = (of_federation.var() * 5).sum() / (8 * 5 - 1)
    between = of_federation.mean().var() - within / 6
    expected = dict(zip(luck.SOURCES, (0, np.sqrt(between), 0, np.sqrt(within)), strict=True))
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-5)


def test_what_values_cannot_tell_apart_is_unknown():
    def unknown(**sizes):
        found = luck.components(*planted({"A": 0.0}, **sizes))
        return [source for source in luck.SOURCES if np.isnan(found[source])]

    assert unknown(datasets=1, each=8) == ["dataset"]
    assert unknown(datasets=8, each=1) == ["dataset"]  # each federation is a data set
    assert unknown(seeds=1) == [*luck.SOURCES]
    assert unknown(spreads=SPREADS | {"training": 0.0}) == [*luck.SOURCES]  # no best fit


def test_the_expected_best_of_k_trials_is_the_mean_over_all_sets_of_k():
    trials = [0.3, 0.9, np.nan, 0.5, 0.5, 0.1]
    known = np.nan_to_num(trials)
    by_hand = [np.mean([max(x) for x in combinations(known, k)]) for k in range(1, 7)]
    np.testing.assert_allclose(luck.expected_best(trials), by_hand, rtol=1e-12)


def test_the_best_of_a_few_trials_is_unknown_if_most_ended_early():
    about = {"at": "tuning", "metric": "trial", "label": "a", "federation": "f", "value": 0.5}
    metrics = pd.DataFrame({**about, "index": ["0", "1", "0"], "round": [10, 10, 40]})
    given = SimpleNamespace(metrics=metrics)
    with pytest.raises(DataError, match="A is tuned with a rung"):
        luck.trials(given, [{"title": "A", "labels": ["a"], "again": True}])


def test_ranks_are_sure_without_luck_and_spread_with_it():
    effects = {"best": 0.1, "middle": 0.05, "worst": 0.0}
    still = dict.fromkeys(SPREADS, 0.0)
    sure = luck.ranks(planted(effects, still)[0])
    assert [*sure.index] == [*effects]
    for column in ("rank", "low", "high", "datasets_low", "datasets_high"):
        np.testing.assert_array_equal(sure[column], [1, 2, 3])
    lucky = luck.ranks(planted(effects, still | {"tuning": 0.3})[0])
    assert (lucky["high"] - lucky["low"]).min() >= 1
    # Data sets differ in who is ahead, tunings do not.
    unlike = luck.ranks(planted(effects, still | {"dataset": 0.2})[0])
    assert (unlike["high"] == unlike["low"]).all()
    assert (unlike["datasets_high"] > unlike["datasets_low"]).any()
    assert luck.ranks(planted(effects, still, datasets=3)[0])["datasets_low"].isna().all()


def accuracies(**values):
    """Accuracies by title: of each federation, which is a data set of its own, those of seeds."""
    rows = [
        {"title": title, "dataset": str(n), "federation": f"f{n}", "seed": seed, "value": value}
        for title, federations in values.items()
        for n, seeds in enumerate(federations)
        for seed, value in enumerate(seeds)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("num", "low"), [(4, 1), (7, 2)])
def test_an_end_of_a_rank_leaves_out_what_fewer_than_one_draw_in_forty_has(num, low):
    # The first is ahead if all its tunings are the better ones: 1 draw of 16, or of 128.
    found = luck.ranks(accuracies(first=[(0.0, 1.0)] * num, second=[(1 - 0.5 / num,) * 2] * num))
    assert found["rank"].to_dict() == {"second": 1, "first": 2}
    ends = found[["low", "high"]].loc[["first", "second"]].to_numpy().tolist()
    assert ends == [[low, 2], [1, 3 - low]]


def test_data_sets_drawn_again_count_as_often_as_they_have_federations():
    table = accuracies(first=[(0.3,)] * 3 + [(0.0,)] * 3, second=[(0.0,)] * 3 + [(1.0,)] * 3)
    table["dataset"] = table["dataset"].where(table["federation"] > "f2", "0")
    found = luck.ranks(table).loc["first"]
    # It is ahead if k of four draws are the three of its own: 0.9 k > 4 - k, so in 5 % of samples.
    assert (found["low"], found["datasets_low"], found["datasets_high"]) == (2, 1, 2)


def test_a_tuning_shares_in_a_difference_if_it_decides_it_in_the_same_direction():
    # Of six differences of one sign p is 2/64; if the smallest has the other sign, 4/64.
    ends = [(0.01, -0.01), (0.1 + 0.2,) * 2]  # the last difference is a rounding error
    table = accuracies(A=[(n, n) for n in range(1, 6)] + ends, B=[(0.0, 0.0)] * 6 + [(0.3, 0.3)])
    values, _, titles = luck.cube(table)
    expected = (luck.draw_tunings(values)[:, 5, titles.index("A")] > 0).mean()
    assert 0.45 < expected < 0.55
    for median, share in ((0.3, expected), (-0.3, 0.0)):
        assert luck._share(table, pd.Series({"A": median}), "B").to_dict() == {"A": share}


@pytest.mark.parametrize(
    ("spreads", "lead", "verdict"),
    [
        ({}, 0.1, of_tunings.SURVIVES),
        ({"training": 0.05}, 0.0, of_tunings.NEVER),
        ({"dataset": 0.08}, 0.08, of_tunings.FEW),
    ],
)
def test_a_difference_survives_if_neither_tunings_nor_data_sets_explain_it(spreads, lead, verdict):
    small = dict.fromkeys(SPREADS, 0.001)
    both = planted({"A": lead, "B": 0.0}, small | spreads, draw=4)
    [row] = luck.survival(*both, ["A", "C"], "B").to_dict("records")
    assert row["title"] == "A" and of_tunings.verdict(row) == verdict
    equal = (x.assign(value=0.1) for x in both)
    assert luck.survival(*equal, ["A"], "B")["p_datasets"].tolist() == [1]


def test_a_difference_that_one_tuning_made_is_luck():
    again, once = planted({"A": 0.0, "B": 0.0}, dict.fromkeys(SPREADS, 0.005))
    ahead = once.assign(value=once["value"] + 0.1 * (once["title"] == "A"))
    [row] = luck.survival(again, ahead, ["A"], "B").to_dict("records")
    assert row["before"] > 0.05 and row["p_before"] < 0.01
    assert of_tunings.verdict(row) == of_tunings.LUCK


@pytest.mark.parametrize(
    ("gone", "federations", "titles"),
    [
        ([], 3, 3),
        ([("digits-skew", "fedem")], 2, 3),  # not in the fullest grid
        ([("digits-skew", "fedem-retuned")], 2, 3),
        ([(name, "fedem") for name in ("digits-skew", "digits-permuted", "digits-rotated")], 3, 2),
        ([(name, "fedem") for name in ("digits-skew", "digits-permuted")], 1, 3),
    ],
)
def test_luck_is_shown_of_a_whole_grid(gone, federations, titles):
    paper = papers.load("benchmark").declare("reduced")
    kinds = {"survival": paper.tables, "rank_intervals": paper.figures}
    runs = [
        run
        for run in paper.runs
        if run.federation in ("digits-skew", "digits-permuted", "digits-rotated")
        and run.label.removesuffix("-retuned") in ("fedavg-plus", "fedem", "apfl")
        and (run.federation, run.label) not in gone
    ]
    for name, exhibits in kinds.items():
        found = exhibits[name].narrow(runs)
        assert (len(found.federations), len(found.labels)) == (federations, 2 * titles)


def test_differences_survive_beside_the_method_that_they_are_against():
    paper = papers.load("benchmark").declare("reduced")
    table = paper.tables["survival"]

    def shown(*titles):
        labels = {x for row in table.rows if row["title"] in titles for x in row["labels"]}
        runs = [x for x in paper.runs if x.label in labels and x.federation == "digits-skew"]
        return table.narrow(runs) is not None

    assert shown(table.against, "FedEM")
    assert not shown(table.against) and not shown("FedEM", "APFL")
