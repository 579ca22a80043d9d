"""Exhibits of Fed-MoE: a global model on the server's examples, and what a mixture wrote down."""

from dataclasses import replace

import made_up
import numpy as np
import pandas as pd
import pytest
from made_up import texts

from fedlib.errors import ConfigError
from fedlib.report import metrics, printed
from fedlib.report.tables import render
from fedlib.results import RunResult, View
from fedlib.workflow.provenance import ROOT

PUBLISHED = printed.read(ROOT / "fedlib/papers/fedmoe/published.csv")
SERVER = View("server", "default", "test")
LAST = View("server", "last", "test")  # of methods that choose a state
ROUNDS = np.array([0, 10, 20])
CURVES = {"fedavg": (0.1, 0.5, 0.4), "avg-moe": (0.1, 0.5, 0.6), "fedmoe": (0.1, 0.7, 0.8)}
METHODS = {"fedavg": "fedavg", "avg-moe": "moe_fedavg", "fedmoe": "fedmoe"}
LOGGED = np.array([1, 20])


def federation(number=50, dataset="cifar10", **changes) -> dict:
    about = {"dataset": dataset, "family": dataset, "seed": 42}
    about |= {"partition": {"kind": "server_equal", "num_clients": number}}
    return made_up.federation(f"{dataset}-m{number}", f"{dataset}, M = {number}", **about) | changes


HERE = (federation(),)


def shown(labels=tuple(CURVES), where=HERE, seeds=(0, 1), **changes) -> dict:
    params = {"alpha": 0.9, "alpha_lr_scale": 0.005, "server": {"lr": 1e-4}}
    runs = made_up.runs(labels, where, 20, METHODS, params)
    about = {"paper": "fedmoe", "federations": list(where), "runs": runs, "scale": "demo"}
    return made_up.exhibit([], (), seeds, **{**about, **changes})


def history(label, seed=0, shift=0.0) -> RunResult:
    """Seed 1 is 0.02 above seed 0; a round has 5 clients, who send 100 numbers each and get 50."""
    accuracy = np.array(CURVES[label])[:, None] + 0.02 * seed + shift
    written = {
        "tables": np.full((2, 10, 2), 0.5),
        "table_rounds": LOGGED,
        "table_alphas": np.array([0.8, 0.5 + 0.1 * seed]),
        "selected": np.array([10.0 + 5 * seed, 0.3, 1.0]),
    }
    scores = replace(made_up.scores(accuracy, [1000]), clients=np.array([4]))
    cost = {metrics.FLOPS: np.array([5e6]), metrics.PARAMETERS: np.array([52_596_095.0])}
    return made_up.result(
        dict.fromkeys((SERVER, SERVER._replace(split="val")), scores),
        ROUNDS,
        bytes_up=5 * 4 * 100 * ROUNDS,
        client_rounds=5 * ROUNDS,
        diagnostics=cost | (written if label == "fedmoe" else {}),
    )


def collect(exhibit, shifts=None) -> tuple[pd.DataFrame, pd.DataFrame]:
    def make(run, seed):
        found = history(run["label"], seed, (shifts or {}).get(run["federation"], 0.0))
        final = made_up.evaluation(found)
        if run["label"] == "fedmoe":  # whose last state is 0.05 below the chosen one
            chosen = final.scores[SERVER]
            final.scores[LAST] = replace(chosen, correct=chosen.correct - 50)
        return found, final

    return made_up.collect(exhibit, make)


def build(kind, exhibit, frames=None, **params):
    return made_up.build(kind, exhibit, *(frames or collect(exhibit)), PUBLISHED, **params)


def draw(kind, exhibit, frames=None, **params):
    return made_up.draw(kind, exhibit, *(frames or collect(exhibit)), PUBLISHED, **params)


# Accuracy of a global model

COLUMNS = [{"federation": "cifar10-m50", "title": "M = 50", "published": "table2-m50"}]


def test_without_validation_examples_the_last_state_stands_alone():
    tidy, clients = collect(exhibit := shown(("fedavg",)))
    frames = tidy[tidy["at"] != "chosen"], clients
    sheet = build("global_accuracy", exhibit, frames, columns=COLUMNS)
    assert texts(sheet.blocks[0]) == [["FEDAVG", "28.37", "41.0 (40.0 to 42.0)", "+12.6"]]


