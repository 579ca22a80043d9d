"""Exhibits of pFedMoE: published cells with sources, costs to a target, clients and experts."""

import made_up
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from fedlib.errors import ConfigError, DataError
from fedlib.report import embeddings, metrics, printed
from fedlib.report.figures import style
from fedlib.results import RunResult, View
from fedlib.workflow.provenance import ROOT

PUBLISHED = printed.read(ROOT / "fedlib/papers/pfedmoe/published.csv")
DEFAULT = View("seen", "default", "test")
MIB = 2**20
ROUNDS = (0, 10, 20, 30)
CURVES = {  # mean accuracy of two clients at ROUNDS: the second is 0.2 above the first
    "pfedmoe": (0.20, 0.60, 0.90, 0.80),
    "standalone": (0.20, 0.70, 0.70, 0.70),
    "fml": (0.20, 0.20, 0.30, 0.40),
    "fedkd": (0.20, 0.50, 0.40, 0.50),
}
METHODS = {"standalone": "local"}


def federation(dataset="cifar10", number=10, **changes) -> dict:
    about = {"dataset": dataset, "family": dataset}
    about |= {"partition": {"kind": "path_line", "num_clients": number}}
    return made_up.federation(f"{dataset}-n{number}", f"{dataset}, N = {number}", **about | changes)


HERE = (federation(),)


def shown(labels=tuple(CURVES), where=HERE, seeds=(0, 1), **changes) -> dict:
    runs = made_up.runs(labels, where, 30, METHODS)
    about = {"paper": "pfedmoe", "federations": list(where), "runs": runs}
    return made_up.exhibit([], (), seeds, **{**about, **changes})


def history(label, seed=0, diagnostics=None) -> RunResult:
    """Seed 1 is 0.02 below seed 0; a round sends 1 MiB each way for each of two clients."""
    mean = np.array(CURVES[label])[:, None] - 0.02 * seed
    done = np.asarray(ROUNDS)
    return made_up.result(
        {DEFAULT: made_up.scores(mean + np.array([-0.1, 0.1]), [100, 100])},
        done,
        bytes_down=2 * MIB * done,
        bytes_up=2 * MIB * done,
        client_rounds=2 * done,
        diagnostics={metrics.FLOPS: np.array([5e6]), **(diagnostics or {})},
    )


def collect(exhibit, diagnostics=None) -> tuple[pd.DataFrame, pd.DataFrame]:
    def make(run, seed):
        found = history(run["label"], seed, diagnostics)
        return found, made_up.evaluation(found)

    return made_up.collect(exhibit, make)


def build(kind, exhibit, numbers=PUBLISHED, frames=None, **params):
    return made_up.build(kind, exhibit, *(frames or collect(exhibit)), numbers, **params)


def draw(kind, exhibit, frames=None, **params):
    return made_up.draw(kind, exhibit, *(frames or collect(exhibit)), PUBLISHED, **params)


# Accuracy beside what is published, and where that is from

SOURCES = [
    {"name": "sibling", "mark": "s", "title": "of a sibling paper"},
    {"name": "inferred", "mark": "i", "title": "not printed"},
]
BESIDE = {
    "sources": SOURCES,
    "names": {"cifar10-n10": "heterogeneous-n10"},
    "others": {"pfedes": "pFedES"},
}


@pytest.fixture(scope="module")
def beside():
    return build("beside_published", shown(published="sibling-heterogeneous"), **BESIDE)


