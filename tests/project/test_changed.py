"""The tests that a change can reach are found without running them."""

import changed
import pytest


def reach(file):
    tests = changed.TESTS.rglob("test_*.py")
    return {path.name for path in tests if changed.can_reach(path, [file])}


@pytest.mark.parametrize(
    "file, reached, not_reached",
    [
        # imported
        ("fedlib/engine/cohort.py", "test_cohort.py", "test_partition.py"),
        # named as a string, and loaded by a registry
        ("fedlib/methods/apfl.py", "test_by_hand_baselines_b.py", "test_cohort.py"),
        # run in a copy of the checkout
        ("fedlib/report/figures/heat.py", "test_workflow.py", "test_cohort.py"),
        ("rules/train.smk", "test_workflow.py", "test_cohort.py"),
        # read
        ("docs/methods.md", "test_readme.py", "test_cohort.py"),
        # a helper of tests
        ("tests/support.py", "test_cohort.py", "test_tables.py"),
        ("tests/workflow/test_seals.py", "test_seals.py", "test_cohort.py"),
    ],
)
def test_a_change_reaches_the_tests_that_use_it(file, reached, not_reached):
    found = reach(file)
    assert reached in found
    assert not_reached not in found


def test_a_file_that_nothing_reads_reaches_nothing():
    assert reach("nothing.txt") == set()
