"""Figures: what is on their axes, that a method looks the same everywhere, and stable bytes."""

from dataclasses import replace

import made_up
import matplotlib
import numpy as np
import pandas as pd
import pytest
from made_up import footer
from matplotlib.figure import Figure
from pictures import faults

from fedlib import papers
from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits, metrics, printed
from fedlib.report.figures import (
    FigureInputs,
    accuracy_over_bytes,
    accuracy_over_rounds,
    canvas,
    saving,
    style,
)
from fedlib.report.figures.curves import checks_note, focus
from fedlib.report.figures.saving import wrapped
from fedlib.spec import SCALES, ExhibitSpec
from fedlib.workflow.provenance import ROOT

PUBLISHED = ROOT / "fedlib/papers/pfedmm/published.csv"
LABELS = ["local", "fedavg", "fedem", "pfedmm"]
ALL = {"group": "seen", "metric": "accuracy", "protocol": "default", "split": "test"}
SWEEP = {"parameter": "num_experts", "methods": ["pfedmm", "fedem"], "symbol": "M"}


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """Exhibit, metrics and clients: of the main runs and of a sweep."""

    def collect(labels):
        exhibit = made_up.exhibit(labels)
        folder = tmp_path_factory.mktemp("runs")
        made_up.save_runs(exhibit, folder)
        return exhibit, *metrics.collect(made_up.metrics_spec(exhibit), folder)

    sweep = [f"{method}-m{number}" for method in ("pfedmm", "fedem") for number in (2, 3)]
    return {"main": collect(LABELS), "sweep": collect(sweep)}


def draw(collected, kind, published_file=None, changes=None, **params):
    exhibit, tidy, clients = collected["sweep" if kind == "sweep" else "main"]
    params = {**(SWEEP if kind == "sweep" else {}), **params}
    numbers = printed.read(published_file) if published_file else None
    return made_up.draw(kind, {**exhibit, **(changes or {})}, tidy, clients, numbers, **params)


def texts(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_the_same_figure_gives_the_same_bytes(collected, tmp_path):
    for name in ("a", "b"):
        files = (tmp_path / f"{name}.{suffix}" for suffix in ("pdf", "png", "svg"))
        saving.save(draw(collected, "mixture_weights"), *files)
    for suffix in ("pdf", "png", "svg"):
        first, second = (tmp_path / f"{name}.{suffix}" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()
    assert b"CreationDate" not in first.with_suffix(".pdf").read_bytes()


def test_a_name_that_is_longer_than_its_axis_is_broken_and_others_stay_as_they_are(collected):
    figure = draw(collected, "accuracy_over_rounds")
    left, right = figure.axes
    left.set_ylabel("Validation accuracy of the clients that train, mean over them (%)")
    right.set_ylabel("Accuracy")
    assert "leaves the figure" in faults(figure, fitted=False)[0]
    assert faults(figure) == []
    assert left.get_ylabel().count("\n") >= 1 and right.get_ylabel() == "Accuracy"


def of_one(exhibit: dict) -> dict:
    """What narrows an exhibit to its first federation."""
    first = exhibit["federations"][0]
    runs = [run for run in exhibit["runs"] if run["federation"] == first["name"]]
    return {"federations": [first], "runs": runs}


def test_a_legend_has_the_room_that_it_needs_and_all_figures_are_of_one_width(collected):
    main = collected["main"][0]
    renamed = [{**run, "title": run["title"] * 8} for run in main["runs"]]
    long = draw(collected, "accuracy_over_rounds", changes={"runs": renamed})
    plain = draw(collected, "accuracy_over_rounds")
    single = draw(collected, "accuracy_over_rounds", changes=of_one(main))
    for figure in (long, plain, single):
        assert faults(figure) == []
        assert figure.get_figwidth() == canvas.WIDTH
    assert long.get_figheight() > plain.get_figheight()  # more rows of it
    below, beside = (f.legends[0].get_window_extent() for f in (plain, single))
    assert below.y1 <= plain.axes[0].get_window_extent().y0
    assert beside.x0 >= single.axes[0].get_window_extent().x1


def test_settings_of_the_caller_neither_matter_nor_change(collected, tmp_path):
    plain = draw(collected, "sweep")
    saving.save(plain, tmp_path / "a.pdf", tmp_path / "a.png")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 30}):
        before = dict(matplotlib.rcParams)
        saving.save(draw(collected, "sweep"), tmp_path / "b.pdf", tmp_path / "b.png")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_every_method_has_a_title_and_a_look_of_its_own():
    assert not {look.color for look in style.METHODS.values()} & set(style.SPARE)
    for name in ("title", "color", "marker"):
        assert len({getattr(look, name) for look in style.METHODS.values()}) == len(style.METHODS)


