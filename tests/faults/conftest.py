"""What was provoked and what happened is counted, and told at the end of the tests."""

import faults  # noqa: F401 - before the modules, which import what the other tests share
import pytest

_COUNTED: dict[str, dict[str, int]] = {}


@pytest.fixture
def tally():
    """Function that counts an outcome of a fault, for the table at the end."""

    def count(fault: str, outcome: str, number: int = 1) -> None:
        outcomes = _COUNTED.setdefault(fault, {})
        outcomes[outcome] = outcomes.get(outcome, 0) + number

    return count


def pytest_terminal_summary(terminalreporter):
    """The table: faults, and how often which outcome."""
    if not _COUNTED:
        return
    terminalreporter.section("faults", sep="-")
    for fault, outcomes in sorted(_COUNTED.items()):
        told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        terminalreporter.write_line(f"{fault}: {told}")