def test_best_is_the_round_of_the_highest_pooled_accuracy_of_each_seed(beside):
    numbers = beside.numbers.set_index("label")
    assert numbers.loc["pfedmoe", "mean"] == pytest.approx(0.79)  # last, of 0.80 and 0.78
    assert numbers.loc["pfedmoe", "best_mean"] == pytest.approx(0.89)  # at round 20
    assert numbers.loc["pfedmoe", "difference"] == -0.0758  # 89.0 - 96.58

    exhibit = shown()
    tidy, clients = collect(exhibit)  # as if the pooled accuracy were highest at round 10
    first = (tidy["at"] == "round") & (tidy["round"] == 10)
    frames = pd.concat([tidy[tidy["at"] != "best"], tidy[first].assign(at="best")]), clients
    other = build("beside_published", exhibit, None, frames, **BESIDE).numbers.set_index("label")
    assert other.loc["pfedmoe", "best_mean"] == pytest.approx(0.59)
    about = {"federation": "cifar10-n10", "metric": "accuracy_client_mean", "at": "best"}
    terms = [{**about, "label": label} for label in ("pfedmoe", "standalone")]
    order = {"title": "order", "source": "us", "kind": "ascending", "terms": terms}
    sheet = build("criteria", exhibit, None, frames, criteria=[order])
    assert sheet.numbers["value"].tolist() == ["59.0, 69.0"]
    groups = [{"title": "all", "labels": ["standalone"], "gain": "gain"}]
    found = build("gains", exhibit, None, frames, of="pfedmoe", groups=groups).numbers
    assert found["gain"].tolist() == [-0.1]


def test_a_table_beside_published_numbers_is_of_federations_that_it_shows():
    with pytest.raises(ConfigError, match="names must be of cifar10-n10, got mnist-n10"):
        build("beside_published", shown(), **{**BESIDE, "names": {"mnist-n10": "x"}})


# Traffic and FLOPs to a target


def ends_at(target) -> list[float]:
    """Where the dots of pFedMoE are."""
    figure = draw("cost_to_target", shown(), targets={"cifar10-n10": target})
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    return [line.get_xdata()[0] for line in lines if line.get_label() == "PFEDMOE"]


def test_costs_are_those_at_the_first_evaluated_round_that_reaches_the_target():
    # After 10 rounds with both seeds, 0.60 and 0.58; two clients send 1 MiB up and down.
    assert ends_at(0.58) == pytest.approx([10 * 4 * 2**20, 10 * 1000 * 5e6])


def test_a_federation_without_a_target_is_refused():
    with pytest.raises(ConfigError, match=r"number in \(0, 1\] for cifar10-n10"):
        draw("cost_to_target", shown(), targets={})


def test_a_run_without_flops_is_named():
    exhibit = shown(["pfedmoe"])
    frame, clients = collect(exhibit)
    frames = frame[frame["metric"] != metrics.FLOPS], clients
    with pytest.raises(DataError, match="cifar10-n10/pfedmoe has no flops until the target"):
        draw("cost_to_target", exhibit, frames=frames, targets={"cifar10-n10": 0.5})


# Gains


def test_gains_over_a_group_that_did_not_run_are_refused():
    with pytest.raises(DataError, match="no run of pfedmoe, or none of others"):
        build("gains", shown(), of="pfedmoe",
              groups=[{"title": "others", "labels": ["fd"], "gain": "gain"}])  # fmt: skip


# Clients


def test_differences_of_more_clients_than_bars_can_show_are_one_sorted_curve():
    seeds, number = (1, 2), style.CROWDED + 1
    ahead = np.linspace(-0.2, 0.2, number)  # of client 0, 1, ...; a seed adds or takes 0.01
    clients = pd.DataFrame(
        [
            {"label": label, "seed": seed, "client": client, "accuracy": accuracy}
            for seed, shift in zip(seeds, (-0.01, 0.01), strict=True)
            for client in range(number)
            for label, accuracy in (("fd", 0.5), ("pfedmoe", 0.5 + ahead[client] + shift))
        ]
    ).assign(paper="pfedmoe", federation="cifar10-n10", at="last", count=10, **DEFAULT._asdict())
    exhibit = shown(["fd", "pfedmoe"], seeds=seeds)
    figure = draw("client_differences", exhibit, (None, clients), of="pfedmoe")
    (axes,) = figure.axes
    better, mean, band = (steps.get_data() for steps in axes.patches)
    assert mean.values == pytest.approx(ahead[::-1])
    assert better.values == pytest.approx(np.maximum(ahead[::-1], 0)) and better.baseline == 0
    assert band.values == pytest.approx(ahead[::-1] + 0.01)
    assert band.baseline == pytest.approx(ahead[::-1] - 0.01)
    assert mean.edges[[0, -1]].tolist() == [0.5, number + 0.5]
    assert axes.get_xlabel() == "Client, sorted by difference"


