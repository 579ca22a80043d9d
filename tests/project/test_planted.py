"""The list of planted faults fits the code, so that it can be planted at any time."""

import planted
import pytest
from workflow import ROOT

FAULTS = planted.faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["file"])
def test_a_planted_fault_changes_its_file_in_one_place(fault):
    text = (ROOT / fault["file"]).read_text(encoding="utf-8")
    faulty = planted.with_fault(text, fault)
    assert faulty != text
    compile(faulty, fault["file"], "exec")
    file, _, test = fault["test"].partition("[")[0].partition("::")  # the one that noticed it
    assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_there_are_sixty_and_no_two_alike():
    assert len({(fault["file"], fault["old"]) for fault in FAULTS}) == len(FAULTS) >= 60
