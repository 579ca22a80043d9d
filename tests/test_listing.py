"""What there is, read off registries, declarations and docstrings."""

import subprocess
import sys

import pytest

from fedlib.errors import ConfigError
from fedlib.workflow import listing
from fedlib.workflow.plan import Plan
from fedlib.workflow.preflight import ROOT
from fedlib.workflow.provenance import registered


@pytest.fixture(scope="module")
def everything():
    return listing.listed(Plan({}), [])


def entry(kinds, kind, name):
    [found] = [entry for entry in kinds[kind] if entry.name == name]
    return found


def test_everything_that_is_registered_or_declared_is_listed(everything):
    papers = Plan({}).papers
    names = {kind: [entry.name for entry in entries] for kind, entries in everything.items()}
    assert names["papers"] == list(papers)
    for kind, package in (
        ("methods", "methods"),
        ("models", "models"),
        ("datasets", "data.sources"),
        ("partitions", "data.partitions"),
    ):
        assert names[kind] == list(registered(package))
    for kind in ("tables", "figures"):
        assert names[kind] == [f"{p}/{name}" for p in papers for name in getattr(papers[p], kind)]
    data = [f"{p}/{data.name}" for p, paper in papers.items() for data in paper.data]
    assert names["federations"] == data


def test_every_entry_has_a_line_that_says_what_it_is(everything):
    for kind, entries in everything.items():
        for found in entries:
            assert found.title, (kind, found.name)
            assert "\n" not in found.title


def test_a_method_says_where_it_is_from_what_it_sends_and_what_is_kept(everything):
    fedem = entry(everything, "methods", "fedem")
    assert fedem.facts["from"].startswith("Marfoq et al.")
    assert "Official code" not in fedem.facts["from"]
    assert fedem.facts["sends"] == "down state.experts; up trained"
    assert fedem.facts["keeps"].startswith("The shared experts, every client's weights")
    assert "pfedmm: fedem, " in fedem.facts["in"]


def test_only_methods_without_communication_send_nothing(everything):
    silent = [x.name for x in everything["methods"] if x.facts["sends"] == "nothing"]
    assert silent == ["local", "local_experts"]


def test_a_derived_method_sends_and_keeps_what_the_other_one_does(everything):
    prox, avg = (entry(everything, "methods", name).facts for name in ("fedprox", "fedavg"))
    assert prox["keeps"] == avg["keeps"]
    experts = entry(everything, "methods", "adaptive_experts").facts
    assert experts["sends"] == entry(everything, "methods", "ifca").facts["sends"]


def test_words_filter_in_any_case_and_all_of_them_must_be_there():
    plan = Plan({"papers": ["pfedmm"]})
    [methods] = listing.listed(plan, ["methods", "MARFOQ", "algorithm 1"]).values()
    assert [found.name for found in methods] == ["fedem"]
    assert {*listing.listed(plan, [])} == {*listing.KINDS}


def test_a_kind_that_does_not_exist_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match="WHAT: unknown 'method'; known: papers, federations, me"):
        listing.listed(Plan({}), ["method"])


def test_the_list_is_printed_in_blocks():
    command = [sys.executable, "scripts/list.py", "models", "mlp", "--config", "papers=fedmix"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    heading, _, name, title, *_ = done.stdout.splitlines()
    assert heading.startswith("models (") and name == "  mlp" and title.startswith("    ")
    assert max(map(len, done.stdout.splitlines())) <= 120
