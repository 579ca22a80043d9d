"""Tables: their numbers, their text, and the notes that keep them honest."""

import io
import json
from dataclasses import replace
from pathlib import Path

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib import papers
from fedlib.errors import ConfigError, DataError
from fedlib.report import exhibits, metrics, printed, tables
from fedlib.report.tables import render
from fedlib.report.tables.render import Block, Cell, Column, Sheet

ROOT = Path(__file__).resolve().parents[1]
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
    return tables.load(kind)(exhibit, tidy, clients, printed.read(PUBLISHED), **params)


def main_exhibit(**changes) -> dict:
    changes = {"published": "main", "federations": ["emnist"], **changes}
    federations = changes.pop("federations")
    return made_up.exhibit(["fedavg", "pfedmm"], federations, **changes)


def test_main_table_has_published_last_best_and_their_difference():
    numbers = build(main_exhibit(), main_metrics()).numbers
    row = numbers[(numbers["label"] == "pfedmm") & (numbers["metric"] == "accuracy")].iloc[0]
    assert row["published"] == pytest.approx(0.842)
    assert row["mean"] == pytest.approx(0.81)
    assert row["std"] == pytest.approx(0.02 / np.sqrt(2))
    assert (row["low"], row["high"]) == pytest.approx((0.80, 0.82)) and np.isnan(row["ci95"])
    assert row["seeds"] == 2
    assert row["best_mean"] == pytest.approx(0.85)
    assert row["best_round_mean"] == pytest.approx((21 + 22) / 2)
    assert row["difference"] == pytest.approx(0.85 - 0.842)
    assert row["scale"] == "demo"


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


@pytest.mark.parametrize("note", ["", "set: emnist.fraction = 0.7"])
def test_at_full_scale_nothing_excuses_a_difference(note):
    text = render.to_markdown(build(main_exhibit(scale="full", folder_note=note), main_metrics()))
    assert "no test of the paper" not in text
    assert "- Published numbers are the paper's own." in text
    assert ("settings, except those named after the scale." in text) == bool(note)


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
    assert "- The paper prints no such numbers." in text
    assert "All: last" in text and "All: published" not in text


def test_scale_full_does_not_say_how_many_seeds_are_shown_as_fewer_may_be_selected():
    for name in papers.names():
        assert "seed" not in papers.load(name).declare("full").scale_note


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
    assert "No published number" not in text and "prints no such numbers" in text


def test_a_federation_without_any_published_number_is_named_beside_one_that_has_some():
    exhibit = main_exhibit(federations=["emnist", "cifar10"])
    exhibit["federations"][1]["dataset"] = "digits"
    tidy = pd.concat([main_metrics(), main_metrics().assign(federation="cifar10")])
    text = render.to_markdown(build(exhibit, tidy))
    assert "- No published number: all methods on CIFAR-10." in text


def test_a_missing_run_is_named():
    with pytest.raises(DataError, match="needs the run emnist/pfedmm with seed 2"):
        tidy = main_metrics()
        build(main_exhibit(), tidy[(tidy["label"] != "pfedmm") | (tidy["seed"] == 1)])


def test_clients_are_counted_seed_by_seed_where_seeds_differ_in_who_is_unseen():
    # Of four clients, seed 1 has two unseen ones, seed 2 others, of which one has no examples.
    exhibit = made_up.exhibit(["fedem"], ["emnist"])
    where = ("accuracy", "last")
    seen = frame({("emnist", "fedem", *where): [0.5, 0.6]})
    unseen = frame({("emnist", "fedem", *where): [0.7, 0.7]}, "unseen", "default")
    groups = [*["seen", "seen", "unseen", "unseen"], *["unseen", "unseen", "seen", "seen"]]
    clients = pd.DataFrame(
        {
            **{"paper": "pfedmm", "federation": "emnist", "split": "test", "label": "fedem"},
            **{"seed": [1] * 4 + [2] * 4, "client": [0, 1, 2, 3] * 2, "group": groups},
            "count": [5, 5, 5, 5, 5, 0, 5, 5],
        }
    )
    sheet = build(exhibit, pd.concat([seen, unseen]), clients, kind="unseen")
    told = "Clients with test examples: 2 seen and 1 to 2 unseen on EMNIST."
    assert told in render.to_markdown(sheet)


