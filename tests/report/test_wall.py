"""The wall: every published number, with ours beside it."""

import contextlib
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pictures
import pytest
from support import REPRODUCED

from fedlib.cli import wall
from fedlib.errors import ConfigError
from fedlib.forecast.estimates import TIMED, Estimate, Estimates
from fedlib.report import printed
from fedlib.report.wall import page, pairs
from fedlib.workflow.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
WALL = ROOT / wall.FOLDER
CELL = {
    **{"paper": "fedmix", "paper_title": "A paper", "source": "Its table", "exhibit": "main"},
    **{"row": "FedAvg", "label": "fedavg"},
    **{"dataset": "emnist", "metric": "accuracy", "published": 0.8, "seeds": 0},
}
OURS = {
    **{"title": "pFedMM", "data": "EMNIST", "measured": "All", "is_split": True, "seeds": 3},
    **{"reproduced": 0.77, "difference": -0.03, "machine": "Xeon", "hours": 1.25, "estimate": 1.55},
    "page": "x.md",
}


@pytest.fixture(scope="module")
def papers():
    """The published numbers of FedMix and pFedMM."""
    plan = Plan({"scale": "full", "papers": ["fedmix", "pfedmm"]})
    with contextlib.chdir(ROOT):  # as the command does
        costs = wall.costs_of(plan, wall.FOLDER / wall.COSTS)
        return {name: wall.of_paper(plan, name, costs) for name in plan.papers}


def test_every_published_number_is_there_once_and_what_is_kept_is_beside_it(papers):
    assert {name: len(found) for name, found in papers.items()} == {"fedmix": 23, "pfedmm": 135}
    run = papers["fedmix"][papers["fedmix"]["seeds"] > 0].set_index(["exhibit", "label"])
    known = run.loc["appendix-f-fedavg", "new_shard"]
    assert (known["published"], known["reproduced"]) == (0.969, 0.97)  # as printed
    assert (known["page"], f"{known['hours']:.2f}") == ("../fedmix/full/REPORT.md", "0.03")
    assert run.loc["table1", "fedmix-k4"]["title"] == "FedMix K=4 (bfloat16)"
    ours = papers["pfedmm"][papers["pfedmm"]["seeds"] > 0]
    # FedEM's table has some of these numbers, too, but on its own partition.
    assert {*ours["exhibit"]} == {"main", "curve-end", "curve-waypoints"}
    assert ours["is_split"].all()


def test_the_kept_wall_is_what_would_be_written_now(papers):
    written = (WALL / "README.md").read_text(encoding="utf-8")
    for found in papers.values():
        for _, numbers in found.groupby("source"):
            assert page.grid(numbers) in written


@pytest.mark.parametrize("paper", REPRODUCED)
def test_every_published_number_has_ours_beside_it_whichever_others_have_its_value(paper):
    file = ROOT / f"fedlib/papers/{paper}/published.csv"
    table, numbers = printed.read(file), pairs.read_published(file)
    perfect = pd.DataFrame(
        {"title": "/".join([exhibit, *where, metric]), printed.ROW: number.row, "seeds": 1}
        for exhibit, metric in {*zip(numbers["exhibit"], numbers["metric"], strict=True)}
        for where, number in printed.fractions(table, exhibit, metric).items()
    ).reindex(columns=pairs.NONE.columns)
    found = pairs.beside(numbers, perfect.sample(frac=1, random_state=1))
    names = numbers[["exhibit", "dataset", "label", "metric"]].agg("/".join, axis=1)
    assert found["title"].tolist() == names.tolist()
    assert not pairs.beside(numbers, pairs.NONE)["seeds"].any()


def test_numbers_whose_names_are_exchanged_are_also_compared_with_the_other_name(papers):
    found = pairs.pick_exchanged(papers["pfedmm"]).set_index(["exhibit", "label", "metric"])
    assert len(found) == 6  # of the table and of the ends of curves; FedEM's own table has none
    known = found.loc["main", "local", "bottom10"]
    assert (known["published"], known["reproduced"]) == (0.666, 0.669)
    assert (known["difference"], known["as_printed"]) == (0.003, 0.193)
    assert pairs.pick_exchanged(papers["fedmix"]).empty


def test_core_hours_are_of_the_seeds_that_recorded_them():
    spent = {"wall_seconds": 1, "cpu_seconds": 3600, "memory_bytes": 1}
    seeds = [[{"cpu": "Xeon", "spent": spent}] * 2, [{"cpu": "EPYC"}] * 2]
    assert pairs._costs(seeds) == ("Xeon, EPYC", 2)


