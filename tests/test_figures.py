"""Figures: what is on their axes, that a method looks the same everywhere, and stable bytes."""

import json
import subprocess
import sys
from pathlib import Path

import made_up
import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedlib import figures, metrics, published
from fedlib.errors import ConfigError
from fedlib.figures import style

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "fedlib/papers/published/pfedmm.csv"
LABELS = ["local", "fedavg", "fedem", "pfedmm"]
SWEEP = {
    "parameter": "num_experts",
    "methods": ["pfedmm", "fedem"],
    "symbol": "M",
}
AXES = {
    "accuracy_over_bytes": ("Communicated so far (MB)", "Test accuracy, all clients (%)"),
    "accuracy_over_rounds": ("Communication round", "Test accuracy, all clients (%)"),
    "client_accuracy_cdf": ("Test accuracy of a client (%)", "Fraction of clients at or below"),
    "mixture_weights": ("Client, sorted", "Mixture weight"),
    "sweep": ("Number of experts M", "Test accuracy, all clients (%)"),
}


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
    numbers = published.read(published_file) if published_file else None
    return figures.load(kind)({**exhibit, **(changes or {})}, tidy, clients, numbers, **params)


def texts(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def footer(figure) -> str:
    return " ".join(figure.get_supxlabel().split())


@pytest.mark.parametrize("kind", figures.KINDS)
def test_every_panel_has_labelled_axes_and_every_figure_a_title_and_a_footer(collected, kind):
    figure = draw(collected, kind)
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes] == (
        [AXES[kind]] * len(figure.axes)
    )
    assert len(figure.axes) == (4 if kind == "mixture_weights" else 2)
    assert figure.get_suptitle() == "Personalised test accuracy"
    assert "Scale demo: embedded data, 20 clients, 30 rounds. 2 seeds (1, 2)." in footer(figure)


@pytest.mark.parametrize("kind", figures.KINDS)
def test_the_same_figure_gives_the_same_bytes(collected, kind, tmp_path):
    for name in ("a", "b"):
        style.save(draw(collected, kind), tmp_path / f"{name}.pdf", tmp_path / f"{name}.png")
    for suffix in ("pdf", "png"):
        first, second = (tmp_path / f"{name}.{suffix}" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()
    assert b"CreationDate" not in first.with_suffix(".pdf").read_bytes()


def test_settings_of_the_caller_neither_matter_nor_change(collected, tmp_path):
    plain = draw(collected, "sweep")
    style.save(plain, tmp_path / "a.pdf", tmp_path / "a.png")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "savefig.dpi": 30}):
        before = dict(matplotlib.rcParams)
        style.save(draw(collected, "sweep"), tmp_path / "b.pdf", tmp_path / "b.png")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_method_has_one_colour_in_all_figures(collected):
    def colour_of(figure, title):
        handle = next(h for h in figure.legends[0].legend_handles if h.get_label() == title)
        return to_hex(handle.get_color()).upper()

    for kind in ("accuracy_over_rounds", "accuracy_over_bytes", "client_accuracy_cdf", "sweep"):
        figure = draw(collected, kind)
        for method, title in (("fedem", "FedEM"), ("pfedmm", "pFedMM")):
            assert colour_of(figure, title) == style.METHODS[method].color


def test_all_methods_of_the_first_paper_look_different():
    expected = "local fedavg fedprox fedavg_plus clustered pfedme l2sgd apfl qffl afl"
    assert {*expected.split(), "fedem", "pfedmoe_baseline", "pfedmm"} <= set(style.METHODS)
    assert len({look.color for look in style.METHODS.values()}) == len(style.METHODS)
    assert len({look.marker for look in style.METHODS.values()}) == len(style.METHODS)


def test_runs_of_one_method_share_its_colour_and_differ_in_dashes():
    runs = [made_up.describe("emnist", label) for label in ("pfedmm", "pfedmm-m2", "pfedmm-m3")]
    looks = list(style.looks(runs).values())
    assert {look.color for look in looks} == {style.METHODS["pfedmm"].color}
    assert len({str(look.line) for look in looks}) == 3
    assert [look.hollow for look in looks] == [False, True, True]


def test_an_unlisted_method_always_gets_the_same_spare_look():
    assert style.method_look("fednew") == style.method_look("fednew")
    assert style.method_look("fednew").color in style.SPARE


def test_curves_are_the_mean_over_seeds_in_fractions(collected):
    exhibit, tidy, _ = collected["main"]
    axes = draw(collected, "accuracy_over_rounds").axes[0]
    rows = tidy[(tidy["federation"] == "emnist") & (tidy["label"] == "pfedmm")]
    rows = rows[(rows["at"] == "round") & (rows["metric"] == "accuracy")]
    rows = rows[rows["group"] == "seen"]
    expected = rows.groupby("round")["value"].mean()
    drawn = axes.get_lines()[LABELS.index("pfedmm")]
    assert drawn.get_xdata() == pytest.approx(expected.index)
    assert drawn.get_ydata() == pytest.approx(expected)
    assert len(axes.collections) == len(LABELS)  # the bands


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