def test_unseen_table_has_a_row_per_protocol_and_na_without_a_default():
    exhibit = made_up.exhibit(["local", "fedem"], ["emnist"])
    where = ("accuracy", "last")
    seen = frame({("emnist", name, *where): [0.5, 0.6] for name in ("local", "fedem")})
    trained = frame({("emnist", "local", *where): [0.4, 0.4]}, "unseen", "trained")
    default = frame({("emnist", "fedem", *where): [0.7, 0.7]}, "unseen", "default")
    carry = frame({("emnist", "fedem", *where): [0.5, 0.5]}, "unseen", "carry")
    tidy = pd.concat([seen, carry, trained, default])
    clients = pd.DataFrame(
        {
            **{"paper": "pfedmm", "federation": "emnist", "split": "test", "seed": [1, 1, 2] * 2},
            **{"label": ["local"] * 3 + ["fedem"] * 3, "client": [0, 1, 2] * 2},
            **{"group": ["seen", "seen", "unseen"] * 2, "count": [3, 0, 5] * 2},
        }
    )
    sheet = build(exhibit, tidy, clients, kind="unseen")
    keys = list(zip(sheet.numbers["label"], sheet.numbers["protocol"], strict=True))
    assert keys == [
        *(("local", "default"), ("local", "trained")),
        *(("fedem", "default"), ("fedem", "carry")),
    ]
    assert sheet.numbers["gap"].round(8).tolist()[1:] == [-0.15, 0.15, -0.05]
    text = render.to_markdown(sheet)
    first = next(line for line in text.splitlines() if line.startswith("| Local"))
    assert [cell.strip() for cell in first.split("|")][4:7] == ["N/A", "N/A", "N/A"]
    assert "| the method's own |" in first and "default" not in text
    assert "1 seen and 1 unseen on EMNIST" in text


LEAD = {
    "of": "pfedmm",
    "claim": {"title": "Abstract", "exhibit": "abstract-claim", "dataset": "unspecified"},
}


def lead(group="seen", at="best", values=None, **claim):
    """The table of pFedMM ahead of FedAvg and FedEM, on EMNIST and CIFAR-10."""
    values = values or {
        ("emnist", "fedavg"): [0.70, 0.72],
        ("emnist", "fedem"): [0.74, 0.78],
        ("emnist", "pfedmm"): [0.80, 0.90],
        ("cifar10", "fedavg"): [0.50, 0.50],
        ("cifar10", "fedem"): [0.60, 0.70],
        ("cifar10", "pfedmm"): [0.66, 0.70],
    }
    values = {(*key, "accuracy", at): by_seed for key, by_seed in values.items()}
    exhibit = made_up.exhibit(
        ["fedavg", "fedem", "pfedmm"], ["emnist", "cifar10"], published="main", seeds=(1, 2)
    )
    params = {**LEAD, "claim": LEAD["claim"] | claim, "group": group, "at": at}
    return build(exhibit, frame(values, group), kind="lead", **params)


def test_a_lead_is_taken_seed_by_seed_and_stands_beside_that_of_the_published_table():
    numbers = lead(metric="gain", over="best").numbers
    rows = numbers.set_index(["federation", "label"])
    row = rows.loc["emnist", "fedavg"]
    assert row["mean"] == pytest.approx((0.10 + 0.18) / 2)
    assert row["std"] == pytest.approx(0.08 / np.sqrt(2))
    assert row["published"] == pytest.approx(0.842 - 0.812)
    assert "pfedmm" not in set(numbers["label"])


