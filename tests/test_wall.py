"""The wall: every published number beside ours, or what it costs."""

from pathlib import Path

import pandas as pd
import pytest

from fedlib import seals
from fedlib.cli import wall
from fedlib.report.wall import cells, page
from fedlib.workflow.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
FULL = ROOT / "docs/results/full"
CELL = {
    **{
        "paper": "a",
        "paper_title": "A paper",
        "table": "main",
        "table_title": "Main",
        "head": "EMNIST",
    },
    **{"published": 0.8, "reproduced": float("nan"), "difference": float("nan"), "seeds": 0},
    **{"machine": "", "hours": 1.25, "page": "", "title": "FedAvg"},
}
OURS = {"reproduced": 0.79, "difference": -0.01, "seeds": 3, "machine": "Xeon", "page": "x.md"}


@pytest.fixture(scope="module")
def fedmix():
    """The cells of FedMix."""
    found = wall.of_paper(Plan({"scale": "full", "papers": ["fedmix"]}), "fedmix", FULL)
    return wall.with_costs(found, pd.read_csv(FULL / wall.COSTS), FULL)


def test_every_published_number_of_a_table_is_a_cell_once_and_what_is_kept_is_beside_it(fedmix):
    assert len(fedmix) == 23 and not fedmix.duplicated([*cells.KEY]).any()
    run = fedmix[fedmix["seeds"] > 0].set_index(["federation", "label", "head"])
    known = run.loc["two-shard-mnist", "fedavg", "MNIST in two shards, New shard, p(s)"]
    assert (known["published"], known["reproduced"]) == (0.969, 0.97)  # as printed
    assert (known["page"], known["hours"]) == ("fedmix/REPORT.md", 0.2)  # it was timed
    left = fedmix[fedmix["seeds"] == 0]
    assert left["reproduced"].isna().all() and left["hours"].notna().all()


def test_the_kept_wall_is_what_would_be_written_now(fedmix):
    written = (FULL / "README.md").read_text(encoding="utf-8")
    for _, table in fedmix.groupby("table"):
        assert page.grid(table) in written


def test_a_cell_has_our_number_or_what_it_costs():
    told = page.text(pd.DataFrame([CELL, {**CELL, **OURS, "title": "pFedMM"}]), "a Xeon", ["y"])
    assert "**1 of 2 cells were run; 1 of these are within two points.**" in told
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in told.splitlines() if "|" in line]
    assert ["FedAvg", "80.0 · 1.2 h"] in rows and ["pFedMM", "80.0 **79.0** −1.0"] in rows
    assert ["[A paper](x.md)", "EMNIST", "pFedMM", "80.0", "**79.0**", "−1.0", "3"] in [
        row[:7] for row in rows
    ]
    assert "The packs of y are of a version" in told and "Estimates are for a Xeon." in told


def test_the_picture_has_a_point_for_each_cell(tmp_path):
    page.draw(pd.DataFrame([{**CELL, **OURS}] * 2), tmp_path / "a.svg", tmp_path / "a.png")
    assert "A paper: 2 of 2 within two points" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_what_was_estimated_here_replaces_older_estimates_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = [("fedmix", "cifar10", "fedavg", 9, 9, "old", is_timed) for is_timed in (False, True)]
    columns = [*wall.RUN, "hours", "gb", "machine", wall.MEASURED]
    pd.DataFrame(old, columns=columns).to_csv("costs.csv", index=False)
    both = {"seconds": 1800, "flops": 1, "mb": 2000}
    (tmp_path / "results/full").mkdir(parents=True)
    run = {"fedmix/cifar10/fedavg": {"train": both, "evaluate": both}}
    seals.write_json("results/full/estimates.json", {"machine": "new", "runs": run})
    plan = Plan({"scale": "full", "papers": ["fedmix"]})
    found = wall.costs_of(plan, Path("costs.csv"), pd.DataFrame(old, columns=columns))
    assert found[["hours", "gb", "machine"]].values.tolist() == [[1, 2, "new"], [9, 9, "old"]]
