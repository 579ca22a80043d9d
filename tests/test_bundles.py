"""Runs that a cluster is sent together, and what is asked for them."""

import pytest
import yaml
from workflow import ROOT

from fedlib.forecast import costs
from fedlib.workflow import bundles

IMPORTS = 2 * bundles.IMPORT_SECONDS  # of a run's two jobs, which bundles spend once
START = bundles.START_SECONDS


def test_the_import_is_what_estimates_take_it_for():
    assert bundles.IMPORT_SECONDS == costs.START


@pytest.mark.parametrize("computing", [2.0, 3, 10, 40, 62, 64, 126, 251])
def test_the_start_of_a_bundle_is_at_most_a_tenth_of_it(computing):
    size = int(bundles.name(IMPORTS + computing).removeprefix("runs"))
    assert START / (START + size * computing) <= 0.1


def test_a_bundle_is_as_small_as_that_allows():
    # 14 s of start are a tenth of 140 s, so that 126 s have to be computed: 8 * 16, 4 * 32.
    assert bundles.name(IMPORTS + 15.75) == "runs8"
    assert bundles.name(IMPORTS + 15.5) == "runs16"
    assert bundles.name(IMPORTS + 32.0) == "runs4"
    assert bundles.name(IMPORTS + 126.0) == "runs2"


def test_no_bundle_is_larger_than_the_largest():
    assert bundles.name(IMPORTS + 1.0) == bundles.name(0.0) == "runs64"


def test_a_run_whose_two_jobs_are_worth_their_starts_is_sent_by_itself():
    # Training and evaluation: 28 s of start, a tenth of 280 s.
    assert bundles.name(IMPORTS + 252.0) is None
    assert bundles.name(IMPORTS + 251.0) == "runs2"


def test_a_run_of_unknown_time_is_sent_by_itself_with_much_of_it():
    assert bundles.name(None) is None
    assert bundles.minutes("train", None) == 480
    assert bundles.minutes("evaluate", None) == 60


def test_a_slower_node_has_three_times_the_estimate_in_whole_minutes():
    assert bundles.minutes("train", 5.0) == 1
    assert bundles.minutes("train", 21.0) == 2
    assert bundles.minutes("train", 3600.0) == 180


def test_the_profile_joins_as_many_runs_as_the_names_of_bundles_say():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    expected = [f"runs{size}={size}" for size in bundles.SIZES]
    assert profile["group-components"] == expected
    assert profile["resources"] == ["lane=1"]
