"""Tables: their numbers, their text, and the notes that keep them honest."""

import io
from dataclasses import replace
from types import SimpleNamespace

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report import choices, printed
from fedlib.report.metrics import runs
from fedlib.report.metrics.definitions import PRIMARY
from fedlib.report.metrics.runs import COLUMNS
from fedlib.report.tables import render, tuning
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.spec import worlds
from fedlib.workflow.provenance import ROOT

PUBLISHED = ROOT / "fedlib/papers/pfedmm/published.csv"


def main_metrics(seeds=2) -> pd.DataFrame:
    """FedAvg and pFedMM on EMNIST, with round numbers."""
    rows = [
        {
            **{"paper": "pfedmm", "federation": "emnist", "dataset": "emnist", "partition": "p"},
            **{"label": label, "method": label, "metric": metric, "at": at, "seed": seed},
            **{"protocol": "default", "split": "test", "group": "seen", "of": "", "index": ""},
            **{"round": 30 if at == "last" else 20 + seed, "value": base - drop + rise + spread},
        }
        for label, base in (("fedavg", 0.70), ("pfedmm", 0.80))
        for metric, drop in (("accuracy", 0.0), ("bottom10", 0.2))
        for at, rise in (("last", 0.0), ("best", 0.04))
        for seed, spread in enumerate([0.0, 0.02, 0.04][:seeds], start=1)
    ]
    return pd.DataFrame(rows)[list(COLUMNS)]


def build(exhibit, tidy, clients=None, kind="accuracy", **params) -> Sheet:
    return made_up.build(kind, exhibit, tidy, clients, printed.read(PUBLISHED), **params)


def main_exhibit(**changes) -> dict:
    return made_up.exhibit(["fedavg", "pfedmm"], ["emnist"], published="main", **changes)


@pytest.mark.parametrize(
    ("seeds", "cell", "note"),
    [
        (1, "**80.0**", "1 seed (1): one run each, so no interval can be given"),
        (2, "**81.0 (80.0 to 82.0)**", "the mean (smallest to largest seed)"),
        # Seeds 0.80, 0.82, 0.84: t(0.975, 2) = 4.30265 times 0.02 / sqrt(3) is 0.0497.
        (3, "**82.0 ± 5.0**", "95 % interval (Student's t)"),
    ],
)
def test_a_mean_has_the_spread_that_so_many_seeds_can_give(seeds, cell, note):
    exhibit = main_exhibit(seeds=list(range(1, seeds + 1)))
    text = render.to_markdown(build(exhibit, main_metrics(seeds)))
    assert cell in text and note in text
    assert ("±" in text, "Student" in text) == (seeds == 3, seeds == 3)
    gain = {"mean": 0.012, "low": 0.01, "high": 0.014, "ci95": 0.003, "seeds": 3}
    assert render.with_spread(gain, "ci95", render.points) == "+1.2 ± 0.3"
    of_two_seeds = gain | {"ci95": np.nan}  # the third has no such number
    assert render.with_spread(of_two_seeds, "ci95", render.points) == "+1.2 (+1.0 to +1.4)"


def test_a_number_published_for_another_data_set_is_not_shown():
    exhibit = main_exhibit()
    exhibit["federations"][0]["dataset"] = "qmnist"
    sheet = build(exhibit, main_metrics())
    assert sheet.numbers["published"].isna().all() and sheet.numbers["difference"].isna().all()
    text = render.to_markdown(sheet)
    assert "- The paper prints none of these numbers." in text
    assert "All: last" in text and "All: published" not in text
    assert "Difference:" not in text and "Bold: highest of the column." in sheet.notes
    assert "Difference: repr" in render.to_markdown(build(main_exhibit(), main_metrics()))


def test_a_missing_run_is_named():
    with pytest.raises(DataError, match="needs the run emnist/pfedmm with seed 2"):
        tidy = main_metrics()
        build(main_exhibit(), tidy[(tidy["label"] != "pfedmm") | (tidy["seed"] == 1)])


def sheet(text: str) -> Sheet:
    columns = [Column("Method"), Column("last", "All"), Column("best", "All")]
    rows = [[Cell(text), Cell("84.2 ± 0.3", True), Cell("–")], [*map(Cell, ("B", "1.0", "2.0"))]]
    block = Block("A & B", columns, rows)
    numbers = pd.DataFrame({"a": [0.1, np.nan]})
    return Sheet("p-main", "Title_1", "100 % of α", [block], ["a | b"], numbers)


def test_latex_is_escaped():
    text = render.to_latex(sheet(r"50% & #1_{x}~^\$ <α ≤ −1>"))
    assert (
        r"50\% \& \#1\_\{x\}\textasciitilde{}\textasciicircum{}\textbackslash{}\$ "
        r"\textless{}$\alpha$ $\leq$ $-$1\textgreater{}"
    ) in text
    assert r"\textbf{84.2 $\pm$ 0.3} & -- \\" in text
    assert r"\multicolumn{1}{c}{} & \multicolumn{2}{c}{All} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\caption{\textbf{Title\_1.} 100 \% of $\alpha$}" in text
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert text.isascii()


def test_markdown_is_escaped():
    text = render.to_markdown(sheet("a|b *c* d_e _f_ <g>"))
    assert r"a\|b \*c\* d_e \_f\_ \<g>" in text
    assert "- a \\| b" in text


def test_csv_has_an_empty_field_for_what_does_not_exist():
    assert render.to_csv(sheet("x")) == 'a\n0.1\n""\n'
    again = pd.read_csv(io.StringIO(render.to_csv(build(main_exhibit(), main_metrics()))))
    assert again["published"].tolist() == [0.812, 0.692, 0.842, 0.766]


