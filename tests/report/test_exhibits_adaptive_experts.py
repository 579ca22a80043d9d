"""Exhibits of trainings that are evaluated in several ways: protocols, clusters, gates, claims."""

import copy

import made_up
import numpy as np
import pytest
from made_up import footer

from fedlib.errors import ConfigError, DataError
from fedlib.papers import adaptive_experts
from fedlib.report import comparisons, metrics, printed
from fedlib.report.figures import gate_weights
from fedlib.report.inputs import Inputs
from fedlib.report.pages import contents
from fedlib.results import RunResult, View
from fedlib.spec.exhibits import Protocol
from fedlib.spec.tables import ProtocolGrid
from fedlib.workflow.provenance import ROOT

PUBLISHED = printed.read(ROOT / "fedlib/papers/adaptive_experts/published.csv")
PATTERN = "table2-p{p:.1f}-{label}"
WAYS = [
    *({"name": "moe"}, {"name": "default", "key": "ifca"}, {"name": "ensemble"}),
    *({"name": "finetuned"}, {"name": "local"}),
]
VARIANTS = {
    "parameter": "exploration",
    "values": [
        {"value": "eps", "title": "with exploration"},
        {"value": "none", "title": "without"},
    ],
}
BY_P = {"protocols": WAYS, "parameter": "partition.p", "of": "federation", "symbol": "p"}
BY_J = {"protocols": WAYS, "parameter": "num_experts", "symbol": "J", "variants": VARIANTS}


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Exhibit, metrics and clients: over p, and over the number of clusters."""

    def collect(fractions, labels):
        exhibit = made_up.explorers(made_up.majority(*fractions), labels, seeds=(1, 2, 3))
        folder = tmp_path_factory.mktemp("runs")
        made_up.save_explorers(exhibit, folder)
        return exhibit, *metrics.collect(made_up.metrics_spec(exhibit), folder)

    both = ("eps", "none")
    return {
        "p": collect((0.2, 1.0), both),
        "j": collect((0.2,), (*both, *(f"{label}-j3" for label in both))),
    }


def draw(collected, kind, which="p", numbers=None, changes=None, **params):
    exhibit, tidy, clients = collected[which]
    return made_up.draw(kind, {**exhibit, **(changes or {})}, tidy, clients, numbers, **params)


def texts(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


# Metrics: diagnostics of clients, and of rounds


def single(diagnostics, clients=3, rounds=2) -> RunResult:
    scores = made_up.scores(np.full((rounds + 1, clients), 0.5), np.full(clients, 4))
    view = View("seen", "default", "test")
    return made_up.result({view: scores}, np.arange(rounds + 1), diagnostics=diagnostics)


def test_rows_of_clients_have_the_names_that_a_user_gave(tmp_path):
    names = np.array(["clinic 3", "é", "clinic 1"])
    result = single({"client_name": names})
    result.save(tmp_path / "a.h5")
    rows = metrics.client_rows(RunResult.load(tmp_path / "a.h5"))
    assert rows["client"].tolist() == [0, 1, 2] * 2
    assert rows["client_name"].tolist() == [*names] * 2  # at the last round and at the best


def test_a_diagnostic_may_not_take_the_name_of_a_column():
    with pytest.raises(DataError, match="may not be called loss"):
        metrics.client_rows(single({"loss": np.ones(3)}))


def test_columns_of_diagnostics_are_in_the_order_of_their_numbers(tmp_path):
    exhibit = made_up.explorers(made_up.majority(0.2), ["eps-j12"], seeds=[1])
    made_up.save_explorers(exhibit, tmp_path)
    _, clients = metrics.collect(made_up.metrics_spec(exhibit), tmp_path)
    gates = [f"gate_weights_{number}" for number in range(13)]
    assert list(clients) == [*metrics.CLIENT_COLUMNS, "choice", *gates]


# Protocols and variants


def test_a_protocol_is_called_by_its_key():
    shown = comparisons.declared([Protocol("default", "ifca"), Protocol("x", title="X")])
    assert shown == [("default", "ifca", "IFCA"), ("x", "x", "X")]


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ([], "must be different ones, got none"),
        ([{"name": "moe"}, {"name": "moe"}], "must be different ones, got moe, moe"),
        ([{"title": "MoE"}], "each of protocols has name, maybe key, title; got {'title': 'MoE'}"),
        (["moe"], "each of protocols has name, maybe key, title; got 'moe'"),
    ],
)
def test_wrong_protocols_are_refused(declared, complaint):
    with pytest.raises(ConfigError, match=complaint):
        grid = ProtocolGrid("A table", "", (), (), protocols=declared)
        comparisons.declared(grid.formed("protocols"))


def test_a_run_that_is_none_of_the_variants_is_named(collected):
    some = {**VARIANTS, "values": VARIANTS["values"][:1]}
    with pytest.raises(ConfigError, match=r"run cifar10-p0.2/none has exploration = 'none'"):
        comparisons.variants(made_up.read(collected["p"][0]), some)
    with pytest.raises(ConfigError, match="variants have a parameter and values, got values"):
        comparisons.variants(made_up.read(collected["p"][0]), {"values": []})


def test_accuracies_of_what_does_not_exist_are_refused(collected):
    exhibit, *frames = collected["p"]
    given = Inputs(made_up.read(exhibit), *frames, None)
    with pytest.raises(DataError, match="the protocol 'x'; there are default, ensemble"):
        comparisons.accuracies(given, comparisons.declared([Protocol("moe"), Protocol("x")]))


def test_a_published_number_is_found_by_pattern_for_its_own_data_only():
    def value(pattern, *where):
        exhibit = made_up.read({"published": pattern})
        return comparisons.published(Inputs(exhibit, None, None, PUBLISHED), *where)

    both = [*made_up.majority(1), *made_up.majority(1, dataset="digits")]
    here, other = made_up.read({"federations": both}).federations
    assert value(PATTERN, here, "eps", "moe", "accuracy") == 0.9076
    assert value(PATTERN, here, "none", "ifca", "accuracy_std") == 0.0207
    assert value(PATTERN, here, "eps", "all", "num_trials") == 14
    assert np.isnan(value(PATTERN, other, "eps", "moe", "accuracy"))
    assert np.isnan(value(PATTERN, here, "eps-j3", "moe", "accuracy"))
    with pytest.raises(ConfigError, match="does not fit cifar10-p1.0, which has kind, p: 'q'"):
        value("table2-q{q}-{label}", here, "eps", "moe", "accuracy")


def test_spreads_over_trials_are_compared_as_the_text_of_the_paper_does(collected):
    exhibit, tidy, clients = collected["p"]
    params = copy.deepcopy(adaptive_experts.declare("full").tables["spreads"].params)
    params["pairs"][0]["more"] = "none/default"  # where made-up results have IFCA's
    changes = {"published": "text", "federations": made_up.majority(1.0)}
    changes["runs"] = [run for run in exhibit["runs"] if run["federation"] == "cifar10-p1.0"]
    sheet = made_up.build("spreads", exhibit | changes, tidy, clients, PUBLISHED, **params)
    mine = tidy.query("at == 'last' and group == 'seen' and split == 'test'")
    mine = mine[mine["metric"] == comparisons.MEAN].set_index(["federation", "label", "protocol"])
    std = {
        way: np.std(mine.loc[("cifar10-p1.0", *way.split("/")), "value"], ddof=1)
        for way in ("eps/moe", "none/default", "eps/local")
    }
    found = sheet.numbers["mean"].tolist()
    ratios = std["eps/moe"] / std["none/default"], std["eps/local"] / std["eps/moe"]
    np.testing.assert_allclose(found, [1 - ratio for ratio in ratios])
    assert sheet.numbers["published"].tolist() == [0.6039, 0.6098]
    assert len(contents.compared(sheet.numbers)) == 2


# Figures


def test_published_numbers_are_crosses_where_settings_and_data_match(collected):
    figure = draw(collected, "protocol_sweep", "j", PUBLISHED, {"published": PATTERN}, **BY_J)
    crosses = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert [line.get_marker() for line in crosses] == ["x", "+"] * 5
    assert {tuple(line.get_xdata()) for line in crosses} == {(6,)}  # not at J = 3
    assert [line.get_ydata()[0] for line in crosses[:2]] == [0.7239, 0.5773]  # Table 2, MoE
    assert texts(figure)[-2:] == ["published, with exploration", "published, without"]
    assert "no test of the paper" in footer(figure)
    digits = made_up.majority(0.2, dataset="digits")
    changes = {"published": PATTERN, "federations": digits}
    other = draw(collected, "protocol_sweep", "j", PUBLISHED, changes, **BY_J)
    assert len(other.axes[0].get_lines()) == 10
    assert "prints none of these numbers" in footer(other)


def test_a_sweep_whose_runs_cannot_be_told_apart_is_refused(collected):
    with pytest.raises(ConfigError, match="panels must be federation or variant, got 'run'"):
        draw(collected, "protocol_sweep", **BY_P, panels="run", variants=VARIANTS)
    one = {"parameter": "method", "values": [{"value": "x", "title": "x"}]}
    with pytest.raises(ConfigError, match="does not state method"):
        draw(collected, "protocol_sweep", **BY_P, variants=one)
    same = {"values": [{"value": 6, "title": "six"}], "parameter": "num_experts"}
    with pytest.raises(ConfigError, match="two runs of the same variant in the panel 'CIFAR-10'"):
        draw(collected, "protocol_sweep", **BY_P, variants=same)


def test_usage_of_what_nobody_chose_or_cannot_exist_is_refused(collected):
    exhibit, tidy, clients = collected["p"]
    with pytest.raises(DataError, match=r"choice of cifar10-p0.2/eps must be in \[0, 5\]"):
        made_up.draw("cluster_usage", exhibit, tidy, clients.assign(choice=6), None)
    with pytest.raises(ConfigError, match="cifar10-p0.2 must have one run of each variant"):
        made_up.draw("cluster_usage", exhibit | {"runs": exhibit["runs"][1:]}, tidy, clients, None)


def test_a_run_with_fewer_experts_has_empty_places_before_the_local_one():
    three = np.array([[0.3, 0.1, 0.6]])
    drawn = gate_weights.padded(three, 4)
    assert drawn.tolist() == [[0.3, 0.1, 0.0, 0.0, 0.6]]


def test_protocols_in_a_cdf_need_variants_and_have_no_unseen_clients(collected):
    with pytest.raises(ConfigError, match="cannot be told apart beside protocols"):
        draw(collected, "client_accuracy_cdf", protocols=WAYS, variants=VARIANTS, unseen=True)
    with pytest.raises(ConfigError, match="need one another"):
        draw(collected, "client_accuracy_cdf", variants=VARIANTS)