def test_runs_of_one_method_share_its_colour_and_differ_in_dashes():
    labels = ("pfedmm", "pfedmm-m2", "pfedmm-m3", "fedavg")
    runs = [made_up.describe("emnist", label) for label in labels]
    looks = list(style.looks(made_up.read({"runs": runs})).values())[:3]
    assert {look.color for look in looks} == {style.METHODS["pfedmm"].color}
    assert len({str(look.line) for look in looks}) == 3
    assert [look.hollow for look in looks] == [False, True, True]
    alone = style.looks(
        made_up.read({"runs": runs[:3]})
    ).values()  # where a colour would tell no method
    assert len({look.color for look in alone}) == 3


def crowd(*methods: str, paper: str = "pfedmm") -> ExhibitSpec:
    """An exhibit of a run of each method, labelled like it."""
    runs = [{"label": m, "title": m, "method": m} for m in methods]
    return made_up.read({"paper": paper, "runs": runs})


def test_of_more_than_eight_methods_five_are_in_colour_and_the_others_grey():
    many = ("local", "fedavg", "fedprox", "apfl", "qffl", "afl", "fedem", "ifca", "pfedmm")
    scores = {"local": 0.1, "fedavg": 0.2, "pfedmm": 0.3, "qffl": 0.9, "afl": 0.8, "apfl": 0.7}
    looks = style.looks(crowd(*many), scores=scores)
    coloured = {label for label, look in looks.items() if look != style.OTHERS}
    assert coloured == {"pfedmm", "fedavg", "local", "qffl", "afl"}
    handles = style.method_handles(crowd(*many), looks)
    assert [h.get_label() for h in handles][-1] == "other methods (4)" and len(handles) == 6
    assert style.others_note(crowd(*many), looks) == "In grey: fedprox, apfl, fedem, ifca."
    assert style.OTHERS not in style.looks(crowd(*many[1:]), scores=scores).values()
    with_file = crowd(*many, "mine/fedper.py", paper="shapes")  # which has no method of its name
    assert style.standing_out(with_file, scores) == (
        ["mine/fedper.py", "fedavg", "local", "qffl", "afl"]
    )


def test_a_curve_that_lies_under_another_is_wide_and_pale(collected):
    exhibit, tidy, clients = collected["main"]
    fedem, pfedmm = (tidy[tidy["label"] == label] for label in ("fedem", "pfedmm"))
    same = pd.concat([tidy[tidy["label"] != "fedem"], pfedmm.assign(label="fedem")])
    assert len(fedem)
    figure = made_up.draw("accuracy_over_rounds", exhibit, same, clients, None)
    lines = dict(zip(LABELS, figure.axes[0].get_lines(), strict=True))
    assert lines["fedem"].get_linewidth() > lines["pfedmm"].get_linewidth() + 2
    assert [lines[label].get_alpha() for label in LABELS] == [None, None, 0.4, None]
    assert "lies under another" in footer(figure)
    assert "lies under another" not in footer(draw(collected, "accuracy_over_rounds"))
    grey, colour = style.OTHERS.curve(), style.METHODS["pfedmm"].curve()
    axes = Figure().subplots()
    (top,), (below,) = axes.plot([0, 1], **colour), axes.plot([0, 1], **grey)
    assert canvas.uncover(axes)  # although the grey one was drawn last
    assert below.get_linewidth() > top.get_linewidth() == colour["linewidth"]


def test_an_svg_file_does_not_follow_the_last_bits_of_the_layout(tmp_path):
    def drawn(shift: float) -> bytes:
        with style.styled():
            axes = Figure().add_axes((0.1, 0.1 + shift, 0.8, 0.8))
            axes.plot([0, 1], [1, 0])
            axes.figure.legend(["a"])
        saving.save(axes.figure, tmp_path / "a.svg")
        return (tmp_path / "a.svg").read_bytes()

    assert drawn(0) == drawn(1e-15)
    assert b"url(#p0)" in drawn(0)