def test_a_claim_stands_beside_the_largest_lead_of_its_kind():
    # Leads on EMNIST are 14 and 9 points, on CIFAR-10 18 and 3.
    best = lead(metric="gain", over="best")
    row = best.numbers.iloc[-1]
    assert (row["claim"], row["federation"], row["label"]) == ("Abstract", "emnist", "fedem")
    assert (row["published"], row["mean"]) == (pytest.approx(0.088), pytest.approx(0.09))
    texts = [cell.text for cell in best.blocks[-1].rows[0]]
    assert texts == ["Abstract", "over FedEM on EMNIST", "+8.8", "+9.0 (+6.0 to +12.0)"]
    row = lead(metric="unseen_gain_max", over="any").numbers.iloc[-1]
    assert (row["federation"], row["label"]) == ("cifar10", "fedavg")
    assert (row["published"], row["mean"]) == (pytest.approx(0.058), pytest.approx(0.18))


def test_a_claim_about_unseen_clients_takes_no_method_without_a_way_for_them():
    values = {("emnist", "fedem"): [0.5, 0.5], ("emnist", "pfedmm"): [0.6, 0.6]}
    values |= {("cifar10", label): [0.6, 0.6] for label in ("fedem", "pfedmm")}
    exhibit = made_up.exhibit(["fedavg", "fedem", "pfedmm"], ["emnist", "cifar10"], seeds=(1, 2))
    tidy = frame({(*key, "accuracy", "last"): found for key, found in values.items()}, "unseen")
    seen = {(name, "fedavg", "accuracy", "last"): [0.1, 0.1] for name in ("emnist", "cifar10")}
    claim = LEAD["claim"] | {"metric": "unseen_gain_max", "over": "any"}
    options = {"of": "pfedmm", "claim": claim, "group": "unseen", "at": "last"}
    numbers = build(exhibit, pd.concat([tidy, frame(seen)]), kind="lead", **options).numbers
    assert numbers["label"].tolist() == ["fedem", "fedem", "fedem"]  # the last is the claim
    assert numbers["mean"].round(8).tolist() == [0.1, 0.0, 0.1]


@pytest.mark.parametrize("labels", [["pfedmm"], ["fedavg", "fedem"]])
def test_where_nobody_is_ahead_of_anybody_only_the_claim_is_left(labels):
    exhibit = made_up.exhibit(labels, ["emnist"], published="main", seeds=(1, 2))
    tidy = frame({("emnist", label, "accuracy", "best"): [0.5, 0.5] for label in labels})
    claim = LEAD["claim"] | {"metric": "gain", "over": "best"}
    sheet = build(exhibit, tidy, kind="lead", of="pfedmm", claim=claim)
    assert [cell.text for cell in sheet.blocks[-1].rows[0]] == ["Abstract", "–", "+8.8", "–"]
    assert sheet.numbers["mean"].isna().all() and len(sheet.numbers) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": "all"}, "group must be seen or unseen or server, got 'all'"),
        ({"at": "round"}, "at must be last or best, got 'round'"),
        ({"over": "most"}, "over must be best or any, got 'most'"),
    ],
)
def test_a_lead_of_something_else_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        lead(**{"metric": "gain", "over": "best"} | changes)


def sweep_exhibit(labels=("pfedmm-m2", "pfedmm-m3", "fedem-m3")) -> dict:
    return made_up.exhibit(labels, ["emnist"])


def sweep_metrics(labels=("pfedmm-m2", "pfedmm-m3", "fedem-m3")) -> pd.DataFrame:
    return frame(
        {
            ("emnist", label, metric, at): [0.5 + 0.1 * number] * 2
            for number, label in enumerate(labels)
            for metric in ("accuracy", "bottom10")
            for at in ("last", "best")
        }
    )


SWEEP = {"parameter": "num_experts", "methods": ["pfedmm", "fedem"], "symbol": "M"}


def test_sweep_table_has_a_row_per_value_and_a_dash_where_nothing_ran():
    sheet = build(sweep_exhibit(), sweep_metrics(), kind="sweep", **SWEEP)
    block = sheet.blocks[0]
    assert [column.title for column in block.columns] == ["M", "pFedMM", "FedEM"]
    assert [[cell.text for cell in row] for row in block.rows] == [
        ["2", "50.0 (50.0 to 50.0)", "–"],
        ["3", "60.0 (60.0 to 60.0)", "70.0 (70.0 to 70.0)"],
    ]
    assert block.rows[1][1].bold and not block.rows[0][1].bold
    assert set(sheet.numbers["setting"]) == {2, 3}