def test_what_is_known_of_the_last_round_alone_is_of_the_chosen_state_where_a_method_chose():
    tidy, clients = collect(exhibit := shown(("fedavg", "fedmoe")))
    f1 = tidy[(tidy["metric"] == "accuracy") & (tidy["at"] == "last")].assign(metric="macro_f1")
    columns = [COLUMNS[0] | {"metric": "macro_f1"}]
    sheet = build("global_accuracy", exhibit, (pd.concat([tidy, f1]), clients), columns=columns)
    assert texts(sheet.blocks[0]) == [
        ["FEDAVG", "41.0 (40.0 to 42.0)", render.ABSENT],
        ["FEDMOE", "76.0 (75.0 to 77.0)", "81.0 (80.0 to 82.0)"],
    ]


def test_a_gain_is_the_difference_of_two_federations():
    where = (federation(), federation(51, name="skewed"))
    exhibit = shown(("fedmoe",), where)
    gain = {"federation": "cifar10-m50", "minus": "skewed", "title": "Gain"}
    frames = collect(exhibit, {"skewed": -0.03})
    sheet = build("global_accuracy", exhibit, frames, columns=[gain])
    # It is the same in both states, which then are in one column.
    assert texts(sheet.blocks[0]) == [["FEDMOE", "+3.0 (+3.0 to +3.0)"]]
    assert [head.title for head in sheet.blocks[0].columns[1:]] == ["Gain"]
    one = shown(("fedmoe",), where, seeds=(0,))
    columns = [gain, {**gain, "metric": "loss", "title": "Loss"}]
    numbers = build("global_accuracy", one, collect(one), columns=columns).numbers
    assert numbers["mean"].notna().all() and numbers["std"].isna().all()  # each seed counts once


def test_protocols_of_one_training_have_rows_and_published_numbers_of_their_own():
    tidy, clients = collect(exhibit := shown(("fedmoe",), published="table6"))
    ends = tidy[(tidy["at"] == "last") & (tidy["metric"] == "accuracy")]
    server = ends[(ends["protocol"] == "default") & (ends["split"] == "test")]
    more = [
        server.assign(protocol=name, value=server["value"] + shift)
        for name, shift in (("top_2", 0.02), ("last_top_2", -0.1))
    ]
    rows = [{"label": "fedmoe", "title": "1", "printed": "fedmoe-top-1"}]
    rows += [{"label": "fedmoe", "title": "2", "printed": "fedmoe-top-2", "protocol": "top_2"}]
    frames = pd.concat([tidy, *more]), clients
    fields = {"columns": [COLUMNS[0] | {"published": "table6"}], "rows": rows}
    sheet = made_up.build("global_accuracy", exhibit, *frames, PUBLISHED, **fields)
    assert texts(sheet.blocks[0]) == [
        ["1", "65.52", "76.0 (75.0 to 77.0)", "81.0 (80.0 to 82.0)", "+15.5"],
        ["2", "65.50", "71.0 (70.0 to 72.0)", "83.0 (82.0 to 84.0)", "+17.5"],
    ]
    theirs = PUBLISHED.loc[sheet.numbers[printed.ROW]]
    assert theirs["label"].tolist() == ["fedmoe-top-1", "fedmoe-top-2"]


def test_a_run_can_stand_in_columns_of_federations_with_the_same_data():
    where = (federation(), federation(100))
    exhibit = shown(("fedavg",), where, published="table2")
    exhibit["runs"] = [run for run in exhibit["runs"] if run["federation"] == "cifar10-m50"]
    columns = [*COLUMNS, {"federation": "cifar10-m100", "title": "M = 100"}]
    for elsewhere, expected in (({}, ["–"]), ({"cifar10-m100": "cifar10-m50"}, ["41.0", "51.0"])):
        rows = [{"label": "fedavg", "elsewhere": elsewhere}]
        sheet = build("global_accuracy", exhibit, collect(exhibit), columns=columns, rows=rows)
        [row] = texts(sheet.blocks[0])
        assert [text.partition(" ")[0] for text in row[5:]] == expected


def test_runs_without_a_row_such_as_a_users_come_last():
    exhibit = shown()
    sheet = build(
        "global_accuracy", exhibit, collect(exhibit), columns=COLUMNS, rows=[{"label": "fedmoe"}]
    )
    assert [row[0] for row in texts(sheet.blocks[0])] == ["FEDMOE", "FEDAVG", "AVG-MOE"]


