"""What there is, read off registries, declarations and docstrings."""

from importlib import import_module

import pytest

from fedlib.cli import arguments
from fedlib.errors import ConfigError
from fedlib.workflow import listing
from fedlib.workflow.plan import Plan
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


def test_a_method_says_where_it_is_from_and_which_runs_use_it(everything):
    fedem = entry(everything, "methods", "fedem")
    assert fedem.facts["from"].startswith("Marfoq et al.")
    assert "Official code" not in fedem.facts["from"]
    assert fedem.facts["in"].startswith("pfedmm/fedem, ")


def test_words_filter_in_any_case_and_all_of_them_must_be_there():
    plan = Plan({"papers": ["pfedmm"]})
    [methods] = listing.listed(plan, ["methods", "MARFOQ", "algorithm 1"]).values()
    assert [found.name for found in methods] == ["fedem"]
    assert {*listing.listed(plan, [])} == {*listing.KINDS}


def test_a_kind_that_does_not_exist_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match="WHAT: unknown 'method'; known: papers, federations, me"):
        listing.listed(Plan({}), ["method"])


def printed(capsys, *words):
    """The lines of the command."""
    import_module("fedlib.cli.list").main(arguments.read(["list", *words]))
    return capsys.readouterr().out.splitlines()


def test_without_a_kind_names_and_numbers_fit_a_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    lines = printed(capsys)
    assert len(lines) < 40
    assert lines[:2] == [
        "papers (6)",
        "    adaptive_experts, fedmix, fedmoe, pfedmm, pfedmoe, benchmark",
    ]
    methods = next(line for line in lines if line.startswith("methods"))
    assert methods == f"methods ({len(registered('methods'))})"
    assert f"{len(Plan({}).papers['fedmix'].figures)} of fedmix" in "\n".join(lines)


def test_the_list_is_printed_in_blocks(capsys):
    lines = printed(capsys, "models", "mlp", "--config", "papers=fedmix")
    heading, _, name, title, *_ = lines
    assert heading.startswith("models (") and name == "  mlp" and title.startswith("    ")
    assert max(map(len, lines)) <= 120
