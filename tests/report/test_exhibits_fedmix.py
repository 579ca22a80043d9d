"""Exhibits of FedMix: curves by protocol and traffic, divergence, tables, clusters and leakage."""

import made_up
import numpy as np
import pandas as pd
import pytest
from made_up import footer

from fedlib.errors import ConfigError, DataError
from fedlib.report import diagnostics, metrics
from fedlib.report.tables import render
from fedlib.results import RunResult, View

DEFAULT = View("seen", "default", "test")
NEW_SHARD = View("seen", "new_shard", "val")
GIB = 2**30


def described(label, method="fedmix", federation="emnist", **changes) -> dict:
    run = {"federation": federation, "label": label, "title": label.upper(), "method": method}
    return {**run, "rounds": 30, "params": {}, "notes": [], **changes}


def shown(runs, names=("emnist",), seeds=(1, 2), **changes) -> dict:
    return made_up.exhibit([], names, seeds, runs=runs, **changes)


def result(views=None, rounds=(0, 10, 20, 30), diagnostics=None, **totals) -> RunResult:
    """A history; views are accuracies [T, C] of clients with 100 examples each."""
    views = views or {DEFAULT: np.full((len(rounds), 4), 0.5)}
    scores = {view: made_up.scores(x, np.full(np.shape(x)[1], 100)) for view, x in views.items()}
    totals = {"client_rounds": 2 * np.asarray(rounds), **totals}
    return made_up.result(scores, rounds, diagnostics=diagnostics or {}, **totals)


