"""The numbers that are read off a drawn figure: what was drawn, where, and what it is called."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

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
        {"name": "FedAvg", "color": "#0072b2", "line": True, "dash": [], "at": True}
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
    assert panel(axes)["percent"] == [False, True]


def test_what_has_no_name_is_called_as_the_legend_calls_its_colour(axes):
    axes.stairs([0.2, 0.5], [0, 1, 2], fill=True, color="#0072b2")
    axes.stairs([1.0, 1.0], [0, 1, 2], baseline=[0.2, 0.5], fill=True, color="#d55e00")
    axes.figure.legend(handles=[Patch(color="#d55e00", label="second")])
    first, second = panel(axes)["series"]
    assert (first["name"], second["name"]) == ("", "second")
    assert (second["x"], second["y"]) == (
        [0.5, 1.5],
        [0.8, 0.5],
    )  # the share, without what is below


def test_bars_end_where_they_are_drawn_and_whiskers_are_no_series(axes):
    axes.bar([1, 2], [3, 4], 0.5, label="experts")
    axes.errorbar([1, 2], [3, 4], 0.1, linestyle="None", capsize=2)
    axes.errorbar([1, 2], [5, 6], 0.1, capsize=2, color="#0072b2")
    curve, bars = panel(axes)["series"]
    assert (bars["name"], bars["x"], bars["y"]) == ("experts", [1, 2], [3, 4])
    assert (curve["line"], curve["y"]) == (True, [5, 6])


def test_bars_with_names_on_their_axis_are_a_series_each(axes):
    for place, length in enumerate((3, 5)):
        axes.barh(place, length - 1, 0.7, 1)
    axes.set_yticks([0, 1], ["FedAvg", "FedEM"])
    found = [(bar["name"], bar["x"], bar["y"]) for bar in panel(axes)["series"]]
    assert found == [("FedAvg", [3], [0]), ("FedEM", [5], [1])]


def test_a_matrix_has_a_value_for_each_row_and_column_and_its_scale_is_no_panel(axes):
    image = axes.imshow([[1, 2], [3, float("nan")]])
    axes.figure.colorbar(image)
    (matrix,) = panel(axes)["series"]
    assert list(zip(matrix["y"], matrix["x"], matrix["value"], strict=True)) == [
        (0, 0, 1), (0, 1, 2), (1, 0, 3), (1, 1, None)
    ]  # fmt: skip


def test_dots_are_where_they_are(axes):
    axes.scatter([1, 2], [3, 4], label="class 0")
    (dots,) = panel(axes)["series"]
    assert (dots["name"], dots["line"], dots["x"], dots["y"]) == ("class 0", False, [1, 2], [3, 4])


def test_a_matrix_of_very_many_cells_is_a_picture_alone(axes):
    axes.imshow(np.zeros((100, 100)))
    assert len(panel(axes)["series"][0]["value"]) == 10_000
    axes.images[0].remove()
    axes.imshow(np.zeros((100, 101)))
    assert panel(axes)["series"] == []