def test_sweep_over_a_parameter_that_a_run_does_not_state_is_refused():
    with pytest.raises(ConfigError, match="emnist/pfedmm-m2 does not state mu; it has num_experts"):
        build(sweep_exhibit(), sweep_metrics(), kind="sweep", parameter="mu", methods=["pfedmm"])


def test_sweep_with_two_runs_of_one_value_is_refused():
    exhibit = sweep_exhibit()
    for run in exhibit["runs"]:
        run["params"] = {"num_experts": 2}
    with pytest.raises(ConfigError, match="two runs of pfedmm on EMNIST with num_experts = 2"):
        build(exhibit, sweep_metrics(), kind="sweep", **SWEEP)


ALPHA = {"parameter": "partition.alpha", "of": "federation", "symbol": "α"}
METHODS = ["fedavg", "pfedmm"]


def alpha_metrics(values: dict) -> pd.DataFrame:
    """Metrics rows from {(federation, label): accuracy}; the bottom decile is 0.2 lower."""
    return frame(
        {
            (*key, metric, at): [value - drop] * 2
            for key, value in values.items()
            for metric, drop in (("accuracy", 0.0), ("bottom10", 0.2))
            for at in ("last", "best")
        }
    )


def alpha_exhibit(*values: float) -> dict:
    return made_up.heterogeneity(METHODS, made_up.alphas("emnist", *values))


def test_sweep_over_federations_has_a_row_per_method_and_a_column_per_value():
    exhibit = alpha_exhibit(0.1, 1e6)
    exhibit["runs"] = [run for run in exhibit["runs"] if run["label"] != "fedavg"] + [
        made_up.describe("emnist-alpha0.1", "fedavg")
    ]
    accuracy = {("emnist-alpha0.1", "fedavg"): 0.7, ("emnist-alpha0.1", "pfedmm"): 0.6}
    tidy = alpha_metrics(accuracy | {("emnist-alpha1e+06", "pfedmm"): 0.5})
    result = build(exhibit, tidy, kind="sweep", methods=METHODS, **ALPHA)
    assert [block.heading for block in result.blocks] == [
        *("EMNIST: All, last round", "EMNIST: Bottom-10%, last round"),
    ]
    block = result.blocks[0]
    assert block.columns == [Column("Method"), Column("0.1", "α"), Column("1e6", "α")]
    assert [[cell.text for cell in row] for row in block.rows] == [
        ["FedAvg", "70.0 (70.0 to 70.0)", "–"],
        ["pFedMM", "60.0 (60.0 to 60.0)", "50.0 (50.0 to 50.0)"],
    ]
    assert [row[1].bold for row in block.rows] == [True, False]
    numbers = result.numbers
    assert set(zip(numbers["federation"], numbers["setting"], strict=True)) == {
        *(("emnist-alpha0.1", 0.1), ("emnist-alpha1e+06", 1e6)),
    }
    assert "panel" not in numbers and set(numbers["parameter"]) == {"partition.alpha"}
    assert any(note.startswith("Small α: the clients' data differ much.") for note in result.notes)


def test_sweep_over_federations_that_do_not_state_the_parameter_is_refused():
    exhibit, params = alpha_exhibit(0.1), {"methods": METHODS, "of": "federation"}
    tidy = alpha_metrics({("emnist-alpha0.1", label): 0.5 for label in METHODS})
    complaint = "federation emnist-alpha0.1 does not state {}; it has partition"
    for parameter in ("alpha", "partition.beta", "partition.alpha.x", "partition"):
        with pytest.raises(ConfigError, match=complaint.format(parameter)):
            build(exhibit, tidy, kind="sweep", parameter=parameter, **params)
    with pytest.raises(ConfigError, match="of must be run or federation, got 'data'"):
        build(exhibit, tidy, kind="sweep", methods=METHODS, **{**ALPHA, "of": "data"})


