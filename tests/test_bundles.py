"""Runs that a cluster is sent together, and what is asked for them."""

import pytest
import yaml
from workflow import ROOT

from fedlib.workflow import bundles


@pytest.mark.parametrize("seconds", [0.5, 3, 10, 40, 89, 91, 179])
def test_the_start_of_a_bundle_is_at_most_a_tenth_of_it(seconds):
    size = int(bundles.name(seconds).removeprefix("runs"))
    computing = size * seconds
    assert bundles.START_SECONDS / (bundles.START_SECONDS + computing) <= 0.1 or size == max(
        bundles.SIZES
    )


def test_a_bundle_is_as_small_as_that_allows():
    # 10 s of start are a tenth of 100 s, so that 90 s have to be computed: 8 * 11.5, 4 * 23.
    assert bundles.name(11.5) == "runs8"
    assert bundles.name(11.0) == "runs16"
    assert bundles.name(23.0) == "runs4"
    assert bundles.name(90.0) == "runs2"


def test_a_run_whose_two_jobs_are_worth_their_starts_is_sent_by_itself():
    # Training and evaluation: 20 s of start, a tenth of 200 s.
    assert bundles.name(180.0) is None
    assert bundles.name(179.0) == "runs2"


def test_a_run_of_unknown_time_is_sent_by_itself_with_much_of_it():
    assert bundles.name(None) is None
    assert bundles.minutes("train", None) == 480
    assert bundles.minutes("evaluate", None) == 60


def test_a_slower_node_has_three_times_the_estimate_and_a_minute():
    assert bundles.minutes("train", 20.0) == 2
    assert bundles.minutes("train", 3600.0) == 181


def test_the_profile_joins_as_many_runs_as_the_names_of_bundles_say():
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text(encoding="utf-8"))
    expected = [f"runs{size}={size}" for size in bundles.SIZES]
    assert profile["group-components"] == expected
    assert profile["resources"] == ["lane=1"]
