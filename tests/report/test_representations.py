"""Experts' representations of the same examples: recorded vectors, reduced and drawn."""

from dataclasses import replace

import made_up
import numpy as np
import pytest
from matplotlib.collections import PathCollection

from fedlib.report import embeddings
from fedlib.report.figures import representations
from fedlib.report.metrics.runs import join_names
from fedlib.report.metrics.tidy import client_rows, run_rows
from fedlib.results import CLIENT_COLUMNS, RunResult


def history(diagnostics) -> RunResult:
    found = made_up.run("fedavg", "fedavg", 1, seen=2, unseen=0)["history"]
    return replace(found, diagnostics=diagnostics)


def draw(kinds, **of):
    exhibit = made_up.exhibit(["fedavg"], ["emnist"], seeds=[1])
    frames = made_up.collect(exhibit, lambda run, seed: (history(recorded(**of)),))
    return made_up.draw("representations", exhibit, *frames, None, kinds=kinds)


def recorded(clients=2, examples=6, features=24, other=1) -> dict:
    """Three kinds of vectors, of the classes 0 and `other`; client 1 has but four examples."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(examples) % 2, (clients, 1)).astype(float)
    vectors = rng.normal(0, 0.1, (clients, examples, 3, features)) + labels[..., None, None]
    vectors[1, 4:], labels[1, 4:] = np.nan, np.nan
    return {"representations": vectors, "representation_labels": other * labels}


def test_components_and_labels_come_back_from_the_metrics_whose_export_names_them():
    rows = run_rows(history(recorded()))
    points = embeddings.of_metrics(rows)
    assert points.vectors.shape == (6 + 4, 3, embeddings.COMPONENTS)
    assert points.client.tolist() == [0] * 6 + [1] * 4
    assert points.label.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    theirs = rows[rows["metric"] == "representation"]
    assert {"representation_1_3_2_15", "representation_label_1_3"} < {*join_names(theirs)["metric"]}
    assert set(theirs["at"]) == {"last"} and set(theirs["round"]) == {30}


def test_components_keep_the_distances_of_vectors_that_span_few_dimensions():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 50))
    short = embeddings.leading(vectors)

    def distances(x):
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    assert distances(short) == pytest.approx(distances(vectors), abs=1e-9)  # rounding


def test_labels_of_representations_are_no_columns_of_clients():
    assert {*client_rows(history(recorded()))} <= {*CLIENT_COLUMNS}


@pytest.mark.slow
def test_every_kind_of_vector_has_a_panel_with_all_examples():
    figure = draw(["r_G", "r_F", "r"])
    assert [axes.get_title() for axes in figure.axes] == ["r_G", "r_F", "r"]
    for axes in figure.axes:
        dots = [c for c in axes.collections if isinstance(c, PathCollection)]
        assert sum(len(c.get_offsets()) for c in dots) == 6 + 4
        assert len(dots) == 4  # two clients with two classes each


def test_classes_have_colours_of_their_own_whatever_their_numbers(monkeypatch):
    monkeypatch.setattr(representations, "embed", lambda x: np.zeros((*x.shape[:2], 2)))
    figure = draw(["r_G", "r_F", "r"], other=10)
    dots = figure.axes[0].collections
    assert len({tuple(one.get_facecolor()[0]) for one in dots}) == 2
    [legend] = figure.legends
    assert [x.get_text() for x in legend.get_texts()][:2] == ["class 0", "class 10"]
    assert representations._handles([*range(11)], [])[0].get_label() == "class 0, 10"
