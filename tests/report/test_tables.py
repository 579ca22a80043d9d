"""Tables: their numbers, their text, and the notes that keep them honest."""

import io
from dataclasses import replace

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib.errors import DataError
from fedlib.report import exhibits, metrics, notes, printed
from fedlib.report.tables import render, sheets
from fedlib.report.tables.render import Block, Cell, Column, Sheet
from fedlib.workflow.provenance import ROOT

PUBLISHED = ROOT / "fedlib/papers/pfedmm/published.csv"


def frame(values: dict, group="seen", protocol="default") -> pd.DataFrame:
    """Metrics rows from {(federation, label, metric, at): values by seed}."""
    rows = [
        {
            **dict(zip(("federation", "label", "metric", "at"), key, strict=True)),
            **{"paper": "pfedmm", "dataset": key[0], "partition": "p", "method": key[1]},
            **{"seed": seed, "round": 30 if key[3] == "last" else 20 + seed, "value": value},
            **{"protocol": protocol, "split": "test", "group": group},
        }
        for key, by_seed in values.items()
        for seed, value in enumerate(by_seed, start=1)
    ]
    return pd.DataFrame(rows)[list(metrics.COLUMNS)]


def main_metrics(seeds=2) -> pd.DataFrame:
    """FedAvg and pFedMM on EMNIST, with round numbers."""
    values = {}
    for label, base in (("fedavg", 0.70), ("pfedmm", 0.80)):
        for metric, drop in (("accuracy", 0.0), ("bottom10", 0.2)):
            spread = [0.0, 0.02, 0.04][:seeds]
            values["emnist", label, metric, "last"] = [base - drop + s for s in spread]
            values["emnist", label, metric, "best"] = [base - drop + 0.04 + s for s in spread]
    return frame(values)


def build(exhibit, tidy, clients=None, kind="accuracy", **params) -> Sheet:
    return made_up.build(kind, exhibit, tidy, clients, printed.read(PUBLISHED), **params)


def main_exhibit(**changes) -> dict:
    changes = {"published": "main", "federations": ["emnist"], **changes}
    federations = changes.pop("federations")
    return made_up.exhibit(["fedavg", "pfedmm"], federations, **changes)


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


def test_a_table_names_the_learning_rates_of_methods_that_differ_in_them():
    exhibit = main_exhibit()
    fedavg, pfedmm = exhibit["runs"]
    fedavg, other = (run | {"local": {"lr": lr}} for run, lr in ((fedavg, 0.01), (pfedmm, 0.03)))

    def told(*runs: dict) -> bool:
        notes = build(exhibit | {"runs": [*runs]}, main_metrics()).notes
        return "Learning rates on EMNIST: 0.01 (FedAvg); 0.03 (pFedMM)." in notes

    assert told(fedavg, other)
    assert not told(fedavg, other | {"local": fedavg["local"]})
    assert not told(fedavg, other | {"tuning": {"trials": 12}})


def test_a_table_says_what_its_seeds_differ_in():
    exhibit = main_exhibit()
    for data, drawn in ((False, "they share the partition into clients and"), (True, "")):
        federations = [{**f, "per_seed": data} for f in exhibit["federations"]]
        text = render.to_markdown(build({**exhibit, "federations": federations}, main_metrics()))
        assert drawn in text
        assert ("Seeds differ in partition, initial parameters and order" in text) == data
    runs = [{**run, "participation": {"rate": 0.5}} for run in exhibit["runs"]]
    text = render.to_markdown(build({**exhibit, "runs": runs}, main_metrics()))
    assert "Seeds differ in initial parameters, cohorts and order of the batches" in text
    assert "they share the partition into clients." in text
    alone = render.to_markdown(build(main_exhibit(seeds=[1]), main_metrics(seeds=1)))
    assert "Seeds differ" not in alone


