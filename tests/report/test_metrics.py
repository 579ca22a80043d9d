"""Metrics: every expected number is worked out here, by hand or by a plain loop."""

import math
from dataclasses import replace

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib import seals
from fedlib.errors import DataError
from fedlib.report.metrics import definitions
from fedlib.report.metrics.runs import TUNING, collect
from fedlib.report.metrics.seeds import over_seeds
from fedlib.report.metrics.tidy import check_agreement, client_rows, run_rows
from fedlib.results import OPTIMUM, RunResult, Scores, View

SEEN, UNSEEN = View("seen", "default", "test"), View("unseen", "default", "test")


def result(scores: dict, rounds=(0,), **changes) -> RunResult:
    rounds = np.asarray(rounds)
    totals = {"examples": 7 * rounds, "client_rounds": 2 * rounds}
    return RunResult(
        rounds, scores, 10 * rounds, 5 * rounds, train_loss=np.empty(0), **totals, **changes
    )


def value(rows: pd.DataFrame, **where) -> float:
    for column, wanted in where.items():
        rows = rows[rows[column] == wanted]
    assert len(rows) == 1, rows
    return float(rows["value"].iloc[0])


def test_accuracy_pools_examples_and_the_client_mean_does_not():
    scores = made_up.scores([[1.0, 0.5]], count=[10, 30])  # 10 of 10 and 15 of 30 right
    assert definitions.accuracy(scores) == pytest.approx([25 / 40])
    assert definitions.accuracy_client_mean(scores) == pytest.approx([0.75])
    assert definitions.accuracy_client_std(scores) == pytest.approx([0.25])


def test_loss_is_weighted_by_counts():
    scores = made_up.scores([[0.0, 0.0]], count=[1, 3], loss=[2.0, 4.0])
    assert definitions.loss(scores) == pytest.approx([(1 * 2 + 3 * 4) / 4])


def test_bottom_decile_of_twenty_clients():
    accuracies = np.arange(1, 21) / 20  # 0.05, 0.10, ..., 1.00
    scores = made_up.scores([accuracies[::-1]], count=np.full(20, 20))
    assert definitions.bottom10(scores) == pytest.approx([0.10])  # the 2nd smallest
    assert definitions.bottom10_mean(scores) == pytest.approx([0.075])  # of 0.05 and 0.10


@pytest.mark.parametrize(
    ("clients", "rank"), [(80, 8), (100, 10), (64, 6), (20, 2), (16, 1), (3, 1), (1, 1)]
)
def test_bottom_decile_takes_a_tenth_of_the_clients_rounded_down(clients, rank):
    accuracies = np.arange(1, clients + 1) / 1000
    scores = made_up.scores([accuracies], count=np.full(clients, 1000))
    assert definitions.bottom10(scores) == pytest.approx([rank / 1000])


def test_a_client_without_examples_counts_in_nothing():
    with_it = made_up.scores([[0.5, np.nan, 1.0]], count=[10, 0, 10], loss=[1.0, np.nan, 3.0])
    without = made_up.scores([[0.5, 1.0]], count=[10, 10], loss=[1.0, 3.0])
    for metric in definitions.METRICS:
        assert metric(with_it) == pytest.approx(metric(without)), metric.__name__
    clients = client_rows(result({SEEN: with_it}))
    row = clients[(clients["client"] == 1) & (clients["at"] == "last")].iloc[0]
    assert row["count"] == 0 and math.isnan(row["accuracy"]) and math.isnan(row["loss"])


def test_a_view_without_any_example_is_left_out():
    empty = made_up.scores([[np.nan, np.nan]], count=[0, 0])
    history = result({SEEN: made_up.scores([[0.5]], count=[2]), UNSEEN: empty})
    assert set(run_rows(history)["group"]) == {"seen", "all"}
    assert set(client_rows(history)["group"]) == {"seen"}
    with pytest.raises(DataError, match="no client"):
        definitions.accuracy(empty)