def test_no_text_of_a_csv_is_a_formula_to_a_spreadsheet():
    formulas = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+ Sync", "-2+3", " =1"]
    texts = [*formulas, "-0.5", "FedAvg+", "+1.1, -2"]
    numbers = pd.DataFrame({"=title": texts, "value": [-0.5] * 8, "is": [True] * 8})
    found = pd.read_csv(io.StringIO(render.to_csv(replace(sheet("x"), numbers=numbers))))
    assert [*found.columns] == ["'=title", "value", "is"]
    assert [*found["'=title"]] == [f"'{text}" for text in formulas] + texts[5:]
    assert found["value"].tolist() == [-0.5] * 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("exhibit,dataset\n", "must have the columns"),
        (
            "{head}main,emnist,a,accuracy,64.0,permille,x\n",
            "main/emnist/a/accuracy must be .* 'permille'",
        ),
        ("{head}main,emnist,a,accuracy,n/a,percent,x\n", "as a number with the unit .*'n/a'"),
        ("{head}" + 2 * "main,emnist,a,accuracy,64.0,percent,x\n", "must be given once"),
    ],
)
def test_a_wrong_file_of_published_numbers_is_refused(tmp_path, text, complaint):
    file = tmp_path / "x.csv"
    file.write_text(text.replace("{head}", ",".join(printed.COLUMNS) + "\n"))
    with pytest.raises(DataError, match=complaint):
        printed.read(file)


def test_a_client_without_validation_examples_picks_the_first_run():
    where = ("f", "seen", "default")
    rows = [(1, client, label, 10) for client in (0, 1) for label in ("a", "b")]
    scores = pd.DataFrame(rows, columns=["seed", "client", "label", "count"])
    given = SimpleNamespace(
        scores={
            (*where, "val"): scores.assign(accuracy=[0.5, 0.7, np.nan, np.nan]),
            (*where, "test"): scores.assign(accuracy=[0.1, 0.2, 0.3, 0.4]),
        }
    )
    choice = choices.Choice(SimpleNamespace(name="f"), {"pick": True}, ["a", "b"])
    assert choices.of_clients(given, choice)["accuracy"].tolist() == [0.2, 0.3]


def test_a_client_without_test_examples_is_in_no_share_of_clients():
    exhibit = made_up.exhibit(["local", "fedavg"], ["emnist"], seeds=[1])
    number = np.arange(-1, 19)  # the first of twenty clients has none

    def make(run, seed):
        worse = 0.4 * (number < 9) if run["label"] == "fedavg" else 0
        scores = made_up.scores(np.maximum(0.5 + number / 100 - worse, 0), 100 * (number >= 0))
        history = made_up.result({PRIMARY: scores}, [1])
        return history, made_up.evaluation(history)

    rows = [{"title": x, "labels": [x]} for x in ("local", "fedavg")]
    pick = {"title": "Pick", "labels": ["local", "fedavg"], "pick": True}
    tables = made_up.collect(exhibit, make)
    sheet = made_up.build("standings", exhibit, *tables, rows=[*rows, pick], alone="local")
    found = sheet.numbers[:2]
    assert found["worst_tenth"].tolist() == pytest.approx([0.5, 0.1])  # of nineteen, one
    assert found["hurt"].tolist() == pytest.approx([0, 9 / 19])
    assert any(note.endswith("where clients pick, of both runs.") for note in sheet.notes)


def test_best_of_several_needs_all_of_them():
    pick = {"title": "Best of the two", "labels": ["a", "b"], "pick": True}
    rows = [{"title": x, "labels": [x]} for x in "ab"] + [pick]
    runs = {x: SimpleNamespace(label=x, federation="f") for x in "ab"}
    assert worlds.rows_left(rows, [*runs.values()]) == rows
    assert worlds.rows_left(rows, [runs["b"]]) == [rows[1]]
    exhibit = SimpleNamespace(federations=[SimpleNamespace(name="f")], runs=[runs["b"]])
    found = choices.choices(SimpleNamespace(exhibit=exhibit), rows)
    assert [choice.labels for choice in found] == [["b"]]


def test_a_run_with_a_tuning_for_each_seed_has_a_row_for_each():
    columns = ["seed", "index", "metric", "of", "round", "value"]
    rows = [
        (seed, *row)
        for seed, best in ((1, 0), (2, 1))
        for row in (
            *(("", name, "", 0, value) for name, value in (("trial", best), ("at_edge", 0))),
            *((str(trial), "accuracy", "", 3, 0.5 + (trial == best)) for trial in (0, 1)),
        )
    ]
    found = list(tuning._of_run(None, pd.DataFrame(rows, columns=columns)))
    assert [row["trial"] for row in found] == [0, 1] and [row["trials"] for row in found] == [2, 2]
    assert [row["default"] for row in found] == [1.5, 0.5]


def test_a_tuned_word_is_told_and_only_none_is_a_default(tmp_path):
    spec = {"seed": 1, "rounds": 2}
    values = {"local.lr": 0.1, "params.gate": "mlp", "params.scale": None}
    tuned = {"spec": spec, "trials": [{"accuracy": {"2": 0.5}}], "chosen": 0, "values": values}
    seals.write_json(tmp_path / "trials.json", tuned | {"at_edge": []})
    names = dict.fromkeys(("federation", "dataset", "partition", "label", "method"), "a")
    rows = runs.of_tuning("pfedmm", names, seals.spec_digest(spec), tmp_path / "trials.json")
    [found] = tuning._of_run(None, rows)
    assert found["values"] == "lr = 0.1, gate = mlp, scale = default" and found["trials"] == 1