def test_a_number_published_for_another_data_set_is_not_shown():
    exhibit = main_exhibit()
    exhibit["federations"][0]["dataset"] = "qmnist"
    sheet = build(exhibit, main_metrics())
    assert sheet.numbers["published"].isna().all() and sheet.numbers["difference"].isna().all()
    text = render.to_markdown(sheet)
    assert "- The paper prints none of these numbers." in text
    assert "All: last" in text and "All: published" not in text


def test_runs_without_a_published_number_are_listed_where_others_have_one():
    labels = ["fedavg", "pfedmm", "fedem-m5"]
    exhibit = made_up.exhibit(labels, ["emnist"], seeds=[1], published="main")
    one = main_metrics(seeds=1)
    tidy = pd.concat([one, one[one["label"] == "pfedmm"].assign(label="fedem-m5")])
    text = render.to_markdown(build(exhibit, tidy))
    assert "- No published number: FedEM, M = 5 on EMNIST." in text
    row = next(line for line in text.splitlines() if line.startswith("| FedEM, M = 5"))
    assert [cell.strip() for cell in row.split("|")][2] == "–"
    assert "No published number" not in render.to_markdown(build(main_exhibit(), main_metrics()))
    exhibit["federations"][0]["dataset"] = "qmnist"
    text = render.to_markdown(build(exhibit, tidy))
    assert "No published number" not in text and "prints none of these" in text


def test_a_missing_run_is_named():
    with pytest.raises(DataError, match="needs the run emnist/pfedmm with seed 2"):
        tidy = main_metrics()
        build(main_exhibit(), tidy[(tidy["label"] != "pfedmm") | (tidy["seed"] == 1)])


METHODS = ["fedavg", "pfedmm"]


def alpha_exhibit(*values: float) -> dict:
    return made_up.heterogeneity(METHODS, made_up.alphas("emnist", *values))


def test_what_holds_for_a_family_is_said_once():
    exhibit = alpha_exhibit(0.1, 10)
    for federation, rounds in zip(exhibit["federations"], (30, 40), strict=True):
        federation["notes"] = ["EMNIST: half of the images"]
        for run in exhibit["runs"]:
            if run["federation"] == federation["name"]:
                run["rounds"] = rounds
    spec = made_up.read(exhibit)
    assert notes.of_data(spec) == ["EMNIST: half of the images."]
    assert notes.rounds(spec) == "Communication rounds: 30 to 40."
    exhibit["federations"][1]["notes"] = ["one client is empty"]
    assert notes.of_data(made_up.read(exhibit)) == [
        *("EMNIST, alpha = 0.1: half of the images.", "EMNIST, alpha = 10: one client is empty.")
    ]


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


def test_a_column_with_nothing_in_any_row_is_not_shown():
    columns = [Column("Method"), Column("published", "All"), Column("last", "All"), Column("Δ")]
    rows = [[Cell("A"), Cell("–"), Cell("1.0"), Cell("–")], [Cell("B")] + [Cell("–")] * 3]
    sheet = Sheet("x", "T", "", [Block("", columns, rows)], [], pd.DataFrame())
    head, _, first, second = render.to_markdown(sheet).splitlines()[2:]
    assert [line.split() for line in (head, first, second)] == [
        *(["|", "Method", "|", "All:", "last", "|"], ["|", "A", "|", "1.0", "|"]),
        ["|", "B", "|", "–", "|"],
    ]
    assert "published" not in render.to_latex(sheet)
    assert sheet.blocks[0].columns == columns  # the data stay as they are
    nothing = Sheet("x", "T", "", [Block("", columns, rows[1:])], [], pd.DataFrame())
    assert "All: published" in render.to_markdown(nothing)


def test_markdown_is_escaped():
    text = render.to_markdown(sheet("a|b *c* d_e _f_ <g>"))
    assert r"a\|b \*c\* d_e \_f\_ \<g>" in text
    assert "- a \\| b" in text