def collect(exhibit, make) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics and clients of every run and seed; make(run, seed) is its history."""
    return made_up.collect(exhibit, lambda run, seed: (make(run, seed),))


def draw(kind, exhibit, frames, numbers=None, **params):
    return made_up.draw(kind, exhibit, *frames, numbers, **params)


def build(kind, exhibit, frames, numbers=None, **params):
    return made_up.build(kind, exhibit, *frames, numbers, **params)


# Metrics: what is said of experts


def of_rounds(history, prefix) -> pd.DataFrame:
    rows = metrics.run_rows(history)
    rows = rows[rows["metric"].str.startswith(prefix)]
    assert set(rows["at"]) == {"round"} and set(rows["group"]) == {"all"}
    return rows


def test_divergence_is_a_metric_of_the_rounds_in_which_there_was_one():
    planned = np.array([[0.1, 0.2], [0.3, np.nan], [0.5, 0.6]])  # of three rounds, two took place
    rows = of_rounds(result(rounds=(0, 1, 2), diagnostics={"divergence": planned}), "divergence_")
    found = rows[["metric", "round", "value"]].to_numpy().tolist()
    assert found == [["divergence_0", 1, 0.1], ["divergence_0", 2, 0.3], ["divergence_1", 1, 0.2]]


def test_tables_are_metrics_by_cell_of_the_rounds_that_were_reached():
    values = np.arange(12.0).reshape(2, 3, 2)
    recorded_at = {"tables": values, "table_rounds": np.array([20, 40])}
    rows = of_rounds(result(diagnostics=recorded_at), "table_")
    assert set(rows["round"]) == {20}
    cells = dict(zip(rows["metric"], rows["value"], strict=True))
    assert cells == {f"table_{row}_{e}": 2 * row + e for row in range(3) for e in range(2)}


@pytest.mark.parametrize(
    ("diagnostics", "complaint"),
    [
        ({"divergence": np.ones((3, 1, 1))}, r"divergence must be .*rounds, experts\], got shape"),
        ({"tables": np.ones((2, 3))}, r"tables must be \[recorded, rows, experts\], got shape"),
        ({"tables": np.ones((2, 3, 2))}, "table_rounds must be 2 ascending rounds, .* got none"),
        (
            {"tables": np.ones((2, 3, 2)), "table_rounds": np.array([5, 5])},
            r"table_rounds must be 2 ascending rounds, one per table, got \[5 5\]",
        ),
    ],
)
def test_diagnostics_of_experts_of_another_shape_are_refused(diagnostics, complaint):
    with pytest.raises(DataError, match=complaint):
        metrics.run_rows(result(diagnostics=diagnostics))


def test_what_is_said_of_experts_is_no_column_of_clients():
    # As many rounds and tables as clients: they are known by name, not by their length.
    diagnostics = {"divergence": np.ones((4, 2)), "tables": np.ones((4, 3, 2))}
    diagnostics |= {"table_rounds": np.arange(4), "marginal": np.full((4, 2), 0.5)}
    rows = metrics.client_rows(result(diagnostics=diagnostics))
    assert set(rows) - set(metrics.CLIENT_COLUMNS) == {"marginal_0", "marginal_1"}


# Curves


CURVES = np.array([[0.1, 0.3], [0.5, 0.7], [0.6, 0.9], [0.8, 0.9]])  # [T, C]


def curve_of(run, seed) -> RunResult:
    """Seed 2 is 0.04 above seed 1, and the protocol new_shard 0.05 below the default one."""
    values = CURVES + 0.04 * (seed - 1)
    sent = np.array([0, 1, 2, 4]) * GIB
    return result({DEFAULT: values, NEW_SHARD: values - 0.05}, bytes_down=sent, bytes_up=0 * sent)


@pytest.fixture(scope="module")
def curves():
    about = shown([described("fedavg", "fedavg_adam"), described("fedmix-k4")])
    return about, collect(about, curve_of)


def test_a_federation_is_shown_up_to_its_limit():
    runs = [described("fedmix-k4", federation=name) for name in ("emnist", "cifar10")]
    about = shown(runs, ("emnist", "cifar10"))
    frames = collect(about, curve_of)
    by_bytes = draw("accuracy_over_bytes", about, frames, until={"cifar10": 3}, unit="GB")
    # Limits are the paper's, of 2^30 bytes, and 2 of these are within 3; axes have GB of 10^9.
    ends = [axes.get_lines()[0].get_xdata()[-1] for axes in by_bytes.axes]
    assert ends == pytest.approx([4 * GIB / 1e9, 2 * GIB / 1e9])


@pytest.mark.parametrize(
    ("kind", "params", "error", "complaint"),
    [
        ("rounds", {"metric": "loss"}, ConfigError, "bottom10 or accuracy_client_mean, got 'loss'"),
        ("bytes", {"until": {"x": 3}}, ConfigError, "about x, which main does not show; it shows"),
        ("bytes", {"until": {"emnist": 0}}, ConfigError, "until must be above 0, got 0 for emnist"),
        (
            *("bytes", {"protocol": "finetuned"}, DataError),
            "emnist/fedavg was not evaluated with the protocol 'finetuned' on test examples during "
            "training, only with default/test, new_shard/val; a protocol is evaluated",
        ),
    ],
)
def test_curves_of_what_does_not_exist_are_refused(curves, kind, params, error, complaint):
    with pytest.raises(error, match=complaint):
        draw(f"accuracy_over_{kind}", *curves, **params)


# Gradient divergence


DIVERGENCE = np.array([[1.0, 3.0], [3.0, 5.0], [5.0, 5.0], [1.0, 1.0]])  # [R, E]


@pytest.fixture(scope="module")
def diverging():
    about = shown([described("fedavg", "fedavg_adam"), described("k2")])

    def make(run, seed):
        values = DIVERGENCE[:, : 1 + (run["label"] == "k2")] + 2 * (seed - 1)
        return result(rounds=(0, 4), diagnostics={"divergence": values})

    return about, collect(about, make)


def test_divergence_is_a_sliding_mean_over_rounds_and_experts(diverging):
    figure = draw("gradient_divergence", *diverging, window=2)
    fedavg, mixture = (line.get_ydata().tolist() for line in figure.axes[0].get_lines())
    # Seed 2 is 2 higher, so the mean over seeds 1. FedAvg: 1, 3, 5, 1; experts' means: 2, 4, 5, 1.
    assert fedavg == [1 + 1, 2 + 1, 4 + 1, 3 + 1]
    assert mixture == [2 + 1, 3 + 1, 4.5 + 1, 3 + 1]
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 6)
    assert "Means over the last 2 rounds, fewer at the start." in footer(figure)


def test_a_window_of_no_round_is_refused(diverging):
    with pytest.raises(ConfigError, match="window must be at least 1 round, got 0"):
        draw("gradient_divergence", *diverging, window=0)


# Tables over time


@pytest.fixture(scope="module")
def over_time():
    about = shown([described("k3"), described("plain", "plain_mixture")])

    def make(run, seed):
        rng = np.random.default_rng([seed, len(run["label"])])
        rounds = np.array([10, 20, 30] if run["label"] == "k3" else [30])
        values = rng.dirichlet(np.ones(3), (len(rounds), 10))
        return result(diagnostics={"tables": values, "table_rounds": rounds})

    return about, collect(about, make), make


def test_a_table_of_a_round_that_was_not_recorded_is_refused(over_time):
    with pytest.raises(DataError, match="plain recorded no table at round 10; there are 30"):
        draw("tables_over_time", *over_time[:2], rounds=[10])


# Clusters


CLUSTER = np.array([1, 0, 1, 0, 2, 2])
CHOICES = {  # of runs, by seed
    "k3": {1: [0, 1, 0, 1, 1, 1], 2: [2, 0, 2, 0, 1, 1]},
    "k4": {1: [3, 3, 3, 3, 3, 3], 2: [0, 1, 0, 1, 0, 1]},
}
SURE = 0.94  # weight of the chosen expert; the others share the rest


def weights_of(run, seed) -> np.ndarray:
    number = int(run["label"][1:])
    rest = (1 - SURE) / (number - 1)
    return rest + (SURE - rest) * np.eye(number)[CHOICES[run["label"]][seed]]


@pytest.fixture(scope="module")
def clustered():
    about = shown([described(label, "fedmix_clients") for label in CHOICES])

    def make(run, seed):
        views = {DEFAULT: np.full((4, 6), 0.5)}
        return result(views, diagnostics={"pi": weights_of(run, seed), "cluster": CLUSTER})

    return about, collect(about, make)


def test_true_clusters_that_differ_between_seeds_are_said_to_be_of_one():
    # With a partition of its own for every seed: run k3 is best in seed 2, run k4 in seed 1.
    about = shown([described(label, "fedmix_clients") for label in CHOICES])
    best = {"k3": 2, "k4": 1}
    true = {1: np.array([0, 0, 0, 1, 1, 1]), 2: np.array([0, 0, 1, 1, 2, 2])}

    def make(run, seed):
        number = int(run["label"][1:])
        chosen = true[seed] if best[run["label"]] == seed else np.zeros(6, int)
        pi = {"pi": np.eye(number)[chosen], "cluster": true[seed]}
        return result({DEFAULT: np.full((4, 6), 0.5)}, diagnostics=pi)

    figure = draw("client_matrices", about, collect(about, make))
    first, *runs = figure.axes[:3]
    assert first.get_title() == "True cluster, seed 2"
    assert [axes.get_title().split("\n")[0] for axes in runs] == ["K3, seed 2", "K4, seed 1"]
    lines = [[line.get_ydata()[0] for line in axes.get_lines()] for axes in runs]
    assert lines == [[1.5, 3.5], [2.5]]


def test_recovery_takes_the_expert_that_clients_chose_where_they_have_one_alone(clustered):
    exhibit, (tidy, clients) = clustered
    runs = [
        {**run, "params": {"num_experts": 3}} for run in exhibit["runs"] if run["label"] == "k3"
    ]
    # Expert 0 has clients of cluster 1 alone, expert 1 of 0, 0 and 2, expert 2 one of 2.
    chosen = dict(enumerate([0, 1, 0, 1, 2, 1]))
    clients = clients.assign(choice=clients["client"].map(chosen))
    sheet = build("cluster_recovery", {**exhibit, "runs": runs}, (tidy, clients), choice="choice")
    assert sheet.numbers["purity"].tolist() == pytest.approx([5 / 6] * 2)
    assert sheet.numbers["experts_used"].tolist() == sheet.numbers["experts"].tolist() == [3, 3]
    assert "Highest weight" not in [column.title for column in sheet.blocks[0].columns]
    assert "the one that fits it best" in " ".join(sheet.notes)


# Leakage


def test_a_matrix_has_the_columns_of_its_run_alone():
    frame = pd.DataFrame({"federation": "f", "label": "a", "pi_10": [1.0], "pi_2": [2.0]})
    frame = frame.assign(pi_11=np.nan, pi_x=3.0, pit_0=4.0)
    assert diagnostics.matrix(frame, "pi").tolist() == [[2, 1]]
    with pytest.raises(DataError, match="f/a has no pi_0, pi_1, ... of every client"):
        diagnostics.matrix(pd.concat([frame, frame.assign(pi_2=np.nan)]), "pi")


# Accuracy and traffic


def traffic_of(run, seed) -> RunResult:
    """Two clients per round, each sent 6 numbers and returning 4: 40 bytes; or 80 for k4."""
    done = np.array([0, 10, 20, 30])
    size = {"fedavg": 1, "fedmix-k4": 2}[run["label"]]
    sent = {"bytes_down": 2 * 24 * size * done, "bytes_up": 2 * 16 * size * done}
    return result({DEFAULT: CURVES + 0.04 * (seed - 1)}, **sent)


@pytest.fixture(scope="module")
def traffic():
    runs = [
        described(label, method, federation)
        for federation in ("cifar10", "cifar100")
        for label, method in (("fedavg", "fedavg_adam"), ("fedmix-k4", "fedmix"))
    ]
    about = shown(runs, ("cifar10", "cifar100"), published="table1")
    about["federations"][1]["dataset"] = "qmnist"  # of which nothing is published
    return about, collect(about, traffic_of)


def test_accuracy_is_the_mean_of_the_last_evaluations_or_rounds(traffic):
    averaged = {"cifar10": {"evaluations": 3}, "cifar100": {"rounds": 20}}
    sheet = build("accuracy_and_traffic", *traffic, averaged=averaged)
    means = sheet.numbers.drop_duplicates("federation")
    # Client means 0.2, 0.6, 0.75, 0.85 at rounds 0, 10, 20, 30; the last 20 rounds begin after 10.
    assert means["mean"].tolist() == pytest.approx([2.2 / 3 + 0.02, 1.6 / 2 + 0.02])
    assert means["evaluations"].tolist() == [3, 2]
    text = render.to_markdown(sheet)
    assert (
        "after the last round; CIFAR-10 the mean of the last 3 evaluations; CIFAR-100 the" in text
    )
    assert "mean of the evaluations in the last 20 rounds" in text


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"averaged": {"x": {"rounds": 3}}}, "averaged is about x, which main does not show"),
        ({"averaged": {"cifar10": {"rounds": 0}}}, "at least 1, got {'rounds': 0} for cifar10"),
    ],
)
def test_wrong_params_of_accuracy_and_traffic_are_refused(traffic, params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build("accuracy_and_traffic", *traffic, **params)


def test_traffic_of_a_run_that_was_not_evaluated_during_training_is_refused(traffic):
    exhibit, (tidy, clients) = traffic
    tidy = tidy[(tidy["label"] != "fedavg") | (tidy["at"] != "round")]
    with pytest.raises(DataError, match="cifar10/fedavg was not evaluated during training"):
        build("accuracy_and_traffic", exhibit, (tidy, clients))


# Views


COLUMNS = [
    {"title": "Known", "key": "known"},
    {"title": "New shard", "protocol": "new_shard", "split": "val", "metric": "accuracy"},
    {"title": "New client", "group": "unseen"},
]


@pytest.fixture(scope="module")
def viewed():
    runs = [described("fedavg", "fedavg_adam"), described("fedmix-vae")]
    about = shown(runs, published="appendix-f-{label}")
    about["federations"][0]["dataset"] = "mnist"

    def make(run, seed):
        views = {DEFAULT: CURVES + 0.04 * (seed - 1), NEW_SHARD: CURVES - 0.1}
        if run["label"] == "fedmix-vae":
            views[View("unseen", "default", "test")] = CURVES + 0.06
        return result(views)

    return about, collect(about, make)


def test_a_column_that_no_selected_run_has_is_left_out_and_said(viewed):
    other = {"title": "By VAEs", "protocol": "new_shard_vae", "metric": "accuracy"}
    text = render.to_markdown(build("views", *viewed, columns=[COLUMNS[0], other]))
    assert "By VAEs |" not in text and "Known" in text
    assert "Not shown, as no run here was evaluated so: By VAEs." in text


@pytest.mark.parametrize(
    ("columns", "error", "complaint"),
    [
        ([{"title": "A"}, {"title": "A"}], ConfigError, "must have different titles, got A, A"),
        ([{"title": "A", "group": "all"}], ConfigError, "group of the column 'A' must be seen or"),
        (
            *([{"title": "A", "protocol": "moe"}], DataError),
            "no run of main was evaluated as the column 'A' says: seen/moe/test/accuracy_client",
        ),
    ],
)
def test_views_that_do_not_exist_are_refused(viewed, columns, error, complaint):
    with pytest.raises(error, match=complaint):
        build("views", *viewed, columns=columns)
