"""Two folders of results as one table."""

import math
import re
from dataclasses import replace
from pathlib import Path

import made_up
import pandas as pd
import pytest
from scipy.stats import t

from fedlib import seals
from fedlib.cli import arguments, compare
from fedlib.errors import ConfigError, DataError
from fedlib.report import metrics
from fedlib.report.pages import compared, folders
from fedlib.report.tables import render
from fedlib.workflow.layout import PATHS

ROOT = Path(__file__).resolve().parents[1]
ASKED, MADE = "What was asked for", "Code and machine"


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


def save_clients(root, name, accuracies, count=(10, 20, 30, 40, 50), seeds=(0,)):
    """Clients of the run toy/mnist/fedem in results/NAME, with the same accuracies every seed."""
    counts = {"count": count, "correct": [a * n for a, n in zip(accuracies, count, strict=True)]}
    view = {"at": "last", "protocol": "default", "split": "test", "group": "seen"}
    run = {"paper": "toy", "federation": "mnist", "dataset": "mnist", "label": "fedem"}
    one = pd.DataFrame({"client": range(len(count)), **counts, "accuracy": accuracies, "loss": 1.0})
    one = one.assign(**run, **view, method="fedem")
    rows = pd.concat([one.assign(seed=seed) for seed in seeds])
    metrics.write(rows, root / "results" / name / "metrics/toy.clients.parquet")


def save_runs(root, name, labels=("fedavg", "fedem"), seeds=(1,), spec=None, made=None, data=None):
    """results/NAME with made-up runs, whose specification and provenance have these too."""
    exhibit = made_up.exhibit(labels, ["emnist"], seeds)
    more = {"local": {"lr": 0.1, "solver": "sgd"}} | (spec or {})
    runs = root / "results" / name / "runs/pfedmm"
    for described in exhibit["runs"]:
        for seed in seeds:
            results = made_up.run(described["label"], described["method"], seed)
            for file, result in results.items():
                result = replace(
                    result,
                    spec=result.spec | more,
                    provenance=result.provenance | {"code": "c", "clean": True} | (made or {}),
                )
                result.save(runs / f"emnist/{described['label']}/seed{seed}/{file}.h5")
    tidy, _ = metrics.collect(made_up.metrics_spec(exhibit, more), runs)
    (root / "results" / name / "metrics").mkdir()
    metrics.write(tidy, root / "results" / name / "metrics/pfedmm.parquet")
    for replicate, cut in (data or {"": {"partition": {"num_clients": 20}}}).items():
        wildcards = {"paper": "pfedmm", "federation": "emnist", "replicate": replicate}
        file = root / PATHS["manifest"].format(folder=name, **wildcards)
        file.parent.mkdir(parents=True, exist_ok=True)
        seals.write_json(file, {"spec": cut})


def sheet(root, *words):
    return compared.sheet(folders.read(root, "a", PATHS), folders.read(root, "b", PATHS), words)


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


def test_the_same_clients_are_compared_one_by_one_beside_the_spread_over_seeds(tmp_path):
    names = ("accuracy", "accuracy_client_mean", "bottom10")
    for folder, value in (("a", 0.5), ("b", 0.6)):
        save_metrics(tmp_path, folder, {("fedem", m, n): value for m in names for n in (0, 1)})
    first, change = [0.2, 0.4, 0.5, 0.6, 0.8], [0.08, 0.12, 0.10, 0.09, 0.11]
    save_clients(tmp_path, "a", first, seeds=(0, 1))
    save_clients(tmp_path, "b", [a + d for a, d in zip(first, change, strict=True)], seeds=(0, 1))
    width = t.ppf(0.975, 4) * math.sqrt(0.00025 / 5)  # the changes have variance 0.001 / 4
    cells = texts(sheet(tmp_path), "toy")
    over = {row[2]: row[6] for row in cells}
    low, high = (f"{100 * (0.1 + s * width):.2f}" for s in (-1, 1))
    assert over["accuracy_client_mean, %"] == f"[+{low}, +{high}], p < 0.001"
    assert over["accuracy, %"].startswith("[+") and over["bottom10, %"] == render.ABSENT
    assert cells[0][5] == "+10.00 (+10.00 to +10.00)"  # over seeds
    row = sheet(tmp_path).numbers.set_index("metric").loc["accuracy_client_mean"]
    assert (row["clients_high"], row["num_clients"]) == pytest.approx((0.1 + width, 5))