def test_csv_has_an_empty_field_for_what_does_not_exist():
    assert render.to_csv(sheet("x")) == 'a\n0.1\n""\n'
    again = pd.read_csv(io.StringIO(render.to_csv(build(main_exhibit(), main_metrics()))))
    assert again["published"].tolist() == [0.812, 0.692, 0.842, 0.766]


def test_no_text_of_a_csv_is_a_formula_to_a_spreadsheet():
    texts = [
        "=cmd|' /C calc'!A0",
        "@SUM(A1)",
        "+ Sync",
        "-2+3",
        " =1",
        "-0.5",
        "FedAvg+",
        "+1.1, -2",
    ]
    numbers = pd.DataFrame({"=title": texts, "value": [-0.5] * 8, "is": [True] * 8})
    found = pd.read_csv(io.StringIO(render.to_csv(replace(sheet("x"), numbers=numbers))))
    assert [*found.columns] == ["'=title", "value", "is"]
    assert [*found["'=title"]] == [f"'{text}" for text in texts[:5]] + texts[5:]
    assert found["value"].tolist() == [-0.5] * 8


def test_settings_that_are_the_same_in_all_rows_of_a_wide_table_become_a_note():
    heads = [Column(title) for title in ("Method", "Clients", "Seeds", "verdict", "a", "b")]
    heads.append(Column("published", "Rounds"))
    rows = [["A", "10", seeds, "unknown", "1", "1", "2000"] for seeds in ("1", "2")]
    block = Block("", heads, [[*map(Cell, row)] for row in rows])
    [kept], note = sheets.without_constants([block])
    assert [head.title for head in kept.columns] == ["Method", "Seeds", "verdict", "a", "b"]
    assert [cell.text for cell in kept.rows[1]] == ["A", "2", "unknown", "1", "1"]
    assert note == "In all rows: Clients 10, Rounds: published 2000."
    for few in (block.only([True] * 5 + [False] * 2), replace(block, rows=block.rows[:1])):
        assert sheets.without_constants([few]) == ([few], "")


def test_best_of_a_column_is_bold_with_its_ties_as_shown():
    cells = render.best_cells([0.84149, 0.84151, 0.8412, float("nan")], list("abcd"))
    assert [cell.bold for cell in cells] == [False, True, False, False]
    assert [cell.bold for cell in render.best_cells([0.8411, 0.8409], ["a", "b"])] == [True, True]
    assert not render.best_cells([0.5], ["alone"])[0].bold


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("exhibit,dataset\n", "must have the columns"),
        ("{head}main,emnist,a,accuracy,64.0,permille,x\n", "unknown unit 'permille'"),
        ("{head}main,emnist,a,accuracy,n/a,percent,x\n", "must be a number"),
        ("{head}" + 2 * "main,emnist,a,accuracy,64.0,percent,x\n", "given twice"),
    ],
)
def test_a_wrong_file_of_published_numbers_is_refused(tmp_path, text, complaint):
    file = tmp_path / "x.csv"
    file.write_text(text.replace("{head}", ",".join(printed.COLUMNS) + "\n"))
    with pytest.raises(DataError, match=complaint):
        printed.read(file)


def test_a_method_is_called_as_all_of_its_runs_are():
    assert exhibits.method_title("local", ["Standalone"] * 2) == "Standalone"
    assert exhibits.method_title("pfedmm", ["pFedMM (M=1)", "pFedMM (M=3)"]) == "pFedMM"


def test_the_pfedmoe_of_pfedmm_is_looked_up_as_gated_experts():
    # Its file has the printed name, which is that of another method here.
    rows = PUBLISHED.read_text().splitlines()
    assert any(row.startswith("main,emnist,pfedmoe,accuracy,82.8,") for row in rows)
    found = printed.fractions(printed.read(PUBLISHED), "main")
    assert found["emnist", "gated-experts"] == 0.828
    assert not any(label == "pfedmoe" for _, label in found)
    assert exhibits.method_title("gated_experts") == "MoE (pFedMM's)"


