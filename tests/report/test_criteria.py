"""Acceptance criteria: predicates, the table of verdicts, and what the papers declare."""

import made_up
import numpy as np
import pandas as pd
import pytest
from support import REPRODUCED

from fedlib import papers
from fedlib.errors import ConfigError, DataError
from fedlib.papers import _criteria
from fedlib.report import measures, predicates, printed, recovery
from fedlib.report.metrics import definitions
from fedlib.report.tables import criteria, render
from fedlib.spec import SCALES
from fedlib.spec.criteria import Criteria, Criterion
from fedlib.workflow.provenance import ROOT

NAN = float("nan")


def about(kind: str, terms: int = 2, **arguments) -> dict:
    term = {"federation": "emnist", "label": "fedavg"}
    named = {"title": "it holds", "source": "Table 1", "kind": kind, "terms": [term] * terms}
    return {**named, **arguments}


def parsed(declared: list[dict]) -> list[Criterion]:
    return Criteria("", "", (), (), criteria=declared).parse()


def verdict(kind, values, theirs=None, seeds=3, **arguments):
    (criterion,) = parsed([about(kind, len(values), **arguments)])
    return predicates.verdict(criterion, values, theirs or [NAN] * len(values), seeds)


@pytest.mark.parametrize(
    ("kind", "values", "arguments", "reached", "margin"),
    [
        ("descending", [0.9, 0.8, 0.5], {}, True, 0.1),
        ("descending", [0.9, 0.4, 0.5], {}, False, -0.1),
        ("descending", [0.5, 0.5], {}, False, 0.0),
        ("descending", [0.5, 0.5], {"or_equal": True}, True, 0.0),
        ("descending", [0.3, 0.2], {"by": 0.1}, True, 0.0),  # 0.3 - 0.2 is 0.09999999999999998
        ("ascending", [0.2, 0.3, 0.35], {"by": 0.1}, False, -0.05),
        ("ascending", [-0.1, 0.2], {}, True, 0.3),
        ("highest", [0.9, 0.2, 0.8], {}, True, 0.1),
        ("highest", [0.7, 0.9, 0.1], {}, False, -0.2),
        ("lowest", [0.1, 0.4, 0.3], {}, True, 0.2),
        ("lowest", [0.1, 0.4, 0.05], {}, False, -0.05),
        ("between", [0.04], {"at_least": 0.025}, True, 0.015),
        ("between", [0.04], {"at_most": 0.025}, False, -0.015),
        ("between", [0.0, -0.03], {"at_least": -0.02, "at_most": 0.02}, False, -0.01),
        ("spread", [0.84, 0.87, 0.86], {"at_most": 0.05}, True, 0.02),
        ("spread", [0.80, 0.87], {"at_most": 0.05}, False, -0.02),
        ("seeds", [0.1], {"at_least": 3}, True, 0),
        ("seeds", [0.1], {"at_least": 4}, False, -1),
    ],
)
def test_a_predicate_has_a_verdict_and_how_far_it_is_from_turning(
    kind, values, arguments, reached, margin
):
    assert verdict(kind, values, **arguments) == (reached, pytest.approx(margin, abs=1e-12))


