"""Two folders of results as one table."""

import math
import re

import pandas as pd
import pytest
from scipy.stats import t

from fedlib.cli import arguments, compare
from fedlib.errors import ConfigError, DataError
from fedlib.report import metrics
from fedlib.report.pages import compared
from fedlib.report.tables import render


def save_metrics(root, name, values, at="last"):
    """results/NAME with these values by (label, metric, seed), of one view of one federation."""
    rows = [
        {
            **{"paper": "toy", "federation": "mnist", "dataset": "mnist", "partition": "iid"},
            **{"label": label, "method": label, "seed": seed, "at": at, "round": 5},
            **{"protocol": "default", "split": "test", "group": "seen"},
            **{"metric": metric, "value": value},
        }
        for (label, metric, seed), value in values.items()
    ]
    folder = root / "results" / name / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)[list(metrics.COLUMNS)]
    metrics.write(frame, folder / f"toy{len([*folder.iterdir()])}.parquet")


def sheet(root, *words):
    return compared.sheet(*(compared.read(root / "results", name) for name in "ab"), words)


def texts(found, heading):
    """The cells of the block of that heading as text; none without such a block."""
    blocks = [block.filled() for block in found.blocks if block.heading == heading]
    return [[cell.text for cell in row] for block in blocks for row in block.rows]


def test_a_difference_is_taken_seed_by_seed_with_its_interval(tmp_path):
    # Far apart between seeds, near within each: only pairs tell that the second is better.
    first, change = [0.2, 0.5, 0.8], [0.03, 0.01, 0.02]
    save_metrics(tmp_path, "a", {("fedem", "accuracy", n): first[n] for n in range(3)})
    save_metrics(tmp_path, "b", {("fedem", "accuracy", n): first[n] + change[n] for n in range(3)})
    [row] = sheet(tmp_path).numbers.to_dict("records")
    width = t.ppf(0.975, 2) * 0.01 / math.sqrt(3)  # the changes deviate by 0.01
    assert row["difference_mean"] == pytest.approx(0.02)
    assert row["difference_std"] == pytest.approx(0.01)
    assert row["difference_ci95"] == pytest.approx(width)
    assert (row["a_mean"], row["b_mean"]) == pytest.approx((0.5, 0.52))
    [block] = [block for block in sheet(tmp_path).blocks if block.heading == "toy"]
    [[run, of, metric, _, _, difference, seeds]] = block.filled().rows
    assert (run.text, of.text, metric.text) == ("mnist/fedem", "seen default test", "accuracy, %")
    assert difference.text == f"+2.00 ± {100 * width:.2f}" and seeds.text == "3"
    assert not difference.bold and width > 0.02


def test_a_difference_whose_interval_leaves_out_zero_is_bold(tmp_path):
    changes = {"loss": [-0.20, -0.21, -0.19], "accuracy": [0.2, -0.2, 0.1]}
    names = [(metric, seed) for metric in changes for seed in range(3)]
    save_metrics(tmp_path, "a", {("fedem", *name): 0.5 for name in names})
    save_metrics(tmp_path, "b", {("fedem", m, n): 0.5 + changes[m][n] for m, n in names})
    [block] = [block for block in sheet(tmp_path).blocks if block.heading == "toy"]
    assert [row[5].bold for row in block.rows] == [True, False]
    width = t.ppf(0.975, 2) * 0.01 / math.sqrt(3)
    assert block.rows[0][5].text == f"−0.2 ± {width:.4g}"


def test_two_common_seeds_have_a_range_and_the_others_do_not_count(tmp_path):
    a = {("fedem", "bytes", seed): 1000.0 for seed in (0, 1, 7)}
    b = {("fedem", "bytes", seed): 2000.0 + 500 * seed for seed in (0, 1, 8)}
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", b)
    found = sheet(tmp_path)
    [[*_, one, two, difference, seeds]] = texts(found, "toy")
    assert one == "1,000 (1,000 to 1,000)" and two == "2,250 (2,000 to 2,500)"
    assert difference == "+1,250 (+1,000 to +1,500)" and seeds == "2"
    alone = ["Only in a: toy/mnist/fedem (seeds 7).", "Only in b: toy/mnist/fedem (seeds 8)."]
    assert found.notes[-2:] == alone


def test_a_run_without_a_common_seed_is_only_named(tmp_path):
    both, one = {("local", "loss", 1): 1.0}, ("fedem", "loss")
    save_metrics(tmp_path, "a", both | {(*one, seed): 0.1 for seed in (1, 2)})
    save_metrics(tmp_path, "b", both | {(*one, 4): 0.1})
    found = sheet(tmp_path)
    assert list(found.numbers["label"]) == ["local"]
    assert found.notes[-2:] == [
        "Only in a: toy/mnist/fedem (seeds 1, 2).",
        "Only in b: toy/mnist/fedem (seeds 4).",
    ]