@pytest.mark.parametrize("correct", [-1.0, 11.0, math.nan])
def test_absurd_counts_are_refused(correct):
    scores = Scores(np.array([0]), np.array([10]), np.array([[correct]]), np.array([[0.1]]))
    with pytest.raises(DataError, match="right predictions"):
        definitions.accuracy(scores)


def test_a_loss_that_is_not_a_number_is_refused_with_its_view():
    scores = made_up.scores([[0.5]], count=[10], loss=[math.nan])
    with pytest.raises(DataError, match="view seen/default/test: the loss"):
        run_rows(result({SEEN: scores}))


# -- which round --------------------------------------------------------------------------------


def test_best_is_the_earliest_round_of_highest_accuracy_for_every_view():
    seen = made_up.scores([[0.1], [0.9], [0.9], [0.5]], count=[10])
    unseen = made_up.scores([[0.1], [0.2], [0.3], [0.4]], count=[10])
    rows = run_rows(result({SEEN: seen, UNSEEN: unseen}, rounds=(0, 5, 10, 15)))
    best = rows[rows["at"] == "best"]
    assert set(best["round"]) == {5}
    assert value(best, metric="accuracy", group="seen") == pytest.approx(0.9)
    assert value(best, metric="accuracy", group="unseen") == pytest.approx(0.2)
    assert value(best, metric="bytes") == 75  # (10 + 5) bytes a round
    last = rows[rows["at"] == "last"]
    assert set(last["round"]) == {15}
    assert value(last, metric="accuracy", group="seen") == pytest.approx(0.5)


def test_chosen_is_the_earliest_round_of_least_loss_on_the_servers_validation_examples():
    right = made_up.scores([[0.1], [0.2], [0.3], [0.4]], count=[10])
    losses = made_up.scores([[0.0]] * 4, count=[10], loss=[[3.0], [1.0], [1.0], [2.0]])
    server = View("server", "default", "test")
    scores = {SEEN: right, server: right, server._replace(split="val"): losses}
    rows = run_rows(result(scores, rounds=(0, 5, 10, 15)))
    chosen = rows[rows["at"] == "chosen"]
    assert set(chosen["round"]) == {5}
    assert value(chosen, metric="accuracy", group="server", split="test") == pytest.approx(0.2)


def test_without_the_deciding_view_there_is_no_best_round():
    with pytest.raises(DataError, match="seen/default/test"):
        run_rows(result({UNSEEN: made_up.scores([[0.5]], count=[2])}))


def test_every_evaluated_round_is_a_row_and_training_loss_begins_after_round_one():
    scores = made_up.scores([[0.1], [0.2], [0.3]], count=[10])
    losses = np.array([np.nan, 3.0, np.nan, 1.0])  # in the first and third nobody trained
    history = replace(result({SEEN: scores}, (0, 2, 4)), train_loss=losses)
    rows = run_rows(history)
    curve = rows[(rows["at"] == "round") & (rows["metric"] == "accuracy")]
    assert curve["round"].tolist() == [0, 2, 4]
    assert curve["value"].tolist() == pytest.approx([0.1, 0.2, 0.3])
    training = rows[(rows["at"] == "round") & (rows["metric"] == "train_loss")]
    assert training["round"].tolist() == [2, 4]
    assert training["value"].tolist() == [3.0, 1.0]
    traffic = rows[rows["metric"].str.startswith("bytes")]
    assert set(traffic["group"]) == {"all"} and set(traffic["protocol"]) == {""}


def test_cost_is_a_curve_and_flops_are_those_of_all_examples():
    scores = made_up.scores([[0.1], [0.9], [0.3]], count=[10])
    history = result({SEEN: scores}, (0, 2, 4))  # 7 examples and 2 clients a round
    rows = run_rows(history)
    for name, expected in (("examples", [0, 14, 28]), ("client_rounds", [0, 4, 8])):
        curve = rows[(rows["at"] == "round") & (rows["metric"] == name)]
        assert curve["value"].tolist() == expected
        assert value(rows, at="best", metric=name) == expected[1]
    assert not rows["metric"].str.startswith("flops").any()  # nobody measured them

    last = made_up.scores([[0.3]], count=[10])
    measured = {"flops_per_example": np.array([300.0])}
    rows = run_rows(history, result({SEEN: last}, (4,), diagnostics=measured))
    flops = rows[rows["metric"].str.startswith("flops")]
    assert set(flops["at"]) == {"last"} and set(flops["group"]) == {"all"}
    assert value(flops, metric="flops_per_example") == 300
    assert value(flops, metric="flops") == 28 * 300