def test_the_page_has_ours_beside_what_is_published():
    ours = CELL | OURS | {"row": "pFedMM", "federation": "emnist", "run": "pfedmm"}
    both = pd.DataFrame([CELL, ours])
    average = ours | {"federation": "all", "seeds": 1}  # of trainings that count already
    twice = page.text(pd.DataFrame([ours, ours | {"title": "Its gate"}, average]), "")
    assert "They come from 3 trainings;" in twice  # of three seeds, whatever they are called
    told = page.text(both, "a Xeon")
    assert "**1 of 2 published numbers have ours beside them; 0 of these are within two" in told
    assert "1 of the 1 are on images of EMNIST's test split alone (hollow in the picture)." in told
    assert "They come from 3 trainings;" in told
    why = "(../fedmix/README.md#off-by-more-than-two-points)"
    assert f"what was found:\n\n* [pFedMM]{why}, EMNIST, All: −3.0\n" in told
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in told.splitlines() if "|" in line]
    assert ["FedAvg", "80.0"] in rows and ["pFedMM", "80.0 **77.0** −3.0"] in rows
    cell = ["[A paper](x.md)", "EMNIST, All", "pFedMM", "80.0", "**77.0**", "−3.0", "3"]
    assert [*cell, "1.2", "1.6", "Xeon"] in rows
    assert "Estimates are for a Xeon." in told


def test_heads_have_what_tells_the_numbers_of_a_source_apart():
    three = [CELL | {"exhibit": f"table2-m{m}", "row": "FedAvg"} for m in (10, 50)]
    assert page.grid(pd.DataFrame(three)).startswith("|        | m10   | m50   |")
    two = [CELL, CELL | {"dataset": "cifar10", "metric": "f1"}]
    heads = "|        | emnist, accuracy   | cifar10, f1   |"
    assert page.grid(pd.DataFrame(two)).startswith(heads)


def test_the_picture_has_a_point_for_each_number_and_names_those_that_are_off(tmp_path):
    near = OURS | {"title": "Local", "difference": 0.0, "reproduced": 0.8, "is_split": False}
    curve = OURS | {"measured": "End of curve", "reproduced": 0.7755}
    run = pd.DataFrame([{**CELL, **OURS}, {**CELL, **near}, {**CELL, **curve}])
    page.draw(run, tmp_path / "a.svg", tmp_path / "a.png")
    text = (tmp_path / "a.svg").read_text()
    assert "A paper: 1 of 3 within two points" in text
    assert text.count("pFedMM, ") == 1 and "pFedMM, All and End of curve" in text
    assert "Local, All" not in text and "hollow" in text  # which is near
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_names_of_points_side_by_side_do_not_lie_on_each_other(monkeypatch):
    off = [OURS | {"difference": -0.1, "reproduced": 0.7 + 0.001 * number} for number in (0, 1)]
    one = {"title": "One", "published": 0.8}
    other = {"title": "Another", "published": 0.806, "measured": "Mean"}
    run = pd.DataFrame([CELL | off[0] | one, CELL | off[1] | other])
    drawn = []
    monkeypatch.setattr(page.saving, "save", lambda figure, *files: drawn.append(figure))
    page.draw(run)
    assert pictures.faults(drawn[0], fitted=False) == []


@pytest.mark.parametrize(("title", "side"), [(16 * "x", "right"), (40 * "x", "center")])
def test_a_name_that_would_leave_the_axes_or_lie_on_the_diagonal_stands_elsewhere(
    monkeypatch, title, side
):
    off = {"title": title, "difference": -0.03, "published": 0.995, "reproduced": 0.965}
    drawn = []
    monkeypatch.setattr(page.saving, "save", lambda figure, *files: drawn.append(figure))
    page.draw(pd.DataFrame([CELL | OURS | off]))
    [name] = drawn[0].axes[0].texts
    assert name.get_horizontalalignment() == side


def test_estimates_of_this_folder_are_taken_for_runs_that_have_none_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "costs.csv"
    old = [("fedmix", "cifar10", "fedavg", 9, 9, "old", is_timed) for is_timed in (False, True)]
    pd.DataFrame(old, columns=wall.COLUMNS).to_csv(file, index=False)
    names = ("cifar10/fedavg", "cifar10/fedmix-k2", "cifar10-x/fedavg")  # known, new, of no paper
    costs = {(f"fedmix/{name}", x): Estimate(1800, mb=2000) for name in names for x in TIMED}
    monkeypatch.setattr(Estimates, "read", lambda path: Estimates("core", "new", costs))
    found = wall.costs_of(Plan({"scale": "full", "papers": ["fedmix"]}), file)
    rows = found[["hours", "gb", "machine"]].values.tolist()
    assert rows == [[9, 9, "old"]] * 2 + [[1, 2, "new"]]


@pytest.mark.parametrize(
    "some",
    ["papers=[pfedmm]", "federations=[emnist]", "labels=[pfedmm]", "runs=[pfedmm/emnist/apfl]"],
)
def test_a_wall_of_some_runs_is_refused(some):
    with pytest.raises(ConfigError, match=f"the wall shows all runs, got {some[:4]}"):
        wall.main(Namespace(configfile=[], config=["scale=full", some]))


def test_a_wall_of_shortened_runs_is_refused():
    with pytest.raises(ConfigError, match="shows scale full only, got scale=reduced"):
        wall.main(Namespace(configfile=[], config=["scale=reduced"]))