def test_what_is_in_one_alone_is_named_and_a_metric_of_one_alone_has_no_difference(tmp_path):
    a = {("fedem", "loss", 0): 1.0, ("fedem", "auc", 0): 0.7, ("local", "loss", 0): 1.0}
    b = {("fedem", "loss", 0): 1.5, ("fedavg", "loss", 0): 1.0}
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", b)
    found = sheet(tmp_path)
    assert "Only in a: toy/mnist/local (seeds 0)." in found.notes
    assert "Only in b: toy/mnist/fedavg (seeds 0)." in found.notes
    loss, auc = texts(found, "toy")
    assert loss[3:] == ["1", "1.5", "+0.5", "1"]
    assert auc[3:] == ["70.00", render.ABSENT, render.ABSENT, render.ABSENT]


def test_equal_numbers_and_those_of_single_experts_are_in_the_csv_alone(tmp_path):
    a = {
        ("fedem", metric, 0): 1.0
        for metric in ("loss", "bytes", "divergence_0", "divergence_1", "macro_f1")
    }
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", a | {("fedem", "loss", 0): 2.0, ("fedem", "divergence_0", 0): 2.0})
    found = sheet(tmp_path)
    assert [row[2] for row in texts(found, "toy")] == ["loss"]
    assert "2 numbers are the same in both and not shown." in found.notes
    csv_alone = "2 numbers of one expert, client or cell are in the csv alone; 1 of them differ."
    assert csv_alone in found.notes
    assert list(found.numbers["metric"]) == [
        "loss",
        "bytes",
        "divergence_0",
        "divergence_1",
        "macro_f1",
    ]


def test_only_the_last_evaluation_counts(tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        save_metrics(tmp_path, name, {("fedem", "loss", 0): value})
        save_metrics(tmp_path, name, {("fedem", "loss", 0): 9.0}, at="best")
    [row] = sheet(tmp_path).numbers.to_dict("records")
    assert (row["a_mean"], row["b_mean"]) == (1, 2)


def test_words_narrow_the_rows_that_are_shown_and_not_the_numbers(tmp_path):
    keys = [(label, metric, 0) for label in ("fedem", "local") for metric in ("loss", "bytes")]
    save_metrics(tmp_path, "a", dict.fromkeys(keys, 1.0))
    save_metrics(tmp_path, "b", dict.fromkeys(keys, 2.0))
    found = sheet(tmp_path, "FedEM", "loss")
    assert [(row[0], row[2]) for row in texts(found, "toy")] == [("mnist/fedem", "loss")]
    assert len(found.numbers) == 4 and not texts(sheet(tmp_path, "nothing"), "toy")


@pytest.mark.parametrize("name", ["demo-lr3", "", "..", "a/metrics"])
def test_a_folder_that_does_not_exist_is_refused_with_those_there_are(tmp_path, name):
    with pytest.raises(ConfigError, match=f"no results named '{name}'; .* there are none yet$"):
        compared.read(tmp_path / "results", name)
    save_metrics(tmp_path, "a", {("fedem", "loss", 0): 1.0})
    save_metrics(tmp_path, "b", {("fedem", "loss", 0): 1.0})
    with pytest.raises(ConfigError, match=f"no results named '{name}'; in results/ .* a, b$"):
        compared.read(tmp_path / "results", name)


def test_a_folder_without_metrics_is_refused(tmp_path):
    (tmp_path / "results/a/runs").mkdir(parents=True)
    with pytest.raises(DataError, match="results/a has no metrics yet; the workflow makes them"):
        compared.read(tmp_path / "results", "a")


def test_folders_with_nothing_in_common_are_refused(tmp_path):
    save_metrics(tmp_path, "a", {("fedem", "loss", 0): 1.0, ("fedavg", "loss", 0): 1.0})
    save_metrics(tmp_path, "b", {("fedem", "loss", 1): 1.0})
    with pytest.raises(DataError, match=re.escape(
        "results/a and results/b have no run and seed in common: the one has "
        "toy/mnist/fedem (seeds 0) and 1 more, the other toy/mnist/fedem (seeds 1)"
    )):  # fmt: skip
        sheet(tmp_path)


def test_the_command_prints_what_differs_and_writes_all_numbers(tmp_path, monkeypatch, capsys):
    for name, value in (("demo", 0.5), ("demo-x", 0.6)):
        save_metrics(tmp_path, name, {("fedem", "loss", 0): value, ("fedem", "bytes", 0): 1.0})

    monkeypatch.chdir(tmp_path)
    compare.main(arguments.read(["compare", "results/demo/", "demo-x"]))
    said = capsys.readouterr().out
    assert "| mnist/fedem | seen default test | loss" in said
    assert said.endswith("All numbers: results/compare-demo-demo-x.csv\n")
    numbers = pd.read_csv(tmp_path / "results/compare-demo-demo-x.csv")
    assert list(numbers["difference_mean"]) == [pytest.approx(0.1), 0]
    with pytest.raises(ConfigError, match="^A and B must be two folders of results, got 'demo' tw"):
        compare.main(arguments.read(["compare", "demo", "results/demo"]))