def test_views_of_the_evaluation_alone_have_only_a_last_value():
    history = result({SEEN: made_up.scores([[0.1], [0.2]], count=[10])}, (0, 1))
    seen, unseen = (made_up.scores([[x]], count=[10]) for x in (0.2, 0.3))
    final = {SEEN: seen, View("unseen", "fresh", "test"): unseen}
    rows = run_rows(history, result(final, (1,)))
    fresh = rows[rows["protocol"] == "fresh"]
    assert set(fresh["at"]) == {"last"} and set(fresh["round"]) == {1}
    assert value(rows, at="last", group="seen", metric="accuracy") == pytest.approx(0.2)


def test_an_evaluation_that_contradicts_the_history_is_refused():
    history = result({SEEN: made_up.scores([[0.1], [0.2]], count=[10])}, (0, 1))
    close = made_up.scores([[0.2]], count=[10], loss=[0.8 * (1 + 1e-6)])
    check_agreement(history, result({SEEN: close}, (1,)))
    for other in (
        made_up.scores([[0.3]], count=[10], loss=[0.8]),
        made_up.scores([[0.2]], count=[10], loss=[0.8 * (1 + 1e-4)]),
        made_up.scores([[0.1]], count=[20], loss=[0.8]),
    ):
        with pytest.raises(DataError, match="disagree on seen/default/test"):
            check_agreement(history, result({SEEN: other}, (1,)))
    with pytest.raises(DataError, match="ends at round 1, the evaluation is of round 2"):
        check_agreement(history, result({SEEN: close}, (2,)))


def test_results_of_other_trainings_or_shards_are_not_put_together(tmp_path):
    exhibit = made_up.exhibit(["local", "fedavg"], ["emnist"], seeds=[1])
    made_up.save_runs(exhibit, tmp_path)

    def collected(changed, **provenance):
        """The error when the files whose names end so have another provenance; then not."""
        files = [*tmp_path.rglob(changed)]
        kept = [file.read_bytes() for file in files]
        for file in files:
            replace(RunResult.load(file), provenance=provenance).save(file)
        with pytest.raises(DataError) as error:
            collect(made_up.metrics_spec(exhibit), tmp_path)
        for file, content in zip(files, kept, strict=True):
            file.write_bytes(content)
        return str(error.value)

    for name in ("state_sha256", "manifest_sha256"):
        said = collected("fedavg/seed1/evaluation.h5", **{name: "other"})
        assert "evaluation.h5 is not of the training of" in said and "fedavg/seed1" in said
    said = collected("fedavg/seed1/*.h5", manifest_sha256="other")
    assert "fedavg/seed1 and" in said and said.endswith("other shards; delete the older one")
    collect(made_up.metrics_spec(exhibit), tmp_path)


def test_clients_carry_their_mixture_weights_at_the_last_round():
    pi = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    seen = Scores(np.array([0, 2]), np.array([4, 4]), np.array([[1.0, 2], [3, 4]]), np.ones((2, 2)))
    clients = client_rows(result({SEEN: seen}, (0, 1), diagnostics={"pi": pi}))
    last = clients[clients["at"] == "last"]
    assert last["client"].tolist() == [0, 2]
    assert last[["pi_0", "pi_1"]].to_numpy() == pytest.approx(pi[[0, 2]])
    assert last["accuracy"].tolist() == [0.75, 1.0]
    with pytest.raises(DataError, match="does not cover client 2"):
        client_rows(result({SEEN: seen}, (0, 1), diagnostics={"pi": pi[:2]}))
    assert "pi" in client_rows(result({SEEN: seen}, (0, 1), diagnostics={"pi": pi[:, 0]}))