def test_flat_curves_look_flat_and_numbers_have_a_minus_sign():
    axes = Figure().subplots()
    axes.plot([0.90, 0.91])
    canvas.percent_axis(axes)
    assert np.ptp(axes.get_ylim()) == pytest.approx(canvas.SPAN)
    assert canvas.number(-0.25) == "\N{MINUS SIGN}0.25" and canvas.number(1.5, "+.1f") == "+1.5"
    assert (canvas.number(-0.04, ".1f"), canvas.number(-0.04, "+.1f")) == ("0.0", "+0.0")
    assert (canvas.number(-0.0), canvas.number(3.0, "+g")) == ("0", "+3")


def test_rounds_are_whole_numbers_in_steps_that_are_easy_to_read():
    axes = Figure().subplots()
    axes.plot([0, 5, 10, 15], [0, 1, 1, 1])
    canvas.rounds_axis(axes)
    inside = [x for x in axes.get_xticks() if 0 <= x <= 15]
    assert inside == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("most", "unit"), [(1.2e11, "GB"), (5e5, "kB"), (7, "kB"), (2.0**29, "MB"), (1e12, "TB")]
)
def test_amounts_are_told_in_a_unit_of_which_there_are_1_to_1000(most, unit):
    assert accuracy_over_bytes.unit_of(most) == unit


def test_unlisted_methods_have_spare_looks_each_always_the_same():
    looks = [style.method_look(name) for name in ("fedper", "moon", "fedbabu", "scaffold")]
    assert len({(look.color, look.marker) for look in looks}) == len(looks)
    assert {look.color for look in looks} <= {*style.SPARE}
    assert style.method_look("fedper") == looks[0]


def test_published_ends_are_marked_only_where_the_data_set_matches(collected):
    exhibit, tidy, clients = collected["main"]
    federations = [dict(federation) for federation in exhibit["federations"]]
    federations[1]["dataset"] = "qmnist"
    changes = {"published": "curve-end", "federations": federations}
    figure = draw(collected, "accuracy_over_rounds", PUBLISHED, changes)
    emnist, other = (len(axes.get_lines()) for axes in figure.axes)
    assert (emnist, other) == (2 * len(LABELS), len(LABELS))
    assert "published end" in texts(figure)
    assert "their difference is no test of the paper" in footer(figure)
    assert "published end" not in texts(draw(collected, "accuracy_over_rounds", PUBLISHED))


def test_a_published_curve_is_thin_and_its_distance_and_the_nearest_one_are_told(collected):
    exhibit, tidy, clients = collected["main"]
    rows = exhibits.pick(tidy, federation="emnist", at="round", **ALL)
    ours = rows.groupby(["label", "round"])["value"].mean()
    off = {"pfedmm": ("pfedmm", 0.01), "local": ("fedem", 0.0), "fedem": ("local", 0.0)}
    drawn = [
        {"dataset": "emnist", "label": name, "round": at, "accuracy": ours[label, at] + more}
        for name, (label, more) in off.items()
        for at in range(1, 31)
    ]
    beyond = {"dataset": "emnist", "label": "pfedmm", "round": 40, "accuracy": 0.9}
    theirs = pd.DataFrame([*drawn, beyond])
    about = {"kind": "accuracy_over_rounds", "params": {}, "published": "curve-end"}
    given = FigureInputs(
        made_up.read(exhibit | about), tidy, clients, printed.read(PUBLISHED), curves=theirs
    )
    far = accuracy_over_rounds.distances(given).set_index("label")
    assert far.loc["pfedmm", ["rounds", "nearest"]].tolist() == [21, "pfedmm"]  # from round 10 on
    assert far.loc["pfedmm", "rms"] == pytest.approx(0.01)
    assert far["nearest"].to_dict() == {"local": "fedem", "fedem": "local", "pfedmm": "pfedmm"}
    figure = given.made()
    thin = [x for x in figure.axes[0].get_lines() if x.get_label() == "pFedMM, published"]
    assert [x.get_xdata()[-1] for x in thin] == [30]  # our last round
    assert thin[0].get_color() == style.METHODS["pfedmm"].color
    assert texts(figure)[-2:] == ["published curve", "published end"]
    told = footer(figure)
    assert "EMNIST: Local" in told and "(that of FedEM 0.0)" in told and "pFedMM 1.0." in told
    worst = replace(given, exhibit=replace(given.exhibit, params={"metric": "bottom10"}))
    assert accuracy_over_rounds.distances(worst).empty


