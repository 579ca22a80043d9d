"""Regret: the distance from the best possible accuracy, by method and world."""

from dataclasses import replace

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib.report import metrics
from fedlib.results import OPTIMUM, View
from fedlib.spec.worlds import rows_left

# By federation and run: regret and validation accuracy of each of two seeds.
NUMBERS = {
    ("one", "fedavg"): ([0.02, 0.04], [0.7, 0.8]),
    ("one", "local"): ([0.2, 0.1], [0.5, 0.5]),
    ("own", "fedavg"): ([0.3, 0.3], [0.5, 0.5]),
    ("own", "local"): ([0.05, 0.05], [0.5, 0.5]),
}
ROWS = (
    {"title": "FedAvg", "labels": ["fedavg"], "home": ["one"]},
    {"title": "Local", "labels": ["local"], "home": ["own"]},
)
SIZES = {"one": (8, 0.0), "own": (64, 1.0)}


def federation(name):
    params = dict(zip(("train_examples", "divergence"), SIZES[name], strict=True))
    return made_up.federation(name, name, dataset="worlds", params=params)


def drawn(kind, numbers=NUMBERS, clients=None, rows=ROWS, **fields):
    """The figure of these numbers."""
    where = [federation(name) for name in SIZES]
    runs = made_up.runs(("fedavg", "local"), where, 1)
    exhibit = made_up.exhibit([], (), paper="benchmark", federations=where, runs=runs)
    about = {"paper": "benchmark", "at": "last", "round": 1, "group": "seen", "protocol": "default"}
    tidy = [
        {**about, "federation": name, "label": label, "seed": seed, **number}
        for (name, label), (found, validation) in numbers.items()
        for seed, regret, accuracy in zip((1, 2), found, validation, strict=True)
        for number in (
            {"split": "test", "metric": "regret", "value": regret},
            {"split": "val", "metric": "accuracy", "value": accuracy},
        )
        if number["value"] is not None
    ]
    return made_up.draw(kind, exhibit, pd.DataFrame(tidy), clients, None, rows=rows, **fields)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_client_may_pick_the_run_of_its_best_validation_accuracy():
    # Two clients and seeds. FedAvg is better for client 0, Local for client 1.
    accuracies = {"fedavg": [0.9, 0.5], "local": [0.8, 0.7]}
    about = {"paper": "benchmark", "at": "last", "group": "seen", "protocol": "default"}
    clients = pd.DataFrame(
        {**about, "federation": name, "label": label, "seed": seed, "client": client}
        | {"split": split, "accuracy": accuracy - 0.1 * (split == "test"), OPTIMUM: 0.95}
        for name, label in NUMBERS
        for seed in (1, 2)
        for client, accuracy in enumerate(accuracies[label])
        for split in ("val", "test")
    )
    pick = {"title": "Pick", "labels": [*accuracies], "home": [], "pick": True}
    axes = drawn("regret", clients=clients, rows=(*ROWS, pick)).axes[0]
    assert texts(axes)[4:] == ["25.0", "25.0"]  # 0.8 and 0.6 of 0.95


PHASE = {
    "x": "params.train_examples",
    "y": "params.divergence",
    "names": ("n", "divergence"),
    "theory": {"0": 32, "1": 16},
    "law": "theory",
}


def test_a_line_of_theory_with_one_end_is_neither_drawn_nor_in_the_legend():
    figures = [drawn("phase_diagram", **PHASE | x) for x in ({}, {"theory": {"1": 16}})]
    names = [[text.get_text() for text in x.legends[0].get_texts()] for x in figures]
    assert ["theory" in found for found in names] == [True, False]
    assert not figures[1].axes[0].get_lines()


def test_a_row_keeps_the_runs_that_are_left():
    pick = {"title": "Pick", "labels": ["fedavg", "local"], "home": [], "pick": True}
    left = rows_left((*ROWS, pick), [type("Run", (), {"label": "fedavg"})])
    assert left == [ROWS[0], {**pick, "labels": ["fedavg"]}]


def test_regret_is_the_optimum_less_the_mean_of_the_clients():
    scores = replace(made_up.scores([0.5, 0.6], [10, 20]), clients=np.array([1, 2]))
    optimum = {OPTIMUM: np.array([0.9, 0.8, 0.7])}
    result = made_up.result({View("seen", "default", "test"): scores}, [3], diagnostics=optimum)
    rows = metrics.run_rows(result)
    [regret] = rows[(rows["metric"] == "regret") & (rows["at"] == "last")]["value"]
    assert regret == pytest.approx(((0.8 - 0.5) + (0.7 - 0.6)) / 2)
