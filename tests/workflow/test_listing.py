"""What there is, read off registries, declarations and docstrings."""

from importlib import import_module

import pytest

from fedlib.cli import arguments
from fedlib.cli.list import CODE, titles_by_kind
from fedlib.errors import ConfigError
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import registry


def printed(capsys, *words):
    """The lines of the command."""
    import_module("fedlib.cli.list").main(arguments.read(["list", *words]))
    return capsys.readouterr().out.splitlines()


def test_everything_that_is_registered_or_declared_is_listed_with_a_line():
    plan = Plan({})
    kinds = titles_by_kind(plan)
    assert list(kinds["papers"]) == list(plan.papers)
    for kind, package in CODE.items():
        assert list(kinds[kind]) == list(registry(package))
    data = [f"{name}/{data.name}" for name, paper in plan.papers.items() for data in paper.data]
    assert list(kinds["federations"]) == data
    assert {f"{paper}/{label}" for paper, _, label in plan.runs} == {*kinds["labels"]}
    for titles in kinds.values():
        assert all(title and "\n" not in title for title in titles.values())


def test_a_kind_is_listed_with_titles_or_refused_and_of_all_there_are_names_and_numbers(capsys):
    found = dict(line.split(maxsplit=1) for line in printed(capsys, "methods"))
    assert found["fedem"].startswith("FedEM: ") and len(found) == len(registry("methods"))
    with pytest.raises(ConfigError, match="WHAT: unknown 'method'; known: papers, federations, la"):
        printed(capsys, "method")
    lines = printed(capsys)
    assert lines[0] == ("papers (6): adaptive_experts, fedmix, fedmoe, pfedmm, pfedmoe, benchmark")
    assert f"labels ({len(titles_by_kind(Plan({}))['labels'])})" in lines
