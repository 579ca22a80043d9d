"""A selection adds to what a folder shows; what is left out is said."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from commands import RULES
from conftest import toy_paper, toy_run

from fedlib import papers, seals
from fedlib.data import downloads
from fedlib.spec.exhibits import KINDS, from_kind
from fedlib.spec.experts import TablesOverTime
from fedlib.spec.figures import AccuracyOverRounds, CostToTarget
from fedlib.workflow import preflight, remarks
from fedlib.workflow.freshness import (
    FOLLOWS,
    MISSING,
    RESULTS,
    Freshness,
    check,
    list_inputs,
    list_needs,
    list_open_jobs,
    make_plan,
)
from fedlib.workflow.plan import Plan


@pytest.fixture
def folder(tmp_path, monkeypatch, declare):
    """An empty folder to work in; papers one and two are declared."""
    monkeypatch.chdir(tmp_path)
    declare(
        one=lambda scale: toy_paper(scale, name="one"),
        two=lambda scale: toy_paper(scale, name="two", title="The other"),
    )
    return tmp_path


def finish(plan, **wrong):
    """Leave behind what a finished workflow would; origins of runs are `wrong` in these values."""
    cut = plan.files("receipt", "shards", "manifest")
    for path in (*cut, *plan.targets(), plan.path("metrics", paper="one")):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    for stage, job in plan.jobs():
        if stage in ("partition", "tune", "train", "evaluate"):
            (says,), beside = RESULTS[stage]
            path, *others = (Path(plan.path(file, **job)) for file in (says, *beside))
            read = seals.contents(*list_inputs(plan, stage, job))
            digests = plan.digest(stage, **job), plan.code(stage, **job), read
            made = seals.Made(*digests, seals.contents(*others))
            manifest = seals.content(plan.path("manifest", **job))
            path.write_text(f"{made._replace(**wrong if stage != 'partition' else {})} {manifest}")


def seeds(**config):
    """The seeds of the runs that the table of paper one shows, and those of the table."""
    plan = make_plan(config)
    spec = json.loads(plan.spec("table", paper="one", table="main"))
    runs = [(run["federation"], run["label"]) for run in spec["runs"]]
    names = [f"{federation}/{label}" for federation, label in runs]
    every = [plan.papers["one"].seeds_of(plan.run("one", *run)) for run in runs]
    return dict(zip(names, every, strict=True)), spec["seeds"]


FEDEM, FEDAVG = (("digits/fedem", "mnist/fedem"), ("digits/fedavg", "mnist/fedavg"))


@pytest.mark.parametrize("made", [{}, {"code": "0" * 16}])  # code of now, and older code
@pytest.mark.parametrize(
    "selection", [{"seeds": [4]}, {"labels": ["fedem"]}, {"runs": ["one/digits/fedem"]}]
)
def test_tables_show_what_is_finished_beside_what_is_selected(folder, selection, made):
    finish(Plan({}), **made)
    whole, plan = Plan({}), make_plan(selection)
    for stage, name in (
        ("metrics", {}),
        ("table", {"table": "main"}),
        ("figure", {"figure": "curves"}),
    ):
        assert plan.spec(stage, paper="one", **name) == whole.spec(stage, paper="one", **name)
    selected = {*Plan(selection).trainings("one")}
    assert plan.finished & {*plan.trainings("one")} == {*whole.trainings("one")} - selected
    built = [where for where, (stage, *_), _ in preflight.list_builds(plan) if stage == "train"]
    assert {f"papers.one.runs[{x.federation}/{x.label}]" for x in selected} <= {*built}
    assert len(built) == len({x[:3] for x in Plan(selection).trainings()})
    found, files = check(plan), {*plan.files("history", paper="one")}
    again = {plan.path("history", **x._asdict()) for x in selected} if made else set()
    assert {*found.outdated} & files == again and found.current & files == files - again


def test_seeds_of_earlier_selections_stay_in_tables(folder):
    finish(Plan({"seeds": [7], "labels": ["fedem"]}))
    assert seeds(seeds=[3], labels=["fedem"]) == (dict.fromkeys(FEDEM, (3, 7)), [3, 7])
    finish(Plan({"seeds": [3], "labels": ["fedem"]}))
    assert seeds() == ({**dict.fromkeys(FEDAVG, (3, 4)), **dict.fromkeys(FEDEM, (3, 4, 7))}, [3, 4])


def test_runs_that_nobody_declares_any_more_and_folders_of_other_names_are_left_alone(folder):
    finish(Plan({"seeds": [3], "labels": ["fedem"]}))
    for seed in (folder / "results").rglob("fedem/seed3"):
        if "runs" in seed.parts:
            shutil.copytree(seed, seed.with_name("seed3 copy"))
            shutil.copytree(seed, seed.parent.with_name("gone") / "seed3")
    assert seeds(seeds=[4], labels=["fedem"]) == (dict.fromkeys(FEDEM, (3, 4)), [3, 4])


def test_a_run_that_lacks_a_selected_seed_is_not_shown_and_that_is_told(folder):
    finish(Plan({"labels": ["fedem"], "seeds": [3]}))
    assert seeds(labels=["fedavg"]) == (dict.fromkeys(FEDAVG, (3, 4)), [3, 4])
    [line] = remarks.describe(make_plan({"labels": ["fedavg"]}))
    assert line.startswith("4 finished trainings are not shown, such as one/digits/fedem/seed3")
    assert seeds(labels=["fedavg"], seeds=[3])[0] == dict.fromkeys((*FEDAVG, *FEDEM), (3,))


@pytest.mark.parametrize("made", [{"spec": "0" * 64}, {"inputs": "0" * 64}])
def test_runs_of_other_settings_or_data_are_not_shown_and_that_is_told(folder, made):
    finish(Plan({}), **made)
    assert seeds(labels=["fedem"])[0] == dict.fromkeys(FEDEM, (3, 4))
    assert any("8 finished" in x for x in remarks.describe(make_plan({"labels": ["fedem"]})))


def test_runs_whose_data_would_be_cut_or_values_tuned_again_are_not_shown(folder, declare):
    tuning = {"seed": 9, "trials": 3, "rates": [0.01, 1.0]}
    runs = [toy_run("digits"), toy_run("digits", "fedem", tuning=tuning), toy_run("mnist")]
    declare(one=toy_paper(name="one", runs=runs))
    finish(Plan({}))
    every = dict.fromkeys(("digits/fedavg", "mnist/fedavg", "digits/fedem"), (3, 4))
    assert seeds(federations=["mnist"])[0] == every
    Path(Plan({}).path("trials", paper="one", federation="digits", label="fedem")).unlink()
    del every["digits/fedem"]
    assert seeds(federations=["mnist"])[0] == every
    Path(Plan({}).path("shards", paper="one", federation="digits")).unlink()
    assert [*seeds(federations=["mnist"])[0]] == ["mnist/fedavg"]


def test_a_name_that_the_other_keys_leave_without_a_run_is_told(folder, declare):
    runs = [toy_run("digits"), toy_run("mnist"), toy_run("digits", "fedem")]
    declare(one=toy_paper(name="one", runs=runs))
    given = {"labels": ["fedem", "fedavg"], "federations": ["mnist"]}
    assert "labels: fedem has no run" in "\n".join(remarks.describe(Plan(given)))
    given["federations"].append("digits")
    assert "no run" not in "\n".join(remarks.describe(Plan(given)))


def test_what_is_open_is_listed_with_its_cause(folder):
    plan = Plan({"papers": ["one"]})

    def causes():
        return Counter((x.stage, x.cause) for x in list_open_jobs(plan, check(plan), RESULTS))

    stages = Counter(stage for stage, _ in plan.jobs())
    assert causes() == {(stage, MISSING): number for stage, number in stages.items()}
    finish(plan, code="0" * 16)
    assert (causes()["train", "code changed"], causes()["partition", MISSING]) == (8, 0)
    finish(plan)
    (folder / plan.files("history")[0]).unlink()
    runs = {job: number for job, number in causes().items() if job[0] in ("train", "evaluate")}
    assert runs == {("train", MISSING): 1, ("evaluate", FOLLOWS): 1}
    others = {*plan.targets(), *plan.files("shards")} - {plan.files("table_json")[0]}
    todo = list_open_jobs(plan, Freshness({}, others), RESULTS)
    assert [(x.stage, x.cause) for x in todo] == [("table", MISSING), ("report", FOLLOWS)]


def test_shards_and_weights_are_made_first_if_an_open_job_reads_them_and_else_not(folder, declare):
    weights = downloads.weights()[0]
    declare(one=toy_paper(name="one", runs=[toy_run(weights=weights)]))
    finish(plan := Plan({}))
    receipt, [shards] = plan.path("receipt", dataset=weights), plan.files("shards")
    for file in (receipt, shards):
        Path(file).unlink()
    todo = list_open_jobs(plan, check(plan), RESULTS)
    assert list_needs(plan, todo) == [] and todo[0].stage == "metrics"
    Path(plan.files("evaluation")[0]).unlink()
    todo = list_open_jobs(plan, check(plan), RESULTS)
    assert list_needs(plan, todo) == [shards, receipt]
    assert [x.stage for x in todo[:3]] == ["download", "partition", "evaluate"]
    assert "        NEEDS,\n" in RULES
    # Where no receipt is, too, a training counts as of other data if those were cut otherwise.
    Path(plan.files("manifest")[0]).write_text("{}")
    assert check(plan).outdated[plan.files("history")[0]] == "input changed"


def test_files_of_ones_own_that_are_put_away_or_touched_concern_only_what_is_to_be_cut(
    folder, declare, monkeypatch
):
    monkeypatch.setattr(downloads, "with_names", lambda digest, *_: digest)
    seals.write_json(mine := Path("data/raw/own/mine/a.csv"), {})
    own = replace(toy_paper().data[0], dataset="own", params={"source": "mine"})
    declare(one=toy_paper(name="one", runs=[toy_run()], data=(own,)))
    finish(plan := Plan({}))
    shards, manifest = map(Path, plan.files("shards", "manifest"))
    put_away = [(mine.touch, True), (mine.unlink, True), (shards.unlink, True)]
    for change, done in (*put_away, (mine.touch, False), (manifest.unlink, False)):
        change()
        assert check(plan).current.issuperset(plan.files("receipt")) == done


def test_clients_that_a_partition_could_not_fill_are_told(folder):
    plan = Plan({"papers": ["one"]})
    for name, groups in (("digits", ["seen", "unseen", "server"]), ("mnist", ["seen"] * 3)):
        asked = {"partition": {"kind": "iid", "num_clients": 3}}
        path = folder / plan.path("manifest", paper="one", federation=name)
        seals.write_json(path, {"spec": asked, "group": groups})
    assert list(remarks.count_clients(plan)) == [
        "one/digits: 2 of 3 clients; the others would have too few examples to train and to be "
        "tested, and are left out"
    ]
    assert list(remarks.count_clients(Plan({"papers": ["two"]}))) == []  # nothing is cut yet
    everybody = {"partition": {"kind": "writer", "num_clients": None}}
    seals.write_json(path, {"spec": everybody, "group": ["seen"]})
    assert len(list(remarks.count_clients(plan))) == 1
    seals.write_json(path, {"spec": everybody, "group": ["seen"], "left_out": 2})
    assert [*remarks.count_clients(plan)][1].startswith("one/mnist: 1 of 3 clients; the others")
    path.write_text("damaged")
    assert len([*remarks.count_clients(plan)]) == 1


def test_a_report_is_of_the_selected_papers(folder):
    spec = json.loads(Plan({"papers": ["two"]}).spec("report"))
    assert [paper["name"] for paper in spec["papers"]] == ["two"]


def test_a_figure_shows_the_rounds_that_all_of_its_runs_come_to(declare):
    runs = [toy_run(), toy_run(label="short", method="fedavg", rounds=4)]
    labels, rounds = ("fedavg", "short"), [2, 4, 5, 20]
    figure = TablesOverTime("Tables", "", labels, ("digits",), rounds=rounds)
    declare(toy=toy_paper(federations=("digits",), runs=runs, figures={"tables": figure}))
    shown = Plan({"rounds": 6, "tag": "quick"}).papers["toy"].figures["tables"]
    assert shown.params["rounds"] == [2, 4]


def test_a_figure_of_what_is_recorded_later_is_left_out_and_that_is_told(declare):
    runs = [toy_run("digits", "fedavg", params={"table_rounds": [5, 10]}), toy_run("digits")]
    runs[1] = replace(runs[1], label="early", params={"table_rounds": [2]})
    both, one = (("fedavg", "early"), ("fedavg",))
    figures = {
        name: TablesOverTime(name, "", labels, ("digits",))
        for name, labels in (("both", both), ("late", one))
    }
    declare(toy=toy_paper(federations=("digits",), runs=runs, figures=figures))
    plan = Plan({"rounds": 4, "tag": "quick"})
    assert {key: found.labels for key, found in plan.papers["toy"].figures.items()} == {
        "both": ("early",)
    }
    [line] = remarks.describe(plan)
    assert line.startswith("figure toy/late is left out")
    assert list(Plan({"rounds": 5, "tag": "quick"}).papers["toy"].figures) == ["both", "late"]


BOTH = ("digits", "mnist")
THREE = ("fedavg", "fedem", "local")
Y = AccuracyOverRounds("T", "C.", THREE, BOTH)
RUNS_OF_DIGITS = [*(f"toy/digits/{label}" for label in THREE), "toy/mnist/fedavg"]
GROUPS = [["fedavg"], ["fedem", "local"]]
AGAINST = {"of": "fedem", "groups": [{"title": "", "labels": x, "gain": ""} for x in GROUPS]}
DIFFERENCE = {"columns": [{"federation": "mnist", "minus": "digits", "title": "Difference"}]}
ROWS = [{"title": label.upper(), "labels": [label]} for label in THREE]
CONTRASTS = {"rows": ROWS, "of": ["FEDEM"], "against": ["LOCAL", "FEDAVG"]}
SWEPT = {"methods": ["fedavg"], "parameter": "num_clients"}
BARS = {"pairs": [{"below": "digits", "above": "mnist"}], "bars": [], "names": ["a", "b"]}


@pytest.mark.parametrize(
    ("kind", "params", "selection", "left"),
    [
        ("gains", AGAINST, {}, ("digits", "mnist")),
        ("gains", AGAINST, {"labels": ["fedem", "fedavg"]}, ()),  # nothing of the second group
        ("gains", AGAINST, {"runs": RUNS_OF_DIGITS}, ("digits",)),
        ("client_differences", {"of": "fedem"}, {"labels": ["fedem"]}, ()),
        ("client_differences", {"of": "fedem"}, {"labels": ["fedem", "local"]}, BOTH),
        ("contrasts", CONTRASTS | {"registered": "."}, {"labels": ["fedem", "fedavg"]}, ()),
        ("contrast_points", CONTRASTS, {"runs": RUNS_OF_DIGITS}, ("digits",)),
        ("global_accuracy", DIFFERENCE, {"federations": ["mnist"]}, ()),
        ("gain_bars", BARS, {"federations": ["mnist"]}, ()),
        ("sweep", SWEPT, {"labels": ["fedem"]}, ()),  # a single value
        ("sweep", SWEPT | {"of": "federation"}, {"labels": ["fedem"]}, BOTH),
        ("sweep", SWEPT | {"of": "federation"}, {"federations": ["mnist"]}, ()),
    ],
)
def test_what_has_nothing_left_to_compare_is_left_out_and_said(
    declare, kind, params, selection, left
):
    runs = [toy_run(f, label) for f in BOTH for label in THREE]
    stage = "table" if kind in KINDS["table"] else "figure"
    exhibits = {"table": {}, "figure": {"y": Y}}
    exhibits[stage]["x"] = from_kind(stage, kind, params, "T", "C.", THREE, BOTH)
    declare(toy=toy_paper(runs=runs, tables=exhibits["table"], figures=exhibits["figure"]))
    plan = Plan({"tag": "part"} | selection)
    found = (plan.papers["toy"].tables | plan.papers["toy"].figures).get("x")
    assert (found.federations if found else ()) == left
    said = [line for line in remarks.describe(plan) if "toy/x is left out: too little" in line]
    assert len(said) == (not left)


def test_what_an_exhibit_says_of_a_federation_goes_with_it(declare):
    by_federation = {"targets": {"digits": 0.3, "mnist": 0.4}}
    figure = CostToTarget("T", "C.", ("fedavg",), BOTH, **by_federation)
    declare(toy=toy_paper(runs=[toy_run(f) for f in BOTH], figures={"y": figure}))

    def shown(**selection):
        plan = Plan({"tag": "part"} | selection)
        return json.loads(plan.spec("figure", paper="toy", figure="y"))["params"]

    assert shown() == by_federation
    assert shown(federations=["mnist"]) == {"targets": {"mnist": 0.4}}


@pytest.mark.parametrize("scale", ["demo", "reduced", "full"])
@pytest.mark.parametrize("name", papers.names())
def test_papers_name_no_federation_that_their_exhibit_does_not_show(name, scale):
    paper = papers.load(name).declare(scale)
    known = {data.name for data in paper.data}
    for exhibit in (*paper.tables.values(), *paper.figures.values()):
        for value in exhibit.params.values():
            named = known & {*value} if isinstance(value, dict) else set()
            assert named <= {*exhibit.federations}, exhibit.title
