"""Exhibits of trainings that are evaluated in several ways: protocols, clusters, gates, claims."""

import made_up
import numpy as np
import pandas as pd
import pytest

from fedlib.errors import DataError
from fedlib.papers import adaptive_experts
from fedlib.report import comparisons, printed
from fedlib.report.figures import ranked
from fedlib.report.inputs import Inputs
from fedlib.report.metrics.tidy import client_rows
from fedlib.report.pages import contents
from fedlib.results import RunResult, View
from fedlib.workflow.provenance import ROOT

PUBLISHED = printed.read(ROOT / "fedlib/papers/adaptive_experts/published.csv")
PATTERN = "table2-p{p:.1f}-{label}"
DATA = made_up.majority(0.2)
RUNS = [
    {**run, "params": {"num_experts": 6, "exploration": run["label"]}}
    for run in made_up.runs(("eps", "none"), DATA, 30)
]
EXHIBIT = made_up.exhibit([], (), (1,), paper="adaptive_experts", federations=DATA, runs=RUNS)


def rows(**columns) -> pd.DataFrame:
    """A row of both runs with these columns."""
    about = {"paper": "adaptive_experts", "federation": "cifar10-p0.2", "seed": 1, "at": "last"}
    view = {"group": "seen", "protocol": "default", "split": "test"}
    return pd.DataFrame({**about, **view, "label": x, **columns} for x in ("eps", "none"))


# Metrics: diagnostics of clients, and of rounds


def single(diagnostics) -> RunResult:
    """Of three clients, at the rounds 0, 1 and 2."""
    scores = {View("seen", "default", "test"): made_up.scores(np.full((3, 3), 0.5), [4, 4, 4])}
    return made_up.result(scores, range(3), diagnostics=diagnostics)


def test_rows_of_clients_have_the_names_that_a_user_gave(tmp_path):
    names = np.array(["clinic 3", "é", "clinic 1"])
    single({"client_name": names}).save(tmp_path / "a.h5")
    rows = client_rows(RunResult.load(tmp_path / "a.h5"))
    assert rows["client"].tolist() == [0, 1, 2] * 2
    assert rows["client_name"].tolist() == [*names] * 2  # at the last round and at the best


def test_a_diagnostic_may_not_take_the_name_of_a_column():
    with pytest.raises(DataError, match="may not be called loss"):
        client_rows(single({"loss": np.ones(3)}))


# Protocols and variants


def test_a_published_number_is_found_by_pattern_for_its_own_data_only():
    def value(pattern, *where):
        exhibit = made_up.read({"published": pattern})
        return comparisons.find_published(Inputs(exhibit, None, None, PUBLISHED), *where)

    both = [*made_up.majority(1), *made_up.majority(1, dataset="digits")]
    here, other = made_up.read({"federations": both}).federations
    assert value(PATTERN, here, "eps", "moe", "accuracy") == 0.9076
    assert value(PATTERN, here, "none", "ifca", "accuracy_std") == 0.0207
    assert value(PATTERN, here, "eps", "all", "num_trials") == 14
    assert np.isnan(value(PATTERN, other, "eps", "moe", "accuracy"))
    assert np.isnan(value(PATTERN, here, "eps-j3", "moe", "accuracy"))


def test_spreads_over_trials_are_compared_as_the_text_of_the_paper_does():
    params = adaptive_experts.declare("full").tables["spreads"].params
    pairs = {"eps/moe": (0.80, 0.82), "none/ifca": (0.50, 0.55), "eps/local": (0.70, 0.71)}
    data = {"federations": made_up.majority(1.0), "published": "text", "seeds": (1, 2)}
    data["runs"] = [{**run, "federation": "cifar10-p1.0"} for run in RUNS]
    about = {"federation": "cifar10-p1.0", "metric": comparisons.MEAN}
    tidy = pd.concat(
        rows(**about).assign(label=label, protocol=way, seed=seed, value=value)[:1]
        for (label, way), values in ((name.split("/"), x) for name, x in pairs.items())
        for seed, value in enumerate(values, start=1)
    )
    sheet = made_up.build("spreads", EXHIBIT | data, tidy, None, PUBLISHED, **params)
    assert sheet.numbers["mean"].tolist() == pytest.approx([1 - 2 / 5, 1 - 1 / 2])
    assert sheet.numbers["published"].tolist() == [0.6039, 0.6098]
    assert len(contents.pick_published(sheet.numbers)) == 2
    assert "(–" not in str(sheet.blocks)  # of both seeds together: no seed has a number
    alike = tidy.assign(value=tidy["value"].where(tidy["label"] == "eps", 0.5))
    sheet = made_up.build("spreads", EXHIBIT | data, alike, None, PUBLISHED, **params)
    assert np.isnan(sheet.numbers["mean"][0])  # no ratio to a deviation of 0


# Figures


def test_a_federation_shows_the_variants_that_it_has():
    other = {**RUNS[1], "federation": "cifar10-p1.0"}
    fewer = EXHIBIT | {"runs": [RUNS[0], other], "federations": made_up.majority(0.2, 1)}
    clients = rows(client=0, choice=1)
    clients.loc[1, "federation"] = "cifar10-p1.0"
    drawn = made_up.draw("cluster_usage", fewer, None, clients, None)
    bars = [axes.containers for axes in drawn.axes if axes.containers]
    assert [len(one) for one in bars] == [1, 1]
    first, second = (one[0][0] for one in bars)
    assert first.get_x() == second.get_x() and first.get_facecolor() != second.get_facecolor()


def test_even_use_is_of_as_many_experts_as_a_variant_has():
    fewer = {**RUNS[1], "params": {"num_experts": 2, "exploration": "none"}}
    clients = pd.concat(rows(client=client, choice=client % 2) for client in range(12))
    drawn = made_up.draw("cluster_usage", EXHIBIT | {"runs": [RUNS[0], fewer]}, None, clients, None)
    assert {y for line in drawn.axes[0].get_lines() for y in line.get_ydata()} == {12 / 6, 12 / 2}


@pytest.mark.parametrize(
    ("labels", "shown"),
    [(("eps", "none"), True), (("eps",), True), (("none",), False), (("local",), False)],
)
def test_spreads_need_both_runs_of_a_pair(labels, shown):
    paper = adaptive_experts.declare("full")
    runs = [x for x in paper.runs if x.label in labels and x.federation == "cifar10-p1.0"]
    assert len(runs) == len(labels)
    assert (paper.tables["spreads"].narrow(runs) is not None) == shown


def test_a_run_with_fewer_experts_has_empty_places_before_the_local_one():
    drawn = ranked.pad(np.array([[0.3, 0.1, 0.6]]), 4)
    assert drawn.tolist() == [[0.3, 0.1, 0.0, 0.0, 0.6]]