def test_other_clients_are_not_compared_one_by_one(tmp_path):
    for folder, count in (("a", (10, 20, 30, 40, 50)), ("b", (20, 10, 30, 40, 50))):
        save_metrics(tmp_path, folder, {("fedem", "accuracy", 0): count[0] / 100})
        save_clients(tmp_path, folder, [0.1, 0.2, 0.3, 0.4, 0.5], count)
    [block] = [b.filled() for b in sheet(tmp_path).blocks if b.heading == "toy"]
    assert "[over clients]" not in [column.title for column in block.columns]


def test_two_common_seeds_have_a_range_and_the_others_do_not_count(tmp_path):
    a = {("fedem", "bytes", seed): 1000.0 for seed in (0, 1, 7)}
    b = {("fedem", "bytes", seed): 2000.0 + 500 * seed for seed in (0, 1, 8)}
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", b)
    found = sheet(tmp_path)
    [[*_, one, two, difference, seeds]] = texts(found, "toy")
    assert one == "1,000 (1,000 to 1,000)" and two == "2,250 (2,000 to 2,500)"
    assert difference == "+1,250 (+1,000 to +1,500)" and seeds == "2"
    alone = ["Seed 7 only in a: toy/mnist/fedem.", "Seed 8 only in b: toy/mnist/fedem."]
    assert found.notes[-2:] == alone


def test_a_run_without_a_common_seed_is_only_named(tmp_path):
    both, one = {("local", "loss", 1): 1.0}, ("fedem", "loss")
    save_metrics(tmp_path, "a", both | {(*one, seed): 0.1 for seed in (1, 2)})
    save_metrics(tmp_path, "b", both | {(*one, 4): 0.1})
    found = sheet(tmp_path)
    assert list(found.numbers["label"]) == ["local"]
    assert found.notes[-2:] == [
        "Seeds 1, 2 only in a: toy/mnist/fedem.",
        "Seed 4 only in b: toy/mnist/fedem.",
    ]


def test_what_is_in_one_alone_is_named_and_a_metric_of_one_alone_has_no_difference(tmp_path):
    a = {("fedem", "loss", 0): 1.0, ("fedem", "auc", 0): 0.7, ("local", "loss", 0): 1.0}
    b = {("fedem", "loss", 0): 1.5, ("fedavg", "loss", 0): 1.0}
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", b)
    found = sheet(tmp_path)
    assert "Only in a: toy/mnist/local." in found.notes
    assert "Only in b: toy/mnist/fedavg." in found.notes
    loss, auc = texts(found, "toy")
    assert loss[3:] == ["1", "1.5", "+0.5", "1"]
    assert auc[3:] == ["70.00", render.ABSENT, render.ABSENT, render.ABSENT]


def test_equal_numbers_and_those_of_single_experts_are_in_the_csv_alone(tmp_path):
    a = {
        ("fedem", metric, 0): 1.0 for metric in ("loss", "bytes", "picks_0", "picks_1", "macro_f1")
    }
    save_metrics(tmp_path, "a", a)
    save_metrics(tmp_path, "b", a | {("fedem", "loss", 0): 2.0, ("fedem", "picks_0", 0): 2.0})
    found = sheet(tmp_path)
    assert [row[2] for row in texts(found, "toy")] == ["loss"]
    assert "2 numbers are the same in both and not shown." in found.notes
    csv_alone = "2 numbers of one expert, client or cell are in the csv alone; 1 of them differ."
    assert csv_alone in found.notes
    assert list(found.numbers["metric"]) == ["loss", "bytes", "picks_0", "picks_1", "macro_f1"]


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


