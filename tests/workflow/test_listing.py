"""What there is, read off registries, declarations and docstrings."""

import itertools
from importlib import import_module

import pytest

from fedlib.cli import arguments
from fedlib.cli.list import CODE, listed, parameters
from fedlib.errors import ConfigError
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import registered


def printed(capsys, *words):
    """The lines of the command."""
    import_module("fedlib.cli.list").main(arguments.read(["list", *words]))
    return capsys.readouterr().out.splitlines()


def test_everything_that_is_registered_or_declared_is_listed_with_a_line():
    plan = Plan({})
    kinds = listed(plan)
    assert list(kinds["papers"]) == list(plan.papers)
    for kind, package in CODE.items():
        assert list(kinds[kind]) == list(registered(package))
    data = [f"{name}/{data.name}" for name, paper in plan.papers.items() for data in paper.data]
    assert list(kinds["federations"]) == data
    assert {f"{paper}/{label}" for paper, _, label in plan.runs} == {*kinds["labels"]}
    for titles in kinds.values():
        assert all(title and "\n" not in title for title in titles.values())


def test_a_kind_is_listed_with_its_titles_or_refused_with_the_choices(capsys):
    found = dict(line.split(maxsplit=1) for line in printed(capsys, "methods"))
    assert found["fedem"].startswith("FedEM: ") and len(found) == len(registered("methods"))
    with pytest.raises(ConfigError, match="WHAT: unknown 'method'; known: papers, federations, la"):
        printed(capsys, "method")


def test_what_a_name_takes_is_listed_with_default_limits_and_meaning(capsys):
    lines = printed(capsys, "methods", "pfedmm")
    assert "prior: str = 'carried'  carried | uniform" in lines
    meaning = lines[lines.index("num_experts: int  at least 1") + 1]
    assert meaning.startswith("    E, the number of heads")
    lines = printed(capsys, "partitions", "dirichlet")
    assert "min_examples: int = 1" in lines and "num_clients: int" in lines
    assert "train_fraction: float | None = None" in lines  # of a base class
    with pytest.raises(ConfigError, match="WHAT: unknown 'fedemm'; nearest: fedem"):
        printed(capsys, "methods", "fedemm")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["methods", "partitions"])
def test_the_meaning_of_every_parameter_is_listed(kind):
    for name in registered(CODE[kind]):
        lines = [*parameters(kind, name), ""]
        bare = [a for a, b in itertools.pairwise(lines) if a[0] != " " and b[:1] != " "]
        assert len(lines) > 1 and not bare, name


def test_without_a_kind_names_and_numbers_fit_a_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    lines = printed(capsys)
    assert len(lines) < 40 and max(map(len, lines)) <= 100
    assert lines[:2] == [
        "papers (6)",
        "    adaptive_experts, fedmix, fedmoe, pfedmm, pfedmoe, benchmark",
    ]
    assert f"methods ({len(registered('methods'))})" in lines
    assert f"{len(Plan({}).papers['fedmix'].data)} of fedmix" in "\n".join(lines)
