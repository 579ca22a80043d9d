"""Intervals over clients and paired differences: against textbooks, scipy and planted truths."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.errors import DataError
from fedlib.report import exhibits, frames
from fedlib.report.intervals import INTERVAL_CLIENTS, by_client, interval, paired
from fedlib.report.metrics import PRIMARY

KEPT = Path(__file__).resolve().parents[1] / "docs/results/full"
REPEATS = 400
OFF = 3 * np.sqrt(0.05 * 0.95 / REPEATS)  # three standard errors of a share of 5 %


def kept(folder: str, label: str) -> pd.DataFrame:
    clients = frames.read_parquet(KEPT / folder / "pack/clients.parquet")
    rows = exhibits.pick(clients, label=label, at="last", **PRIMARY._asdict())
    return by_client(rows)


def clients(count, correct) -> pd.DataFrame:
    found = pd.DataFrame({"count": count, "correct": correct})
    return found.assign(accuracy=found["correct"] / found["count"])


def test_pfedmm_is_2_7_points_above_fedavg_on_the_clients_of_emnist_at_full():
    ahead = paired(kept("pfedmm/pfedmm", "pfedmm"), kept("pfedmm", "fedavg"))
    assert [round(100 * x, 1) for x in ahead[:3]] == [2.7, 2.1, 3.4]
    assert ahead.p < 1e-11


def test_where_clients_count_alike_the_interval_is_students_t():
    rng = np.random.default_rng(0)
    a, b = (clients(np.full(12, 50), rng.integers(10, 50, 12)) for _ in range(2))
    right = stats.ttest_rel(a["accuracy"], b["accuracy"])
    low, high = right.confidence_interval(0.95)
    for pooled in (False, True):  # all clients have as many examples
        found = paired(a, b, pooled)
        assert found[1:] == pytest.approx((low, high, right.pvalue))
    low, high = stats.ttest_1samp(a["accuracy"], 0).confidence_interval(0.95)
    assert interval(a)[1:3] == pytest.approx((low, high))


def test_a_pooled_interval_is_that_of_leaving_out_each_client_in_turn():
    count, correct = np.array([10, 20, 30, 40, 100]), np.array([9, 11, 20, 35, 60])
    without = [
        np.delete(correct, c).sum() / np.delete(count, c).sum() for c in range(5)
    ]  # the jackknife's error is that of these five, all of which count alike
    error = np.sqrt(4 / 5 * sum((x - correct.sum() / 200) ** 2 for x in without))
    effective = 200**2 / (10**2 + 20**2 + 30**2 + 40**2 + 100**2)  # 3.08 clients
    half = stats.t.ppf(0.975, effective - 1) * error
    mean, low, high, _ = interval(clients(count, correct), pooled=True)
    assert (mean, low) == pytest.approx((135 / 200, 135 / 200 - half))
    assert high == pytest.approx(min(135 / 200 + half, 1))


def test_a_pooled_accuracy_varies_as_if_whole_clients_were_drawn_again():
    rng = np.random.default_rng(1)
    count = rng.integers(20, 200, 300)
    found = interval(clients(count, correct := rng.binomial(count, 0.7)), pooled=True)
    assert found.mean == correct.sum() / count.sum()

    def pool(correct, count, axis):
        return correct.sum(axis) / count.sum(axis)

    drawn = stats.bootstrap((correct, count), pool, paired=True, rng=rng, method="percentile")
    # Many clients, so the two agree but for the 9999 drawings: a few percent of the width.
    assert found[1:3] == pytest.approx(drawn.confidence_interval, abs=0.05 * (found[2] - found[1]))


def drawn(rng, number, loss=0.0):
    """Two methods on clients of very uneven sizes, of which large ones are easier."""
    count = np.maximum(5, rng.lognormal(4, 0.8, number)).astype(int)
    skill = rng.beta(8, 2, number) * np.where(count > 60, 1, 0.8)
    return [clients(count, rng.binomial(count, np.clip(p, 0, 1))) for p in (skill, skill - loss)]


@pytest.mark.parametrize("number", [10, 100])
def test_intervals_hold_the_truth_as_often_as_they_say_on_planted_clients(number):
    rng = np.random.default_rng(number)

    def asked(a, b):
        both = (False, True)
        return [f(*x, pooled) for pooled in both for f, x in ((paired, (a, b)), (interval, (a,)))]

    truth = [found.mean for found in asked(*drawn(rng, 200_000, loss=0.03))]
    held = np.zeros(len(truth))
    for _ in range(REPEATS):
        found = asked(*drawn(rng, number, loss=0.03))
        held += [one.low <= x <= one.high for one, x in zip(found, truth, strict=True)]
    # Of ten clients some hold most examples: up to two points from nominal.
    assert held / REPEATS == pytest.approx(np.full(4, 0.95), abs=OFF + 0.02)


@pytest.mark.parametrize("pooled", [False, True])
def test_equal_methods_differ_in_no_more_than_one_of_twenty_cases(pooled):
    rng = np.random.default_rng(5)
    found = [paired(*drawn(rng, INTERVAL_CLIENTS), pooled) for _ in range(REPEATS)]
    false = [one.p < 0.05 for one in found]
    assert np.mean(false) <= 0.05 + OFF
    assert false == [not one.low <= 0 <= one.high for one in found]


def test_a_difference_that_is_not_there_has_no_width_and_one_that_all_clients_have_no_doubt():
    a, b = clients([10] * 6, [7, 8, 9, 5, 6, 7]), clients([10] * 6, [5] * 6)
    assert paired(a, a) == (0, 0, 0, 1)
    assert paired(b, b.assign(accuracy=0.25)) == (0.25, 0.25, 0.25, 0)


def test_few_clients_have_no_interval_and_none_no_mean():
    few = interval(clients([10] * 4, [7, 8, 9, 5]))
    assert few.mean == pytest.approx(0.725) and np.isnan(few[1:]).all()
    assert np.isnan(interval(clients([], []))).all()


def test_an_accuracy_stays_between_0_and_1():
    found = interval(clients([10] * 5, [10, 10, 10, 10, 8]))
    assert found.high == 1 and found.low < 0.96


def test_other_clients_are_refused():
    with pytest.raises(DataError, match="the same clients"):
        paired(clients([10] * 5, [5] * 5), clients([10] * 4 + [11], [5] * 5))


def test_a_client_has_one_accuracy_which_is_its_mean_over_seeds():
    rows = pd.DataFrame(
        {"client": [0, 1, 2] * 2, "count": [10, 20, 0] * 2, "accuracy": [0.5, 0.1, None, 1, 0.3, 0]}
    )
    found = by_client(rows.assign(correct=rows["count"] * rows["accuracy"]))
    assert found.index.tolist() == [0, 1]
    assert found["accuracy"].tolist() == pytest.approx([0.75, 0.2])
    assert (found["correct"] / found["count"]).tolist() == pytest.approx([0.75, 0.2])