def test_what_differs_in_the_specification_is_said_with_both_values_and_the_runs(tmp_path):
    save_runs(tmp_path, "a", data={"": {"partition": {"num_clients": 20}}})
    save_runs(
        *(tmp_path, "b"),
        spec={"local": {"lr": 0.3, "solver": "sgd"}, "weights": "w"},
        data={"": {"partition": {"num_clients": 50}}},
    )
    assert texts(sheet(tmp_path), ASKED) == [
        ["local.lr", "0.1", "0.3", "all"],
        ["data.partition.num_clients", "20", "50", "all"],
        ["weights", render.ABSENT, "w", "all"],
    ]


def test_runs_are_named_of_which_only_some_differ(tmp_path):
    save_runs(tmp_path, "a", seeds=(1, 2))
    save_runs(tmp_path, "b", seeds=(1, 2))
    file = tmp_path / "results/b/runs/pfedmm/emnist/fedem/seed2/history.h5"
    file.unlink()
    result = made_up.run("fedem", "fedem", 2)["history"]
    spec = {"method": "fedem", "seed": 2, "local": {"lr": 0.5, "solver": "sgd"}}
    replace(result, spec=spec, provenance={"code": "other"} | {"clean": True}).save(file)
    found = sheet(tmp_path)
    assert texts(found, ASKED) == [["local.lr", "0.1", "0.5", "pfedmm/emnist/fedem"]]
    assert ["code of training", "one", "another", "pfedmm/emnist/fedem"] in texts(found, MADE)
    assert "code of evaluation" not in [row[0] for row in texts(found, MADE)]


def test_code_and_commit_are_told_apart(tmp_path):
    save_runs(tmp_path, "a", made={"commit": "1a", "clean": True})
    save_runs(tmp_path, "b", made={"commit": "2b", "clean": False})
    found = sheet(tmp_path)
    assert texts(found, MADE) == [
        ["commit", "1a", "2b", "all"],
        ["working tree as committed", "yes", "no", "all"],
    ]
    same = ["What was asked for is the same: specification and data of 2 runs in both."]
    same += ["The code is the same: no digest of training or evaluation differs in 2 runs in both."]
    assert found.notes[:2] == same and not texts(found, "pfedmm") and not texts(found, ASKED)


def test_shards_that_differ_are_told_even_where_they_are_deleted(tmp_path):
    save_runs(tmp_path, "a", made={"manifest_sha256": "1"})
    save_runs(tmp_path, "b", made={"manifest_sha256": "2"})
    assert texts(sheet(tmp_path), ASKED) == [["shards", "one", "another", "all"]]
    (tmp_path / "results/b/shards/pfedmm/emnist.json").unlink()
    assert texts(sheet(tmp_path), ASKED) == [["shards", "one", "another", "all"]]


def test_of_runs_whose_history_is_gone_nothing_is_claimed(tmp_path):
    save_runs(tmp_path, "a", labels=("fedem",))
    save_runs(tmp_path, "b", labels=("fedem",), made={"code": "other"})
    (tmp_path / "results/a/runs/pfedmm/emnist/fedem/seed1/history.h5").unlink()
    found = sheet(tmp_path)
    assert not texts(found, MADE) and not any("is the same" in note for note in found.notes)
    assert "Specification and code are not kept, so not compared: pfedmm/emnist/fedem." in (
        found.notes
    )


@pytest.mark.parametrize("name", ["demo-lr3", "", "..", "a/metrics"])
def test_a_folder_that_does_not_exist_is_refused_with_those_there_are(tmp_path, name):
    with pytest.raises(ConfigError, match=f"no results named '{name}'; .* there are none yet$"):
        folders.read(tmp_path, name, PATHS)
    save_metrics(tmp_path, "a", {("fedem", "loss", 0): 1.0})
    save_metrics(tmp_path, "b", {("fedem", "loss", 0): 1.0})
    with pytest.raises(ConfigError, match=f"no results named '{name}'; in results/ .* a, b$"):
        folders.read(tmp_path, name, PATHS)


def test_a_folder_without_metrics_is_refused(tmp_path):
    (tmp_path / "results/a/runs").mkdir(parents=True)
    with pytest.raises(DataError, match="results/a has no metrics yet; the workflow makes them"):
        folders.read(tmp_path, "a", PATHS)


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