def test_differences_need_something_to_be_compared_with():
    with pytest.raises(DataError, match="no run of pfedmoe, or none to compare it with"):
        draw("client_differences", shown(["pfedmoe"]), of="pfedmoe")


# Weights of the gate


def gate_weights(**changes) -> dict:
    bins = np.zeros((2, 20))
    bins[0, 19], bins[1, 0], bins[1, 19] = 4, 3, 1
    means = np.array([[0.9, np.nan, 0.8], [np.nan, 0.1, 0.3]])
    return {"local_weight_bins": bins, "local_weights": means, **changes}


def test_clients_are_called_by_their_names():
    exhibit = shown(["pfedmoe"])
    names = gate_weights(client_name=np.array(["b", "a"]))
    figure = draw("expert_weights", exhibit, collect(exhibit, names))
    assert [figure.axes[1].yaxis.get_major_formatter()(row) for row in (0, 1)] == ["b", "a"]


# Representations


def recorded(clients=2, examples=6, features=24) -> dict:
    """Three kinds of vectors; client 1 has but four examples."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(examples) % 2, (clients, 1)).astype(float)
    vectors = rng.normal(0, 0.1, (clients, examples, 3, features)) + labels[..., None, None]
    vectors[1, 4:], labels[1, 4:] = np.nan, np.nan
    return {"representations": vectors, "representation_labels": labels}


def test_components_and_labels_come_back_from_the_metrics():
    rows = metrics.run_rows(history("pfedmoe", diagnostics=recorded()))
    points = embeddings.of_metrics(rows)
    assert points.vectors.shape == (6 + 4, 3, embeddings.COMPONENTS)
    assert points.client.tolist() == [0] * 6 + [1] * 4
    assert points.label.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    theirs = rows[rows["metric"].str.startswith("representation")]
    assert set(theirs["at"]) == {"last"} and set(theirs["round"]) == {30}


def test_components_keep_the_distances_of_vectors_that_span_few_dimensions():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 50))
    short = embeddings.leading(vectors)

    def distances(x):
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    assert distances(short) == pytest.approx(distances(vectors), abs=1e-9)  # rounding


def test_labels_of_representations_are_no_columns_of_clients():
    rows = metrics.client_rows(history("pfedmoe", diagnostics=recorded()))
    assert set(rows) - set(metrics.CLIENT_COLUMNS) == set()


def test_labels_that_do_not_go_with_the_vectors_are_refused():
    odd = recorded() | {"representation_labels": np.zeros((2, 5))}
    with pytest.raises(DataError, match=r"got shapes \(2, 6, 3, 24\) and \(2, 5\)"):
        metrics.run_rows(history("pfedmoe", diagnostics=odd))


@pytest.mark.slow
def test_every_kind_of_vector_has_a_panel_with_all_examples():
    exhibit = shown(["pfedmoe"])
    frames = collect(exhibit, recorded())
    figure = draw("representations", exhibit, frames, kinds=["r_G", "r_F", "r"])
    assert [axes.get_title() for axes in figure.axes] == ["r_G", "r_F", "r"]
    for axes in figure.axes:
        dots = [c for c in axes.collections if isinstance(c, PathCollection)]
        assert sum(len(c.get_offsets()) for c in dots) == 6 + 4
        assert len(dots) == 4  # two clients with two classes each


def test_names_must_be_as_many_as_the_kinds():
    exhibit = shown(["pfedmoe"])
    with pytest.raises(ConfigError, match="recorded 3 kinds of vectors, got names for 2"):
        draw("representations", exhibit, collect(exhibit, recorded()), kinds=["r_G", "r_F"])