def test_sweep_with_two_federations_of_one_value_is_refused():
    exhibit = alpha_exhibit(0.1, 10)
    exhibit["federations"][1]["partition"] = exhibit["federations"][0]["partition"]
    tidy = alpha_metrics(
        {(federation["name"], m): 0.5 for federation in exhibit["federations"] for m in METHODS}
    )
    with pytest.raises(ConfigError, match=r"fedavg on EMNIST with partition.alpha = 0.1"):
        build(exhibit, tidy, kind="sweep", methods=METHODS, **ALPHA)


def test_what_holds_for_a_family_is_said_once():
    exhibit = alpha_exhibit(0.1, 10)
    for federation, rounds in zip(exhibit["federations"], (30, 40), strict=True):
        federation["notes"] = ["EMNIST: half of the images"]
        for run in exhibits.runs_of(exhibit, federation["name"]):
            run["rounds"] = rounds
    assert exhibits.data_notes(exhibit) == ["EMNIST: half of the images."]
    assert exhibits.rounds_text(exhibit) == "Communication rounds: 30 to 40."
    exhibit["federations"][1]["notes"] = ["one client is empty"]
    assert exhibits.data_notes(exhibit) == [
        *("EMNIST, alpha = 0.1: half of the images.", "EMNIST, alpha = 10: one client is empty."),
    ]


PROTOCOLS = {"protocols": {"one_step": "refreshed", "default": "as trained"}}


def protocol_metrics(group="seen") -> pd.DataFrame:
    """FedAvg, which has one protocol, and FedEM, whose refreshed weights gain 2 and lose 4."""
    default = {("emnist", "fedavg"): (0.6, 0.5), ("emnist", "fedem"): (0.7, 0.6)}
    renewed = {("emnist", "fedem"): (0.72, 0.56)}

    def rows(values, protocol):
        by_metric = {
            (*key, metric, "last"): [value, value + 0.02]
            for key, pair in values.items()
            for metric, value in zip(("accuracy", "bottom10"), pair, strict=True)
        }
        return frame(by_metric, group, protocol)

    return pd.concat([rows(renewed, "one_step"), rows(default, "default")])


def test_protocols_table_has_each_protocol_and_its_difference_to_the_default():
    exhibit = made_up.exhibit(["fedavg", "fedem"], ["emnist"])
    result = build(exhibit, protocol_metrics(), kind="protocols", **PROTOCOLS)
    (block,) = result.blocks
    assert block.heading == "EMNIST"
    assert [(column.group, column.title) for column in block.columns] == [
        ("", "Method"),
        *(("All", title) for title in ("as trained", "refreshed", "difference")),
        *(("Bottom-10%", title) for title in ("as trained", "refreshed", "difference")),
    ]
    # The half-width is 12.7062 * 0.01, as in the main table.
    assert [[cell.text for cell in row] for row in block.rows] == [
        ["FedAvg", "61.0 (60.0 to 62.0)", "–", "–", "51.0 (50.0 to 52.0)", "–", "–"],
        [
            "FedEM",
            "71.0 (70.0 to 72.0)",
            "73.0 (72.0 to 74.0)",
            "+2.0",
            "61.0 (60.0 to 62.0)",
            "57.0 (56.0 to 58.0)",
            "−4.0",
        ],
    ]
    numbers = result.numbers
    assert list(numbers["protocol"]) == ["default", "one_step"] * 4
    assert numbers["difference"].round(8).dropna().tolist() == [0.02, -0.04]
    text = render.to_markdown(result)
    assert "Difference: from 'as trained', in percentage points." in text
    assert "of the clients that train, after the last round" in text