def test_points_of_published_curves_have_ours_beside_them(collected):
    exhibit, tidy, clients = collected["main"]
    params = {"peaks": "curve-peak", "waypoints": "curve-waypoints"}
    about = {"kind": "accuracy_over_rounds", "params": params, "published": "curve-end"}
    given = FigureInputs(made_up.read(exhibit | about), tidy, clients, printed.read(PUBLISHED))
    points = accuracy_over_rounds.compared(given)
    mine = exhibits.pick(points, federation="cifar10", label="pfedmm").set_index("column")
    # The file has more way-points, but the runs have 30 rounds alone.
    assert [*mine.index] == ["End of curve", "Peak of curve", "Round 20"]
    assert mine["published"].tolist() == [0.859, 0.864, 0.837]
    rows = exhibits.pick(tidy, federation="cifar10", label="pfedmm", at="round", **ALL)
    curve = rows.groupby("round")["value"].mean()
    ours = [curve[30], curve.max(), curve[20]]
    assert mine["reproduced"].tolist() == pytest.approx(ours) and {*mine["seeds"]} == {2}
    assert mine["difference"].tolist() == [
        printed.difference(*pair) for pair in zip(ours, mine["published"], strict=True)
    ]


def test_waypoints_without_a_round_are_not_guessed(collected):
    exhibit, tidy, clients = collected["main"]
    table = printed.read(PUBLISHED).replace("accuracy_round_20", "accuracy_round_end")
    about = {"kind": "accuracy_over_rounds", "params": {"waypoints": "curve-waypoints"}}
    with pytest.raises(DataError, match="got 'accuracy_round_end'"):
        accuracy_over_rounds.compared(
            FigureInputs(made_up.read(exhibit | about), tidy, clients, table)
        )


ENDS = [0.8 + 0.02 * number for number in range(8)]
PEAKS = [0.9, *[0.8] * 7]  # before the last round


@pytest.mark.parametrize(
    ("curves", "limits"),
    [
        # 0.15 of the room between the ends below the lowest, 0.1 above the highest.
        ([[0.0, end, end] for end in ENDS], (0.8 - 0.15 * 0.14, 0.94 + 0.1 * 0.14)),
        ([[0.0, end, end] for end in ENDS[:4]], None),  # are few
        ([[0.0, 0.4, end] for end in ENDS], (0.4 - 0.15 * 0.14, 0.94 + 0.1 * 0.14)),
        ([[0.0, peak, 0.8] for peak in PEAKS], (0.79, 0.91)),
        ([[0.0, 0.82, 0.5, 0.82, end] for end in ENDS], (0.5 - 0.15 * 0.14, 0.94 + 0.1 * 0.14)),
    ],
    ids=["many", "few", "half of each in sight", "a peak in sight", "no curve leaves"],
)
def test_many_curves_that_end_close_together_are_shown_where_they_end(curves, limits):
    axes = Figure().subplots()
    for curve in curves:
        axes.plot(curve)
    assert bool(focus(axes, [pd.Series(curve) for curve in curves])) == bool(limits)
    assert axes.get_ylim() == pytest.approx(limits) if limits else axes.get_ylim()[0] < 0


def test_curves_of_the_best_check_so_far_are_called_so():
    runs = [
        {"title": "IFCA", "method": "ifca", "params": {"stop_every": 5}},
        {"title": "IFCA, to the end", "method": "ifca", "params": {"stop": "never"}},
        {"title": "FedAvg", "method": "fedavg", "params": {}},
    ]
    note = checks_note(made_up.read({"runs": runs}))
    assert note.startswith("IFCA: ") and "every 5 rounds" in note
    assert checks_note(made_up.read({"runs": runs[1:]})) == ""


def test_names_are_broken_at_a_comma_where_that_does():
    name = "Test accuracy, mean of clients (%)"
    assert wrapped(name, 22) == "Test accuracy,\nmean of clients (%)"
    assert wrapped(name, 18) == "Test accuracy,\nmean of clients\n(%)"
    assert wrapped(name, 34) == name


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
    figures = [x for x in paper.figures.values() if x.kind in DISTINGUISHED]
    for figure in figures:
        runs = [run.describe() for run in paper.runs if figure.shows(run.federation, run.label)]
        drawn = style.looks(made_up.read({"runs": runs}), figure.params.get("shaded")).values()
        assert len({(x.color, x.marker, x.line, x.hollow) for x in drawn}) == len(drawn)