@pytest.mark.parametrize("rounds", [1, 2, 3, 200])
def test_numbers_of_rounds_are_rows_and_no_columns_of_clients_whatever_their_number(rounds):
    seen = Scores(np.arange(2), np.array([4, 4]), np.array([[1.0, 2], [3, 4]]), np.ones((2, 2)))
    values = np.append(np.arange(rounds - 1.0), np.nan)
    recorded = {"mine": values, "each": np.stack([values, -values], 1)}
    history = result({SEEN: seen}, (0, 2), by_round=recorded)
    assert not {"mine", "each_0", "each_1"} & {*client_rows(history)}
    rows = run_rows(history)
    for name, index, sign in (("mine", "", 1), ("each", "0", 1), ("each", "1", -1)):
        mine = rows[(rows["metric"] == name) & (rows["index"] == index) & (rows["at"] == "round")]
        known = sign * values[:2][~np.isnan(values[:2])]  # the run ends after round 2
        assert mine["value"].tolist() == known.tolist()
        assert mine["round"].tolist() == [*range(1, len(known) + 1)]
    refused = result({SEEN: seen}, (0, 2), diagnostics={"mine": np.ones(1)})
    with pytest.raises(DataError, match=r"mine of shape \(1,\) does not cover client 1"):
        client_rows(refused)


def test_the_interval_over_seeds_is_students():
    frame = pd.DataFrame({"label": ["a", "a", "a", "b"], "value": [0.1, 0.2, 0.6, 0.5]})
    table = over_seeds(frame, ["label"]).set_index("label")
    std = math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2)  # around the mean 0.3
    assert table.loc["a", "mean"] == pytest.approx(0.3)
    assert table.loc["a", "std"] == pytest.approx(std)
    # 4.302653 is the 97.5 % point of Student's t with 2 degrees of freedom, from a printed table.
    assert table.loc["a", "ci95"] == pytest.approx(4.302653 * std / math.sqrt(3), rel=1e-6)
    assert (table.loc["a", "low"], table.loc["a", "high"]) == (0.1, 0.6)
    assert table.loc["b", "seeds"] == 1 and math.isnan(table.loc["b", "ci95"])


def test_regret_is_the_optimum_less_the_mean_of_the_clients():
    scores = replace(made_up.scores([0.5, 0.6], [10, 20]), clients=np.array([1, 2]))
    optimum = {OPTIMUM: np.array([0.9, 0.8, 0.7])}
    rows = run_rows(result({SEEN: scores}, diagnostics=optimum))
    regret = value(rows, metric="regret", at="last")
    assert regret == pytest.approx(((0.8 - 0.5) + (0.7 - 0.6)) / 2)


def test_trials_of_a_tuned_run_are_metrics(tmp_path):
    exhibit, runs = made_up.exhibit(["fedavg"], ["emnist"]), tmp_path / "runs/pfedmm"
    made_up.save_runs(exhibit, runs)
    spec, tuning = made_up.metrics_spec(exhibit), {"rounds": 8, "seed": 9}
    spec["runs"][0]["tuned"] = {"": seals.spec_digest(tuning)}
    trials = [{"accuracy": {"4": 0.2, "8": 0.3}}, {"accuracy": {"4": None}}]  # the other diverged
    found = {"spec": tuning, "trials": trials, "chosen": 0, "values": {"local.lr": 0.1}}
    file = tmp_path / "tuned/pfedmm/emnist/fedavg/trials.json"
    seals.write_json(file, found | {"at_edge": ["local.lr"]})
    rows = collect(spec, runs)[0]
    rows = rows[rows["at"] == TUNING]
    assert set(rows["seed"]) == {9} and set(rows["label"]) == {"fedavg"}
    assert value(rows, metric="trial", index="") == 0 and value(rows, metric="at_edge") == 1
    assert value(rows, metric="chosen", of="local.lr") == 0.1
    assert value(rows, metric="trial", index="0", round=8) == 0.3
    assert math.isnan(value(rows, metric="trial", index="1"))