def test_protocols_table_is_of_the_seen_clients():
    exhibit = made_up.exhibit(["fedavg", "fedem"], ["emnist"])
    both = pd.concat([protocol_metrics(), protocol_metrics("unseen").assign(value=0.1)])
    seen = build(exhibit, both, kind="protocols", **PROTOCOLS).numbers
    assert seen["mean"].equals(
        build(exhibit, protocol_metrics(), kind="protocols", **PROTOCOLS).numbers["mean"]
    )


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"protocols": {"default": "a"}}, "default and at least one other, got default"),
        ({"protocols": {"x": "a", "y": "b"}}, "default and at least one other, got x, y"),
        ({"protocols": {}}, "default and at least one other, got none"),
    ],
)
def test_wrong_groups_and_protocols_are_refused(params, complaint):
    exhibit = made_up.exhibit(["fedavg", "fedem"], ["emnist"])
    with pytest.raises(ConfigError, match=complaint):
        build(exhibit, protocol_metrics(), kind="protocols", **{**PROTOCOLS, **params})


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
    texts = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+ Sync", "-2+3", " =1", "-0.5", "FedAvg+", None]
    numbers = pd.DataFrame({"=title": texts, "value": [-0.5] * 8, "is": [True] * 8})
    found = pd.read_csv(io.StringIO(render.to_csv(replace(sheet("x"), numbers=numbers))))
    assert [*found.columns] == ["'=title", "value", "is"]
    assert [*found["'=title"][:7]] == [f"'{text}" for text in texts[:5]] + texts[5:7]
    assert found["value"].tolist() == [-0.5] * 8


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


def test_unknown_kinds_and_params_name_the_choices():
    with pytest.raises(ConfigError, match="no kind 'pie'; choose from accuracy, accuracy_"):
        build(main_exhibit(), main_metrics(), kind="pie")
    with pytest.raises(ConfigError, match="its fields are: parameter, methods, of, symbol"):
        build(main_exhibit(), main_metrics(), kind="sweep", parameters="x")


def test_a_method_is_called_as_all_of_its_runs_are():
    runs = [{"method": "local", "title": "Standalone"}] * 2
    assert exhibits.method_title("local", runs) == "Standalone"
    runs = [{"method": "pfedmm", "title": f"pFedMM (M={m})"} for m in (1, 3)]
    assert exhibits.method_title("pfedmm", runs) == "pFedMM"


def test_the_pfedmoe_of_pfedmm_is_looked_up_as_gated_experts():
    # Its file has the printed name, which is that of another method here.
    rows = PUBLISHED.read_text().splitlines()
    assert any(row.startswith("main,emnist,pfedmoe,accuracy,82.8,") for row in rows)
    found = printed.fractions(printed.read(PUBLISHED), "main")
    assert found["emnist", "gated-experts"] == 0.828
    assert not any(label == "pfedmoe" for _, label in found)
    assert exhibits.method_title("gated_experts") == "MoE (pFedMM's)"


def test_names_are_printed_otherwise_only_in_the_file_of_the_paper(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(PUBLISHED.read_text())
    assert "pfedmoe" in set(printed.read(other)["label"])


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


def test_methods_are_compared_client_by_client_apart_from_the_spread_over_seeds():
    best = np.linspace(0.5, 0.9, 8)
    near = best - [0.05, -0.05, 0.1, -0.1, 0, 0, 0.1, 0]
    everybody = {("fedavg", "default"): best - 0.1, ("fedem", "default"): near}
    exhibit = made_up.exhibit(["fedavg", "fedem", "pfedmm"], ["emnist"], (1,))
    rows = paired_clients(everybody | {("pfedmm", "default"): best})
    found = build(exhibit, main_metrics(1), rows, "paired_differences", of="pfedmm")
    [block] = found.blocks
    json.dumps([[cell.bold for cell in row] for row in block.rows])  # as files have them
    assert [column.title for column in block.columns[1:4]] == [
        "Accuracy [over clients]",
        "pFedMM ahead by [over clients]",
        "p",
    ]
    cells = [[cell.text for cell in row[:4]] for row in block.rows]
    assert cells[0] == ["FedAvg", "60.0 [48.3, 71.7]", "+10.0 [+10.0, +10.0]", "< 0.001"]
    assert cells[1][2].startswith("+1.2 [−") and float(cells[1][3]) > 0.05
    assert cells[2] == ["pFedMM", "70.0 [58.3, 81.7]", "–", "–"]  # t(7) = 2.365, sd 0.140
    assert [row[2].bold for row in block.rows] == [True, False, False]
    assert any("what other seeds would give is not in it" in note for note in found.notes)
    row = found.numbers.set_index(["label", "metric"]).loc[("fedavg", "accuracy")]
    assert (row["difference"], row["num_clients"]) == (0.1, 8)


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