def paired_clients(accuracies: dict, clients=8, group="seen") -> pd.DataFrame:
    """Rows of clients with 20 examples each, from {(label, protocol): accuracy of each}."""
    return pd.concat(
        pd.DataFrame(
            {
                **{"paper": "pfedmm", "federation": "emnist", "dataset": "emnist", "seed": 1},
                **{"label": label, "method": label, "at": "last", "protocol": protocol},
                **{"split": "test", "group": group, "client": range(clients), "count": 20},
                **{"correct": np.multiply(values, 20), "accuracy": values},
            }
        )
        for (label, protocol), values in accuracies.items()
    )


def test_all_examples_are_shown_apart_where_clients_have_unlike_many():
    ways = {("fedavg", "default"): np.linspace(0.2, 0.9, 8), ("pfedmm", "default"): np.full(8, 0.5)}
    rows = paired_clients(ways)
    times = 1 + rows["client"]
    rows["correct"], rows["count"] = rows["correct"] * times, 20 * times
    exhibit = main_exhibit(seeds=(1,))
    found = build(exhibit, main_metrics(1), rows, "paired_differences", of="pfedmm").blocks
    assert [x.heading for x in found] == ["EMNIST: mean of clients", "EMNIST: all examples"]
    # The sums of c (0.2 + 0.1 (c - 1)) and of c over c = 1, ..., 8 are 24 and 36.
    assert [x.rows[0][1].text[:4] for x in found] == ["55.0", "66.7"]


def test_a_difference_that_one_of_many_rows_would_have_by_chance_is_not_bold():
    rng = np.random.default_rng(0)
    others = [f"fedem-m{number}" for number in range(2, 12)]
    best = rng.uniform(0.5, 0.9, 8)
    # Each differs by 0.05 with a deviation that gives p = 0.02 alone, and ten rows are compared.
    noise = np.array([1, -1, 1, -1, 1, -1, 1, -1]) * 0.045
    accuracies = {(label, "default"): best - 0.05 + noise for label in others}
    rows = paired_clients(accuracies | {("pfedmm", "default"): best})
    exhibit = made_up.exhibit([*others, "pfedmm"], ["emnist"], (1,))
    found = build(exhibit, main_metrics(1), rows, "paired_differences", of="pfedmm")
    p = found.numbers["p"].dropna()
    assert p.between(0.01, 0.05).all()
    assert not any(cell.bold for row in found.blocks[0].rows for cell in row)


def test_ways_to_predict_are_compared_with_the_first_and_a_run_without_one_is_left_out():
    ways = {("pfedmm", "default"): 0.8, ("pfedmm", "carry"): 0.7, ("fedavg", "default"): 0.6}
    rows = paired_clients({key: np.full(8, value) for key, value in ways.items()})
    exhibit = main_exhibit(seeds=(1,))
    shown = [{"name": "carry"}, {"name": "default", "title": "Plain"}]
    kind = {"kind": "paired_differences", "of": "pfedmm", "protocols": shown}
    block = build(exhibit, main_metrics(1), rows, **kind).blocks[0]
    cells = [[cell.text for cell in row[:4]] for row in block.rows]
    assert [row[:2] for row in cells] == [
        ["FedAvg", "Plain"],
        ["pFedMM", "carry"],
        ["pFedMM", "Plain"],
    ]
    assert [row[3][:5] for row in cells] == ["+10.0", "–", "−10.0"]


def test_methods_whose_clients_test_nothing_are_not_compared():
    rows = paired_clients({("fedavg", "default"): np.full(8, 0.5)})
    rows = pd.concat([rows, paired_clients({("pfedmm", "default"): np.full(8, 0.5)}, group="x")])
    with pytest.raises(DataError, match="emnist has no run of pFedMM"):
        build(main_exhibit(seeds=(1,)), main_metrics(1), rows, "paired_differences", of="pfedmm")
