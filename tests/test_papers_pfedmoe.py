"""What the declaration of pFedMoE says; sections of its specification."""

import pytest

from fedlib import papers
from fedlib.papers.pfedmoe import settings
from fedlib.spec import SCALES

every_scale = pytest.mark.parametrize("scale", SCALES)
KINDS = ("heterogeneous", "homogeneous")


def declare(scale):
    return papers.load("pfedmoe").declare(scale)


@every_scale
def test_every_round_is_evaluated_where_rounds_to_a_target_are_counted(scale):
    paper = declare(scale)
    targets = [paper.tables[f"to_target_{name}"].params["targets"] for name in KINDS]
    aimed = {name for found in targets for name in found}
    assert aimed
    assert {run.evaluate_every for run in paper.runs if run.federation in aimed} == {1}


@every_scale
def test_fedavg_says_that_its_row_is_the_servers_model(scale):
    paper = declare(scale)
    (title,) = {run.title for run in paper.runs if run.method == "fedavg"}
    assert "server's model" in title
    assert all(run.notes for run in paper.runs if run.method == "fedavg")


@every_scale
def test_only_pfedmoe_has_a_gate_which_sees_what_the_experts_see(scale):
    for run in declare(scale).runs:
        assert ("gate" in run.modules) == (run.method == "pfedmoe")
        if "gate" in run.modules:
            gate = run.modules["gate"]["params"]
            for name in ("in_channels", "side", "augment"):
                assert gate.get(name) == run.model_params.get(name)


def changes(run, base):
    """Names of the fields in which two runs differ."""
    one, other = run.spec(0), base.spec(0)
    return {name for name in one if one[name] != other[name]}


def test_a_variant_of_pfedmoe_differs_in_one_thing():
    paper = declare("full")
    base = paper.run("cifar10-n10", "pfedmoe")
    for label in (*settings.GATES[1:], *settings.EXTRACTORS[:-1]):
        run = paper.run("cifar10-n10", label)
        found = changes(run, base)
        recorded = {key: x for key, x in base.params.items() if key != "recorded"}
        if run.params == recorded:
            found -= {"params"}
        assert len(found) == 1, (label, found)