def test_an_average_stands_beside_the_published_one_of_the_same_columns():
    theirs = PUBLISHED.assign(
        value=PUBLISHED["value"].where(PUBLISHED["exhibit"] != "table2-average", 65.52)
    )
    frames = collect(exhibit := shown(("fedmoe",), published="table2"))
    fields = {"columns": COLUMNS, "average": "table2-average"}
    sheet = made_up.build("global_accuracy", exhibit, *frames, theirs, **fields)
    # Of one column, whose number is 65.52.
    assert texts(sheet.blocks[-1]) == [["FEDMOE", "65.52", "76.0", "81.0", "+15.5"]]


def test_a_column_or_row_of_another_form_is_refused():
    with pytest.raises(ConfigError, match="each of columns has federation and title"):
        build("global_accuracy", shown(), columns=[{"title": "M"}])
    with pytest.raises(ConfigError, match="metric of the column 'M' must be accuracy or"):
        build("global_accuracy", shown(), columns=[COLUMNS[0] | {"title": "M", "metric": "bytes"}])
    with pytest.raises(ConfigError, match="each of rows has label"):
        build("global_accuracy", shown(), columns=COLUMNS, rows=[{"title": "A"}])


# Accuracy over rounds


def test_without_a_choice_there_is_no_star():
    figure = draw("accuracy_over_rounds", shown(("fedavg",)), group="server", chosen=True)
    assert "Star" not in figure.get_supxlabel()
    with pytest.raises(ConfigError, match="group must be seen or unseen or server, got 'probe'"):
        draw("accuracy_over_rounds", shown(("fedavg",)), group="probe")


# What an even reserved set gains

PAIR = (federation(dataset="yelp", name="uneven"), federation(dataset="yelp", name="even"))
GAINS = {
    "pairs": [{"below": "uneven", "above": "even"}],
    "bars": [
        {"metric": "accuracy", "title": "Accuracy"},
        {"metric": "macro_f1", "title": "F1", "printed": "f1"},
    ],
    "names": ["60 % of one class", "even classes"],
    "gains": "figure4-gain",
}


def with_f1(frames) -> tuple[pd.DataFrame, pd.DataFrame]:
    """With an F1 that is a tenth below the accuracy, as its rows say it."""
    tidy, clients = frames
    accuracy = tidy[tidy["metric"] == "accuracy"]
    f1 = accuracy.assign(metric="macro_f1", value=accuracy["value"] - 0.1)
    return pd.concat([tidy, f1], ignore_index=True), clients


def gains(labels=("fedmoe", "avg-moe"), **changes):
    exhibit = shown(labels, PAIR, published="figure4-skewed", **changes)
    return draw("gain_bars", exhibit, with_f1(collect(exhibit, {"uneven": -0.05})), **GAINS)


def test_bars_stand_on_the_uneven_set_and_outlines_on_the_even_one():
    (axes,) = gains().axes
    heights = [bar.get_height() for bar in axes.patches]
    # 0.8 and 0.82 of fedmoe, 0.6 and 0.62 of avg-moe; 0.05 less where uneven; F1 0.1 below.
    assert heights == pytest.approx([0.76, 0.66, 0.81, 0.71, 0.56, 0.46, 0.61, 0.51])
    assert [text.get_text() for text in axes.texts] == ["+5.0"] * 4
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Accuracy", "F1"]


def test_a_pair_that_was_not_run_is_left_out_and_a_wrong_one_refused():
    more = [*GAINS["pairs"], {"below": "cifar10-m50", "above": "even"}]
    exhibit = shown(("fedmoe",), PAIR)
    frames = with_f1(collect(exhibit))
    assert len(draw("gain_bars", exhibit, frames, **GAINS | {"pairs": more}).axes) == 1
    for wrong, message in (
        ({"pairs": [{"below": "even"}]}, "each of pairs has below and above"),
        ({"bars": [{"metric": "accuracy"}]}, "each of bars has metric and title"),
        ({"bars": [{"metric": "bytes", "title": "B"}]}, "metric of a bar must be accuracy or"),
        ({"names": ["one"]}, "names are of what is below and above, got"),
    ):
        with pytest.raises(ConfigError, match=message):
            draw("gain_bars", exhibit, frames, **GAINS | wrong)