@pytest.mark.parametrize("ends", [(1.8e9, 1.9e11), (1e7, 9e7)])
def test_amounts_along_an_axis_do_not_lie_on_one_another(collected, ends):
    exhibit, tidy, clients = collected["main"]
    sent = tidy["metric"].eq("bytes") & tidy["at"].eq("round") & tidy["value"].gt(0)
    before = np.log(tidy["value"].where(sent))
    place = (before - before.min()) / (before.max() - before.min())  # from 0 to 1
    values = (ends[0] * (ends[1] / ends[0]) ** place).where(sent, tidy["value"])
    figure = made_up.draw("accuracy_over_bytes", exhibit, tidy.assign(value=values), clients, None)
    assert faults(figure) == []


def test_mixture_weights_of_runs_without_any_are_said_to_be_missing(collected):
    exhibit = made_up.exhibit(["local"])
    tidy, clients = collected["main"][1:]
    figure = made_up.draw("mixture_weights", exhibit, tidy, clients, None)
    assert figure.axes[0].get_title() == "None has mixture weights"


def alpha_sweep(tmp_path, *federations):
    exhibit = made_up.heterogeneity(["fedavg", "pfedmm"], [*federations])
    made_up.save_runs(exhibit, tmp_path)
    tidy, clients = metrics.collect(made_up.metrics_spec(exhibit), tmp_path)
    params = {"parameter": "partition.alpha", "of": "federation", "symbol": "α"}
    return made_up.draw(
        "sweep", exhibit, tidy, clients, None, methods=["fedavg", "pfedmm"], **params
    )


SWEPT = {"methods": ["fedavg", "pfedmm"], "of": "federation", "parameter": "partition.alpha"}


@pytest.mark.parametrize(
    ("values", "params", "complaint"),
    [
        ((0.1,), {"parameter": "alpha"}, "federation emnist-alpha0.1 does not state alpha; it has"),
        ((0.1,), {"parameter": "partition.alpha.x"}, "does not state partition.alpha.x"),
        ((0.1,), {"of": "data"}, "of must be run or federation, got 'data'"),
        ((0.1,), {"of": "run", "parameter": "mu"}, "emnist-alpha0.1/fedavg does not state mu"),
        ((0.1, 0.1), {}, "two runs of fedavg on EMNIST with partition.alpha = 0.1"),
    ],
)
def test_a_sweep_over_what_is_not_stated_or_stated_twice_is_refused(values, params, complaint):
    federations = made_up.alphas("emnist", *values)
    exhibit = made_up.heterogeneity(SWEPT["methods"], federations)
    empty = pd.DataFrame()
    with pytest.raises(ConfigError, match=complaint):
        made_up.draw("sweep", exhibit, empty, empty, None, **SWEPT | params)


def ticks(axes) -> dict[float, str]:
    labels = [label.get_text() for label in axes.get_xticklabels()]
    return dict(zip(axes.get_xticks(), labels, strict=True))


def test_sweep_over_federations_has_a_panel_per_family_with_values_at_even_distances(tmp_path):
    figure = alpha_sweep(
        tmp_path, *made_up.alphas("emnist", 1e6, 0.1, 0.4), *made_up.alphas("cifar10", 0.1, 1e6)
    )
    assert [axes.get_title() for axes in figure.axes] == ["EMNIST", "CIFAR-10"]
    assert figure.axes[0].get_xlabel() == "Dirichlet concentration α"
    for axes, positions in zip(figure.axes, ([0, 1, 2], [0, 2]), strict=True):
        assert ticks(axes) == {0: "0.1", 1: "0.4", 2: "1e6"}
        assert [bars.lines[0].get_xdata().tolist() for bars in axes.containers] == [positions] * 2
        assert axes.get_xscale() == "linear"
    assert texts(figure) == ["FedAvg", "pFedMM"]
    assert "Small α: the clients' data differ much." in footer(figure)
    assert "even distances, not to scale" in footer(figure)


def test_sweep_over_two_decades_has_a_logarithmic_axis(tmp_path):
    figure = alpha_sweep(tmp_path, *made_up.alphas("emnist", 0.1, 0.4, 10))
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert ticks(axes) == {0.1: "0.1", 0.4: "0.4", 10: "10"}
    assert "even distances" not in footer(figure)
