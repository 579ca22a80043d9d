"""The tutorial docs/your-method.md: its method keeps the contract, is tuned, and gets its row."""

import os
import re

import pytest
from test_readme import block
from workflow import python

from fedlib import methods
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

TEXT = (ROOT / "docs/your-method.md").read_text(encoding="utf-8")


@pytest.fixture
def mine(tmp_path):
    """The file that the reader is told to save."""
    [name] = re.findall(r"Save this as `mine/(\w+\.py)`", TEXT)
    (tmp_path / name).write_text(block("docs/your-method.md"), encoding="utf-8")
    return tmp_path / name


def check_method(file, *only):
    """What `make check-method FILE=...` does."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [words] = re.findall(r"-m (pytest .*-m contract .*)", makefile)
    environment = {**os.environ, "FEDLIB_METHOD": str(file), "OMP_NUM_THREADS": "1"}
    return python("-m", *words.split(), "-p", "no:cacheprovider", *only, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "name", "sent"),
    # The body has 4 x 6 + 6 numbers and, of its normalisation, 4 x 6; the head 6 x 3 + 3.
    [("docs/your-method.md", "fedexprox", 54 + 21), ("docs/methods.md", "fedper", 54)],
)
def test_the_method_of_a_document_keeps_the_contract(document, name, sent, tmp_path):
    (tmp_path / f"{name}.py").write_text(block(document), encoding="utf-8")
    done = check_method(tmp_path / f"{name}.py")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") >= 10
    assert f" sends {sent} numbers down and {sent} up per client and round\nPASSED" in done.stdout


AFTER = "        after = super().round(state, cohort)\n"
CHANGES = AFTER + "        next(iter(state.params.values())).add_(1e-3)\n"


@pytest.mark.slow
def test_what_is_wrong_with_a_method_is_said_in_words(mine):
    mine.write_text(mine.read_text(encoding="utf-8").replace(AFTER, CHANGES), encoding="utf-8")
    done = check_method(mine, "-k", "state")
    told = "AssertionError: round changes the state it was given: .params['body.0.weight']\n"
    assert done.returncode == 1 and told in done.stdout
    assert len(done.stdout.splitlines()) < 60


@pytest.mark.slow
def test_of_a_file_without_a_method_one_line_says_so(tmp_path):
    done = check_method(tmp_path / "fedper.py")
    told = f"ERROR: methods: cannot read {tmp_path}/fedper.py: No such file or directory"
    assert (done.stdout + done.stderr).split("\n") == [told, "", ""]
    silent = block("docs/methods.md").replace("    protocols: ", "    ways: ")
    (tmp_path / "fedper.py").write_text(silent, encoding="utf-8")
    assert "ERROR: FedPer does not say whom it can" in check_method(tmp_path / "fedper.py").stderr


def test_it_is_not_in_the_registry_and_its_row_is_in_the_table_of_tunings(mine):
    assert mine.stem not in methods.METHODS
    [config] = re.findall(r'make demo CONFIG="(.*)"', TEXT)
    assert config == "papers=[benchmark] methods=[mine/fedexprox.py]"
    plan = Plan({"papers": ["benchmark"], "methods": [str(mine)]})
    label = "own-fedexprox"
    tuned = [job["federation"] for stage, job in plan.jobs() if stage == "tune"]
    ours = [job["federation"] for job in plan.tunings() if job["label"] == label]
    assert {*ours} == {*tuned}
    assert label in plan.exhibit("table", "benchmark", "tuning").labels