def test_terms_are_compared_with_the_published_ones_each_within_the_tolerance():
    assert verdict("published", [0.80, 0.70], [0.81, 0.72], tolerance=0.03) == (
        True,
        pytest.approx(0.01),
    )
    assert not verdict("published", [0.80, 0.70], [0.81, 0.74], tolerance=0.03)[0]
    with pytest.raises(ConfigError, match="'it holds': published of .* is no number"):
        verdict("published", [0.80], [NAN], tolerance=0.03)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"terms": [{"label": "fedavg"}] * 2}, "a cell has federation and label, maybe metric"),
        ({"kind": "descendent"}, "criterion '.*': kind must be descending or ascending or .*"),
        ({"unit": "points"}, "criterion '.*': unit must be percent or number, got 'points'"),
        ({"because": "it is so"}, "has title and source and kind and terms, .*because"),
        ({"published": {"label": "x"}}, "published has exhibit and dataset and label and metric"),
    ],
)
def test_a_criterion_that_is_none_is_refused(change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parsed([about("descending") | change])


# The table


def rows(values: dict) -> pd.DataFrame:
    """Metrics rows from {(federation, label): last accuracy of the seeds 1, 2, ...}."""
    found = [
        {
            **{"paper": "pfedmm", "federation": where[0], "label": where[1], "metric": "accuracy"},
            **{"at": "last", "group": "seen", "protocol": "default", "split": "test"},
            **{"seed": seed, "round": 30, "value": value, "dataset": where[0]},
        }
        for where, by_seed in values.items()
        for seed, value in enumerate(by_seed, start=1)
    ]
    return pd.DataFrame(found)


def build(declared, labels=("fedavg", "fedem", "pfedmm"), tidy=None, **changes):
    values = {"fedavg": [0.70, 0.72], "fedem": [0.75], "pfedmm": [0.80, 0.84]}
    tidy = rows({("emnist", label): values[label] for label in labels}) if tidy is None else tidy
    exhibit = made_up.exhibit(labels, ["emnist"], **changes)
    nobody = pd.DataFrame({"paper": []})
    numbers = printed.read(ROOT / "fedlib/papers/pfedmm/published.csv")
    return made_up.build("criteria", exhibit, tidy, nobody, numbers, criteria=declared)


def cell(label: str, beside: str | None = "main") -> dict:
    names = {"exhibit": beside, "dataset": "emnist", "label": label, "metric": "accuracy"}
    made = {"federation": "emnist", "label": label}
    return made | ({"published": names} if beside else {})


def ordered(*labels: str, **changes) -> dict:
    return about("descending") | {"terms": [cell(label) for label in labels]} | changes


def test_a_main_claim_is_told_where_its_runs_are_done():
    claimed = [ordered("pfedmm", "fedavg", main=True), ordered("fedem", "fedavg")]
    assert build(claimed).claims == ["it holds"]
    assert build(claimed, labels=["pfedmm"]).claims == []


def test_at_scale_demo_an_order_holds_there_or_not_and_nothing_is_counted():
    declared = [ordered("pfedmm", "fedem"), ordered("fedem", "pfedmm")]
    sheet = build(declared, scale="demo")
    verdicts = [row[-1] for row in sheet.blocks[0].rows]
    assert verdicts == [render.Cell("holds here"), render.Cell("does not hold here")]
    assert not any("reached" in note for note in sheet.notes)


def test_a_run_without_the_number_is_an_error_and_not_a_missing_run():
    late = ordered("pfedmm", "fedem")
    late["terms"] = [{**one, "at": "best"} for one in late["terms"]]
    with pytest.raises(DataError, match=r"accuracy of emnist/pfedmm \(seen, default, test, best\)"):
        build([late])


def test_the_last_rounds_of_each_seed_are_averaged_where_a_criterion_says_so():
    tidy = rows({("emnist", "fedavg"): [0.2, 0.4, 0.6, 0.9]})  # seeds, which become rounds
    tidy = tidy.assign(at="round", seed=[1, 1, 1, 2], round=[10, 20, 30, 30])
    mean = about("between", at_least=0.7) | {"terms": [cell("fedavg", None)]}
    for averaged, expected in ((20, (0.5 + 0.9) / 2), (21, (0.4 + 0.9) / 2), (1, 0.75)):
        mean["terms"][0] |= {"at": "round", "averaged": averaged}
        sheet = build([mean], ["fedavg"], tidy=tidy, seeds=[1, 2])
        assert sheet.numbers["value"].tolist() == [f"{100 * expected:.1f}"]


def test_table_1_of_fedmix_is_judged_by_the_rounds_that_it_averages():
    declared = papers.load("fedmix").declare("full").tables["criteria"].params["criteria"]
    numbers = [
        number
        for one in parsed(declared)
        if one.source == "Table 1"
        for term in one.terms
        for number in term
    ]
    found = {(x.federation, x.at, x.averaged) for x in numbers}
    assert found == {
        ("cifar100", "round", 2000),
        ("femnist", "round", 2000),
        ("cifar10", "last", 1),
    }


def test_differences_are_those_of_the_numbers_that_are_printed():
    tidy = rows({("emnist", "pfedmm"): [0.8246], ("emnist", "fedavg"): [0.7134]})  # 82.5, 71.3
    gain = about("between", at_least=0.112) | {"terms": [[cell("pfedmm"), cell("fedavg")]]}
    near = about("published", tolerance=0.017) | {"terms": [cell("pfedmm")]}  # of 84.2
    sheet = build([gain, near], ["fedavg", "pfedmm"], tidy=tidy, seeds=[1], scale="full")
    assert sheet.numbers["value"].tolist() == ["+11.2", "82.5"]
    assert sheet.numbers["reached"].tolist() == ["yes", "yes"]
    assert printed.difference(0.68140, 0.69361) == -0.013  # 68.1 - 69.4, not -1.2
    assert printed.difference(0.6814, 0.6936, decimals=2) == -0.0122
    assert np.isnan(printed.difference(NAN, 0.5))
    halves = (0.396 + 0.409) / 2, 0.4025, 0.4455, -0.1905
    assert [*map(printed.to_percent, halves)] == [40.3, 40.3, 44.6, -19.1]
    assert render.percent(-0.0004) == render.percent(-0.0) == "0.0"
    assert render.percent(0.4025) == "40.3" and render.points(-0.0125) == "−1.3"


# Numbers that follow from what was recorded


def test_a_true_cluster_is_right_if_its_clients_share_an_expert_that_nobody_else_has():
    assert recovery.num_right([2, 2, 0, 0], [0, 0, 1, 1]) == 2
    assert recovery.num_right([1, 1, 1, 1], [0, 0, 1, 1]) == 0  # one expert for both
    assert recovery.num_right([2, 2, 0, 1], [0, 0, 1, 1]) == 1  # two experts for one
    assert recovery.num_right([2, 2, 0, 2], [0, 0, 1, 1]) == 0


def test_a_criterion_needs_runs_with_a_seed_in_common():
    tidy = rows({("emnist", "fedem"): [0.75], ("emnist", "pfedmm"): [0.80]})
    tidy.loc[tidy["label"] == "fedem", "seed"] = 7
    with pytest.raises(ConfigError, match="'it holds': its runs have no seed in common"):
        build([ordered("pfedmm", "fedem")], tidy=tidy)


# What papers declare


@pytest.mark.parametrize("rule", ["a", "a, b", "a > b < c", "a = b"])
def test_a_text_that_is_no_rule_is_refused(rule):
    with pytest.raises(ConfigError, match="is no rule of a criterion"):
        _criteria.parse_rule(rule)


def test_a_criterion_whose_first_run_is_not_declared_is_left_out(tmp_path):
    (tmp_path / "criteria.csv").write_text(
        'of,title,source,number,rule,note,main\nx,a above the others,,,"a > b, d",,\n'
    )

    def declared(gone: str) -> list[list[str]]:
        def number(federation, label, name):
            return None if label == gone else _criteria.cell(federation, label)

        case = lambda of: [_criteria.Case("f")]  # noqa: E731
        found = _criteria.criteria(tmp_path / "criteria.csv", case, number)
        return [[term["label"] for term in one["terms"]] for one in found]

    assert declared("") == [["a", "b", "d"]]
    assert declared("b") == [["a", "d"]]
    assert declared("a") == []


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", REPRODUCED)
def test_declared_criteria_are_well_formed_and_are_about_numbers_that_exist(name, scale):
    paper = papers.load(name).declare(scale)
    declared = paper.tables["criteria"].parse()
    known = {m.__name__ for m in definitions.METRICS} | measures.MEASURES.keys() | {"bytes"}
    file = printed.read(ROOT / f"fedlib/papers/{name}/published.csv")
    for criterion in declared:
        cells = [cell for term in criterion.terms for cell in term]
        assert {cell.metric for cell in cells} <= known, criterion.title
        for beside in (criterion.published, *(cell.published for cell in cells)):
            assert beside is None or not np.isnan(criteria.published_number(beside, file)), beside
    titles = [criterion.title for criterion in declared]
    assert len(set(titles)) == len(titles)
    runs = {(run.federation, run.label) for run in paper.runs}
    covered = [
        all((one.federation, one.label) in runs for term in criterion.terms for one in term)
        for criterion in declared
    ]
    assert any(covered)
    if scale == "full":
        missing = [title for title, there in zip(titles, covered, strict=True) if not there]
        assert missing == []


@pytest.mark.parametrize("name", REPRODUCED)
def test_the_papers_own_numbers_reach_the_criteria_about_them(name):
    """A criterion is what the paper shows; its own numbers must not fail it."""
    file = printed.read(ROOT / f"fedlib/papers/{name}/published.csv")
    declared = papers.load(name).declare("full").tables["criteria"].parse()
    checked = 0
    for criterion in declared:
        theirs = [criteria.published_term(term, file) for term in criterion.terms]
        if criterion.kind != "seeds" and not np.isnan(theirs).any():
            assert predicates.verdict(criterion, theirs, theirs, 1)[0], criterion.title
            checked += 1
    assert checked > 5