def test_one_seed_has_no_band(collected):
    figure = draw(collected, "accuracy_over_rounds", changes={"seeds": [1]})
    assert not figure.axes[0].collections
    assert "band" not in footer(figure) and "1 seed (1)." in footer(figure)


def test_a_method_that_sends_nothing_is_a_level_line(collected):
    figure = draw(collected, "accuracy_over_bytes")
    level = figure.axes[0].get_lines()[LABELS.index("local")]
    assert np.ptp(level.get_ydata()) == 0
    assert "sends nothing" in footer(figure)
    assert figure.axes[0].get_xscale() == "log"


def test_cdf_ends_at_one_and_dashes_are_the_unseen(collected):
    axes = draw(collected, "client_accuracy_cdf").axes[0]
    assert len(axes.get_lines()) == len(LABELS)
    assert all(line.get_ydata()[-1] == 1 for line in axes.get_lines())
    assert len(axes.get_lines()[0].get_xdata()) == 1 + 2 * 16  # 16 seen clients, 2 seeds
    figure = draw(collected, "client_accuracy_cdf", unseen=True)
    # Local has no default protocol for unseen clients.
    assert len(figure.axes[0].get_lines()) == 2 * len(LABELS) - 1
    assert {"seen clients", "unseen clients"} <= set(texts(figure))


def test_mixture_weights_fill_every_bar(collected):
    figure = draw(collected, "mixture_weights")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"{m}, {d}" for m in ("FedEM", "pFedMM") for d in ("EMNIST", "CIFAR-10")]
    tops = np.zeros(16)
    for bars in figure.axes[0].containers:
        tops += [bar.get_height() for bar in bars]
    assert tops == pytest.approx(np.ones(16))
    assert texts(figure) == ["expert 1", "expert 2", "expert 3"]
    assert "Seed 1 only" in footer(figure)


def test_mixture_weights_of_runs_without_any_are_said_to_be_missing(collected):
    exhibit = made_up.exhibit(["local"])
    tidy, clients = collected["main"][1:]
    figure = figures.load("mixture_weights")(exhibit, tidy, clients, None)
    assert figure.axes[0].texts[0].get_text() == "none of these runs has mixture weights"


def test_sweep_has_a_point_per_value_with_bars_over_seeds(collected):
    axes = draw(collected, "sweep").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "3"]
    points = axes.containers[0].lines[0]
    assert points.get_xdata().tolist() == [2, 3]
    assert axes.containers[0].has_yerr
    best = draw(collected, "sweep", at="best")
    assert "selection on the test set" in footer(best)


def test_unknown_kinds_and_params_name_the_choices():
    with pytest.raises(ConfigError, match="no figure kind 'pie'; choose from accuracy_over_bytes"):
        figures.load("pie")
    with pytest.raises(ConfigError, match="its params are: metric"):
        figures.check_params("accuracy_over_rounds", {"colour": "red"})


def test_values_of_params_name_the_choices(collected):
    with pytest.raises(ConfigError, match="metric must be accuracy or bottom10, got 'loss'"):
        draw(collected, "accuracy_over_rounds", metric="loss")
    with pytest.raises(ConfigError, match="at must be last or best, got 'first'"):
        draw(collected, "sweep", at="first")


@pytest.mark.slow
def test_script_draws_both_files(collected, tmp_path):
    exhibit, tidy, clients = collected["main"]
    metrics.write(tidy, tmp_path / "m.parquet")
    metrics.write(clients, tmp_path / "c.parquet")
    exhibit = {**exhibit, "kind": "accuracy_over_rounds", "published": "curve-end"}
    command = [
        *(sys.executable, ROOT / "scripts/figure.py", "--spec", json.dumps(exhibit)),
        *("--metrics", tmp_path / "m.parquet", "--clients", tmp_path / "c.parquet"),
        *("--published", PUBLISHED, "--pdf", tmp_path / "f.pdf", "--png", tmp_path / "f.png"),
    ]
    subprocess.run(command, check=True)
    figure = figures.load(exhibit["kind"])(exhibit, tidy, clients, published.read(PUBLISHED))
    style.save(figure, tmp_path / "here.pdf", tmp_path / "here.png")
    for suffix in ("pdf", "png"):
        ours, theirs = (tmp_path / f"{name}.{suffix}" for name in ("here", "f"))
        assert ours.read_bytes() == theirs.read_bytes()
