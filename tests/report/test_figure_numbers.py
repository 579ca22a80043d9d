"""The numbers that are read off a drawn figure: what was drawn, where, and what it is called."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlib.report.figures import canvas, numbers


@pytest.fixture
def axes():
    figure = Figure(figsize=(4, 2))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(xlabel="Round", ylabel="Accuracy\n(%)")
    return axes


def panel(axes) -> dict:
    (found,) = numbers.of(axes.figure)
    return found


def test_a_curve_has_its_numbers_and_its_place(axes):
    axes.plot([1, 10, 100], [0.25, float("nan"), 0.123456789], color="#0072b2", label="FedAvg")
    axes.axhline(0.5)  # a mark, not a curve
    axes.set(xscale="log", xlim=(1, 100), ylim=(0, 1), title="EMNIST")
    axes.set_position([0.2, 0.1, 0.5, 0.6])  # left, bottom, width, height
    found = panel(axes)
    assert found["series"] == [
        {"name": "FedAvg", "color": "#0072b2", "line": True, "dash": []}
        | {"x": [1, 10, 100], "y": [0.25, None, 0.12346]}
    ]
    assert found["box"] == pytest.approx([0.2, 0.3, 0.5, 0.6])
    assert (found["limits"], found["log"]) == ([[1, 100], [0, 1]], [True, False])
    assert (found["title"], found["x"], found["y"]) == ("EMNIST", "Round", "Accuracy (%)")


def test_a_curve_has_its_dashes_in_widths_of_its_line(axes):
    axes.plot([0, 1], [0, 1], linestyle=(0, (4, 1.6)), linewidth=3)
    assert panel(axes)["series"][0]["dash"] == [4, 1.6]


def test_an_axis_in_percent_is_known_by_its_ticks(axes):
    axes.plot([0, 1], [0, 0.5])
    assert panel(axes)["percent"] == [False, False]
    canvas.percent_axis(axes)
    assert (panel(axes)["percent"], panel(axes)["names"]) == ([False, True], [{}, {}])


def test_ticks_that_were_given_texts_have_these(axes):
    axes.plot([0, 1, 2.5], [3, 1, 2])
    axes.set_xticks([0, 1, 2.5], ["0.1", "0.4", "1e6"])
    axes.set_yticks([1, 2, 3])
    assert panel(axes)["names"] == [{"0": "0.1", "1": "0.4", "2.5": "1e6"}, {}]


def test_a_curve_without_a_name_is_called_as_the_legend_calls_its_colour(axes):
    first, second = axes.plot([[1, 2], [3, 4]])
    axes.figure.legend(handles=[second], labels=["second"])
    assert [series["name"] for series in panel(axes)["series"]] == ["", "second"]


def test_bars_and_whiskers_are_no_series(axes):
    axes.bar([1, 2], [3, 4], 0.5, label="experts")
    axes.errorbar([1, 2], [3, 4], 0.1, linestyle="None", capsize=2)
    axes.errorbar([1, 2], [5, 6], 0.1, capsize=2, color="#0072b2")
    (curve,) = panel(axes)["series"]
    assert (curve["line"], curve["y"]) == (True, [5, 6])


def test_the_scale_of_a_matrix_is_no_panel(axes):
    axes.figure.colorbar(axes.imshow([[1, 2], [3, 4]]))
    assert panel(axes)["series"] == []
