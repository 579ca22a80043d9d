"""Exhibits of Fed-MoE: a global model on the server's examples, and what a mixture wrote down."""

from dataclasses import replace

import made_up
import numpy as np
import pandas as pd
from made_up import texts

from fedlib.report import printed
from fedlib.report.tables import render
from fedlib.results import RunResult, View
from fedlib.workflow.provenance import ROOT

PUBLISHED = printed.read(ROOT / "fedlib/papers/fedmoe/published.csv")
SERVER = View("server", "default", "test")
LAST = View("server", "last", "test")  # of methods that choose a state
ROUNDS = np.array([0, 10, 20])
CURVES = {"fedavg": (0.1, 0.5, 0.4), "avg-moe": (0.1, 0.5, 0.6), "fedmoe": (0.1, 0.7, 0.8)}


def federation(number=50, dataset="cifar10", **changes) -> dict:
    about = {"dataset": dataset, "family": dataset, "seed": 42}
    about |= {"partition": {"kind": "server_equal", "num_clients": number}}
    return made_up.federation(f"{dataset}-m{number}", f"{dataset}, M = {number}", **about) | changes


HERE = (federation(),)


def shown(labels=tuple(CURVES), where=HERE, seeds=(0, 1), **changes) -> dict:
    runs = made_up.runs(labels, where, 20)
    about = {"paper": "fedmoe", "federations": list(where), "runs": runs, "scale": "demo"}
    return made_up.exhibit([], (), seeds, **{**about, **changes})


def history(label, seed=0) -> RunResult:
    """Seed 1 is 0.02 above seed 0; Fed-MoE chooses a state."""
    accuracy = np.array(CURVES[label])[:, None] + 0.02 * seed
    scores = replace(made_up.scores(accuracy, [1000]), clients=np.array([4]))
    chosen = {"selected": np.array([10.0 + 5 * seed, 0.3, 1.0])} if label == "fedmoe" else {}
    views = dict.fromkeys((SERVER, SERVER._replace(split="val")), scores)
    return made_up.result(views, ROUNDS, diagnostics=chosen)


def collect(exhibit) -> tuple[pd.DataFrame, pd.DataFrame]:
    def make(run, seed):
        found = history(run["label"], seed)
        final = made_up.evaluation(found)
        if run["label"] == "fedmoe":  # whose last state is 0.05 below the chosen one
            chosen = final.scores[SERVER]
            final.scores[LAST] = replace(chosen, correct=chosen.correct - 50)
        return found, final

    return made_up.collect(exhibit, make)


def build(kind, exhibit, frames=None, **params):
    return made_up.build(kind, exhibit, *(frames or collect(exhibit)), PUBLISHED, **params)


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


def test_a_run_can_stand_in_columns_of_federations_with_the_same_data():
    exhibit = shown(("fedavg",), (federation(), federation(100)), published="table2")
    exhibit["runs"] = [run for run in exhibit["runs"] if run["federation"] == "cifar10-m50"]
    columns = [*COLUMNS, {"federation": "cifar10-m100", "title": "M = 100"}]
    for elsewhere, expected in (({}, ["–"]), ({"cifar10-m100": "cifar10-m50"}, ["41.0", "51.0"])):
        rows = [{"label": "fedavg", "elsewhere": elsewhere}]
        sheet = build("global_accuracy", exhibit, collect(exhibit), columns=columns, rows=rows)
        [row] = texts(sheet.blocks[0])
        assert [text.partition(" ")[0] for text in row[5:]] == expected


def test_an_average_stands_beside_the_published_one_of_the_same_columns():
    theirs = PUBLISHED.assign(
        value=PUBLISHED["value"].where(PUBLISHED["exhibit"] != "table2-average", 65.52)
    )
    frames = collect(exhibit := shown(("fedmoe",), published="table2"))
    fields = {"columns": COLUMNS, "average": "table2-average"}
    sheet = made_up.build("global_accuracy", exhibit, *frames, theirs, **fields)
    # Of one column, whose number is 65.52.
    assert texts(sheet.blocks[-1]) == [["FEDMOE", "65.52", "76.0", "81.0", "+15.5"]]
