"""Figures: what is on their axes, that a method looks the same everywhere, and stable bytes."""

from types import SimpleNamespace

import made_up
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from pictures import faults

from fedlib import papers
from fedlib.errors import ConfigError
from fedlib.report import comparisons, exhibits, packs
from fedlib.report.figures import (
    FigureInputs,
    accuracy_over_rounds,
    canvas,
    cost_to_target,
    curves,
    expert_weights,
    gradient_divergence,
    protocol_sweep,
    regret,
    saving,
    style,
    sweep,
)
from fedlib.report.metrics.runs import collect
from fedlib.report.tables.render import points
from fedlib.spec import SCALES
from fedlib.workflow.provenance import ROOT

LABELS = ["local", "fedavg", "fedem", "pfedmm"]


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Exhibit, metrics and clients."""
    exhibit, folder = made_up.exhibit(LABELS), tmp_path_factory.mktemp("runs")
    made_up.save_runs(exhibit, folder)
    return exhibit, *collect(made_up.metrics_spec(exhibit), folder)


def test_the_same_figure_gives_the_same_bytes(collected, tmp_path):
    for name in ("a", "b"):
        files = (tmp_path / f"{name}.{suffix}" for suffix in ("pdf", "png", "svg"))
        saving.save(made_up.draw("mixture_weights", *collected), *files)
    for suffix in ("pdf", "png", "svg"):
        first, second = (tmp_path / f"{name}.{suffix}" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()
    assert b"CreationDate" not in first.with_suffix(".pdf").read_bytes()


def test_a_name_that_is_longer_than_its_axis_is_broken_and_others_stay_as_they_are(collected):
    figure = made_up.draw("accuracy_over_rounds", *collected)
    left, right = figure.axes
    left.set_ylabel("Validation accuracy of the clients that train, mean over them (%)")
    right.set_ylabel("Accuracy")
    assert "leaves the figure" in faults(figure, fitted=False)[0]
    assert faults(figure) == []
    assert left.get_ylabel().count("\n") >= 1 and right.get_ylabel() == "Accuracy"


def test_of_many_methods_users_own_and_the_best_stand_out():
    methods = ("mine/fedper.py", "apfl", "fedavg", "local", "fedprox", "qffl", "afl", "fedem")
    runs = [{"label": m, "title": m, "method": m} for m in (*methods, "ifca")]
    shown = made_up.read({"paper": "shapes", "runs": runs})  # which has no method of its name
    scores = {"qffl": -0.1, "afl": -0.2, "apfl": -0.3}
    standing = ["mine/fedper.py", "fedavg", "local", "qffl", "afl"]
    assert style.standing_out(shown, scores) == standing
    fewer = made_up.read({"paper": "shapes", "runs": runs[1:]})
    assert {*style.standing_out(fewer, scores)} == {run["label"] for run in runs[1:]}


def test_whiskers_of_costs_go_from_the_least_to_the_most_of_the_seeds(collected):
    targets = {one["name"]: 0.05 for one in collected[0]["federations"]}
    figure = made_up.draw("cost_to_target", *collected, targets=targets)
    bars = [bar for axes in figure.axes for bar in axes.containers]
    assert bars
    for middle, _, [whisker] in bars:
        [[(low, _), (high, _)]] = whisker.get_segments()
        assert 0 < low <= middle.get_xdata()[0] <= high


def test_costs_say_how_many_seeds_reach_the_target_if_some_miss_it(collected):
    exhibit, tidy, clients = collected
    ways = (tidy["label"] == "fedem") & (tidy["seed"] == 2) & (tidy["metric"] != "bytes")
    fewer = tidy.assign(value=tidy["value"].where(~ways | (tidy["at"] != "round"), 0))
    targets = {one["name"]: 0.05 for one in exhibit["federations"]}
    drawn = made_up.draw("cost_to_target", exhibit, fewer, clients, targets=targets)
    told = [[x.get_text().partition("(")[2] for x in axes.texts] for axes in drawn.axes]
    assert told == [["", "", "1 of 2 seeds)", ""]] * 4


def test_no_end_of_a_whisker_of_costs_leaves_its_panel():
    axes, spent = Figure().subplots(), pd.Series([1e3] * 19 + [1e6])
    run = SimpleNamespace(label="a", title="A")
    cost_to_target._draw_dots(axes, [spent], [run], {"a": style.OTHERS}, 20)
    assert axes.get_xlim()[0] <= 1e3 and axes.get_xlim()[1] > 1e6


def test_a_sweep_draws_all_methods_that_ran(collected):
    fields = {"parameter": "partition.alpha", "of": "federation", "methods": ["fedem"]}
    [legend] = made_up.draw("sweep", *collected, **fields).legends
    assert [x.get_text() for x in legend.get_texts()] == ["FedEM", "Local", "FedAvg", "pFedMM"]


def test_published_numbers_of_each_variant_have_a_mark_of_their_own():
    kinds = comparisons.Variants(["a", "b", "c"], {})
    *_, one, two, three = protocol_sweep._handles([], kinds, "federation", crossed=True)
    assert [x.get_marker() for x in (one, two, three)] == [*protocol_sweep.CROSSES[:3]]


def test_a_method_has_one_line_in_the_panels_of_all_that_it_is_compared_with(collected):
    given = {"rows": [{"title": x, "labels": [x]} for x in LABELS], "of": ["fedavg", "fedem"]}
    drawn = made_up.draw("contrast_points", *collected, **given, against=["fedavg", "local"])
    medians = [[x for x in axes.get_lines() if x.get_marker() == "D"] for axes in drawn.axes]
    assert [[x.get_ydata() for x in panel] for panel in medians] == [[[1]], [[0], [1]]]
    assert [x.get_text() for x in drawn.axes[0].get_yticklabels()] == given["of"]


def test_lowest_regrets_that_are_written_alike_are_bold():
    axes = Figure().subplots()
    regret._number(axes, pd.DataFrame([[0.951, 1.04], [1.049, 1.06]]), most=10)
    texts = [(x.get_text(), x.get_fontweight()) for x in axes.texts]
    assert texts == [("1.0", "bold"), ("1.0", "bold"), ("1.0", "bold"), ("1.1", "normal")]


def test_a_phase_diagram_with_empty_cells_names_the_methods_that_are_best_somewhere():
    *files, shown = packs.read(ROOT / "docs/results/benchmark/phase/pack")
    spec = next(x.spec for x in shown if x.stage == "figure")
    two = [x for x in spec["federations"] if x["name"] in ("n8-d0", "n512-d1")]  # cells of four
    given = FigureInputs.read({**spec, "federations": two}, *files, None)
    [legend] = given.module.draw(given).legends
    assert [x.get_text() for x in legend.get_texts()] == ["FedAvg", "FedEM"]


def test_panels_have_a_grid_behind_what_they_show():
    with style.use_style():
        axes = Figure().subplots()
    assert axes.xaxis.get_gridlines()[0].get_visible() and axes.get_axisbelow() is True


def test_a_half_is_rounded_in_figures_as_in_tables():
    for value, text in ((0.25, "+0.3"), (0.35, "+0.4"), (100 * (0.6025 - 0.6), "+0.3")):
        assert canvas.number(value, "+.1f") == text == points(value / 100)
        assert canvas.number(-value, "+.1f") == points(-value / 100)


def test_an_svg_file_does_not_follow_the_last_bits_of_the_layout(tmp_path):
    def drawn(shift: float) -> bytes:
        with style.use_style():
            axes = Figure().add_axes((0.1, 0.1 + shift, 0.8, 0.8))
            axes.plot([0, 1], [1, 0])
            axes.figure.legend(["a"])
        saving.save(axes.figure, tmp_path / "a.svg")
        return (tmp_path / "a.svg").read_bytes()

    assert drawn(0) == drawn(1e-15)
    assert b"url(#p0)" in drawn(0)


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        (["FedHyp 0.0", "FedHyp 0.1"], "FedHyp"),
        (["Mine", "Mine"], "Mine"),
        (["Mine"], "Mine"),
        (["Of mine", "And of mine"], "fed_hyp"),
        ([], "fed_hyp"),
    ],
)
def test_a_method_of_a_users_is_called_by_its_class_if_titles_differ(titles, title):
    assert exhibits.method_title("mine/fed_hyp.py", titles) == title


def test_a_users_name_is_no_formula_and_has_no_character_that_svg_cannot_have():
    assert canvas.short(["a\x01\tb", "$b$"]) == ["a\\x01\tb", r"\$b\$"]


def test_flat_curves_look_flat_and_numbers_have_a_minus_sign():
    axes = Figure().subplots()
    axes.plot([0.90, 0.91])
    canvas.percent_axis(axes)
    assert np.ptp(axes.get_ylim()) == pytest.approx(canvas.SPAN)
    assert canvas.number(-0.25) == "\N{MINUS SIGN}0.25" and canvas.number(1.5, "+.1f") == "+1.5"
    assert (canvas.number(-0.04, ".1f"), canvas.number(-0.04, "+.1f")) == ("0.0", "+0.0")
    assert (canvas.number(-0.0), canvas.number(3.0, "+g")) == ("0", "+3")


def test_a_published_curve_is_compared_from_round_10_on_and_the_nearest_to_ours_is_named(collected):
    exhibit, tidy, clients = collected
    ours = exhibits.pick(tidy, federation="emnist", at="round", metric="accuracy", group="seen")
    ours = ours.groupby(["label", "round"])["value"].mean()
    off = {"pfedmm": ("pfedmm", 0.01), "local": ("fedem", 0.0), "fedem": ("local", 0.0)}
    theirs = pd.DataFrame(
        {"dataset": "emnist", "label": name, "round": at, "accuracy": ours[label, at] + more}
        for name, (label, more) in off.items()
        for at in range(1, 31)
    )
    about = made_up.read(exhibit | {"kind": "accuracy_over_rounds"})
    given = FigureInputs(about, tidy, clients, None, curves=theirs)
    far = accuracy_over_rounds.distances(given).set_index("label")
    assert far.loc["pfedmm", "rounds"] == 21
    assert far.loc["pfedmm", "rms"] == pytest.approx(0.01)
    assert far["nearest"].to_dict() == {"local": "fedem", "fedem": "local", "pfedmm": "pfedmm"}


DISTINGUISHED = {  # kinds of figures in which a look means a run
    *("accuracy_over_bytes", "accuracy_over_rounds", "client_accuracy_cdf"),
    "gradient_divergence",
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", papers.names())
def test_no_two_methods_of_a_paper_share_a_colour_or_a_mark_and_no_two_runs_of_a_figure_look_alike(
    name, scale
):
    paper = papers.load(name).declare(scale)
    found = [style.method_look(method) for method in {run.method for run in paper.runs}]
    assert len({look.color for look in found}) == len(found)
    assert len({(look.marker, look.line) for look in found}) == len(found)
    for figure in (x for x in paper.figures.values() if x.kind in DISTINGUISHED):
        runs = [run.describe() for run in paper.runs if figure.shows(run.federation, run.label)]
        drawn = style.looks(made_up.read({"runs": runs})).values()
        assert len({(x.color, x.marker, x.line, x.hollow) for x in drawn}) == len(drawn)


def test_mixture_weights_of_runs_without_any_are_said_to_be_missing(collected):
    figure = made_up.draw("mixture_weights", made_up.exhibit(["local"]), *collected[1:], None)
    assert figure.axes[0].get_title() == "None has mixture weights"


@pytest.mark.parametrize(
    ("values", "even"),
    [([1, 2, 10], False), ([0.1, 0.4, 1e6], True), (["a"], True), ([0, 1, 20], True)],
)
def test_an_axis_is_evenly_spaced_over_more_than_a_decade(values, even):
    assert sweep.is_even(values) == even


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"parameter": "alpha"}, "federation emnist does not state alpha; it has"),
        ({"parameter": "partition.alpha.x"}, "does not state partition.alpha.x"),
        ({"of": "run", "parameter": "mu"}, "emnist/fedavg does not state mu"),
    ],
)
def test_a_sweep_over_what_is_not_stated_is_refused(params, complaint):
    exhibit = made_up.exhibit(["fedavg"])
    exhibit["federations"][1]["family"] = "EMNIST"
    fields = {"methods": ["fedavg"], "of": "federation", "parameter": "partition.alpha"}
    with pytest.raises(ConfigError, match=complaint):
        made_up.draw("sweep", exhibit, pd.DataFrame(), pd.DataFrame(), None, **fields | params)


def test_two_runs_at_one_place_of_a_sweep_are_refused():
    exhibit = made_up.exhibit(["fedavg", "fedem"])
    fields = {"methods": ["fedavg"], "of": "federation", "parameter": "partition.alpha"}
    for run in exhibit["runs"]:
        run["method"] = "fedavg"
    with pytest.raises(ConfigError, match="two runs at 0.4, emnist/fedavg and .*/fed"):
        made_up.draw("sweep", exhibit, pd.DataFrame(), pd.DataFrame(), None, **fields)


def test_runs_of_one_method_have_colours_of_no_other():
    runs = [{"label": str(i), "title": str(i), "method": "fedavg"} for i in range(7)]
    drawn = style.looks(made_up.read({"paper": "shapes", "runs": runs}))
    assert {x.color for x in drawn.values()} == {style.method_look("fedavg").color, *style.SPARE}
    assert {*style.SPARE}.isdisjoint(look.color for look in style.METHODS.values())


@pytest.mark.parametrize("banded", [False, True])
def test_few_curves_that_end_alike_are_shown_where_they_end_unless_a_band_would_be_cut(banded):
    axes, curve = Figure().subplots(), pd.Series([0.1, 0.98, 0.99, 0.99, 0.99])
    axes.plot(curve)
    if banded:
        axes.fill_between(curve.index, curve - 0.1, curve + 0.1)
    assert bool(curves.focus(axes, [curve])) is not banded
    assert (axes.get_ylim()[0] > 0.9) is not banded


def test_a_note_says_whose_curves_show_what_validation_has_chosen():
    stops = {"stop": "all", "stop_every": 5}
    runs = [
        {"label": "a", "title": "Fed-MoE", "method": "fedmoe", "params": {}},
        {"label": "b", "title": "As in the code", "method": "fedmoe", "params": {"keep": "last"}},
        {"label": "c", "title": "CentMoE", "method": "centmoe", "params": {}},
        {"label": "d", "title": "FedAvg", "method": "fedavg", "params": {}},
        {"label": "e", "title": "IFCA to the end", "method": "ifca", "params": {}},
        {"label": "f", "title": "IFCA", "method": "ifca", "params": stops},
    ]
    told = curves.checks_note(made_up.read({"runs": runs[:4]}))
    assert told == "Fed-MoE; CentMoE: each point shows the state that validation has chosen so far."
    both = curves.checks_note(made_up.read({"runs": runs}))
    assert both.startswith(f"{told} IFCA: each point") and "every 5 rounds" in both
    assert "to the end" not in both
    assert curves.checks_note(made_up.read({"runs": runs[3:4]})) == ""


def test_a_window_of_rounds_has_as_many_rounds_however_rarely_they_are_recorded():
    rows = pd.DataFrame({"federation": "f", "label": "a", "seed": 1, "round": [1, 4, 7, 7]})
    shown = gradient_divergence._smooth(rows.assign(value=[1.0, 2.0, 4.0, 6.0]), window=4)
    assert dict(zip(shown["round"], shown["mean"], strict=True)) == {1: 1, 4: 1.5, 7: 3.5}


def test_a_run_has_no_column_of_classes_that_only_other_runs_have():
    weights = [0.5, np.nan, 0.4, np.nan]  # no client has an example of 1
    clients = pd.DataFrame({f"local_weights_{n}": [x] for n, x in enumerate(weights)})
    assert str(expert_weights._by_class(clients)) == "[[0.5 nan 0.4]]"


def test_more_than_ten_experts_or_data_sets_have_colours_of_their_own():
    assert style.palette(10) == style.PALETTE
    assert len({*style.palette(24)}) == 24


def test_a_published_curve_of_a_run_that_is_not_shown_has_its_methods_title():
    row = {"rms": 0.1, "nearest": "fedavg-plus", "nearest_rms": 0.01}
    assert accuracy_over_rounds._far_text(row, {}) == "10.0 (that of FedAvg+ 1.0)"


def test_the_legend_of_variants_has_those_that_are_drawn_with_their_own_dashes():
    handles = style.protocol_handles([], ["", "No exploration"])
    assert [x.get_label() for x in handles] == ["No exploration"]
    assert handles[0].get_linestyle() == "--"
