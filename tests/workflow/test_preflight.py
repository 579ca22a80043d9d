"""What a plan is made of is built when it is checked: mistakes fail there and not in a job."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import LOCAL, toy_paper, toy_run
from workflow import python

from fedlib import models
from fedlib.data.build import check as cut
from fedlib.errors import ConfigError, DataError
from fedlib.files import write_text
from fedlib.run.check import check as build
from fedlib.run_spec import TUNING, RunSpec
from fedlib.spec import SCALES, Data
from fedlib.workflow import preflight
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

MODEL = {"in_features": 64, "hidden": [8], "num_classes": 10}
GATE = {"model": "mlp", "params": MODEL}


IN_FOUR = {"kind": "iid", "num_clients": 4}
# What a paper declares beside a run on files of a user's own.
OWN = {"data": (Data("mine", "own", IN_FOUR, 0, "", "", {"source": "shapes"}),)}
OWN |= {"tables": {}, "figures": {}}


def run(label="fedavg", **changes):
    return toy_run(label=label, **{"model_params": MODEL} | changes)


@pytest.fixture
def plan(declare, tmp_path, monkeypatch):
    """Function that plans a toy paper of runs on digits; what was built is remembered apart."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def make(*runs, **changes):
        declare(toy=lambda scale: toy_paper(scale, federations=("digits",), runs=runs, **changes))
        return Plan({})

    return make


@pytest.fixture
def answers(monkeypatch):
    """Function that has the script give an answer by stage; returns the list of what it is asked

    Without a library for the stage `missing`, none of its answers last.
    """

    def give(missing=None, **by_stage):
        asked = []

        def script(command, *, input, **_):
            found = json.loads(input)
            asked.extend(stage for stage, _ in found)
            told = json.dumps([(by_stage.get(s, ""), s != missing) for s, _ in found])
            return SimpleNamespace(returncode=0, stdout=told, stderr="told once\ntold once\n")

        monkeypatch.setattr(subprocess, "run", script)
        return asked

    return give


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"params": {"num_expert": 3}}, r"fedem: unknown hyper-parameters \['num_expert'\]; "),
        ({"method": "fedsgd"}, "method fedsgd: no method 'fedsgd'; nearest: fed"),
        ({"model": "vgg"}, "model vgg: no model 'vgg'; there are: "),
        ({"params": {"num_experts": 0}}, "fedem: num_experts must be .*, got 0"),
        ({"local": LOCAL | {"batch_size": 0}}, "fedem: batch_size must be at least 1, got 0"),
        ({"local": LOCAL | {"lr": "a"}}, "fedem: lr must be a finite number, got 'a'"),
        ({"model_params": MODEL | {"hide": 1}}, "model mlp: .* unexpected keyword argument 'hide'"),
        ({"modules": {"gate": GATE}}, r"fedem: unknown modules \['gate'\]"),
        ({"weights": "mobilenet_v2_weights"}, "model mlp: it cannot start from the weights"),
        ({"participation": {"rat": 1}}, "course: .* unexpected keyword argument 'rat'"),
        ({"participation": {"rate": 2}}, r"rate must be in \(0, 1\], got 2"),
        (
            {"method": "local", "params": {}, "participation": {"aggregation": "gossip"}},
            "Local needs a server",
        ),
        ({"class_weights": (1, 2)}, r"class_weights must be 10 numbers .* got \(1, 2\)"),
        ({"model_params": MODEL | {"hidden": 0}}, r"mlp: sizes must be .* shape \[0, 64\]"),
    ],
)
def test_a_run_that_could_not_be_built_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(run(**{"label": "fedem", "params": {"num_experts": 3}} | changes).spec(0))


@pytest.mark.parametrize(
    "tuning, message",
    [
        ({"rates": [0.1, float("inf")]}, "lr must be a finite number"),
        ({"protocol": "tuned"}, "fedavg: tuning.protocol must be one of default, got 'tuned'"),
    ],
)
def test_a_trial_of_a_tuning_that_cannot_be_built_is_refused(tuning, message):
    with pytest.raises(ValueError, match=message):
        build(replace(run().spec(0), tuning={"trials": 2, "rates": [0.1, 0.2]} | tuning))


def test_a_complaint_names_all_that_share_it_and_nothing_wrong_is_remembered(plan, answers):
    made = plan(run(), run(title="the same", label="again", method="fedavg"))
    answers(train="no good", partition="nor that")
    message = (
        r"^papers.toy.runs\[digits/fedavg\] and 1 more: no good\n"
        r"  papers.toy.data\[digits\]: nor that$"
    )
    with pytest.raises(ConfigError, match=message):
        preflight.check(made)
    asked = answers()
    preflight.check(made)  # the good ones are known by now
    assert asked == ["train", "partition"]


def test_what_was_built_is_not_built_again_for_other_seeds_or_another_name(plan, answers):
    asked = answers()
    preflight.check(plan(run()))
    assert sorted(asked) == ["partition", "train"]
    preflight.check(plan(run(label="renamed", method="fedavg"), seeds=(9,)))
    assert len(asked) == 2
    preflight.check(plan(run(rounds=21)))
    assert asked[2:] == ["train"]


def test_what_cannot_be_built_here_is_told_once_and_not_remembered(plan, answers, capsys):
    made = plan(run())
    asked = answers(missing="train")
    preflight.check(made)
    assert capsys.readouterr().err == "told once\n"
    preflight.check(made)
    assert asked.count("train") == 2 and asked.count("partition") == 1


def test_a_folder_that_may_not_be_written_is_named_before_anything_runs(
    plan, answers, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    answers()
    for folder, message in (
        (tmp_path, f"{tmp_path} is not writable, and Snakemake keeps its cache in it; set XDG"),
        (Path("data/raw"), "data/raw is not writable, and data/raw/digits.json is to be writ"),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(preflight.os, "access", lambda path, mode, own=folder: path != own)
        with pytest.raises(ConfigError, match=message):
            preflight.check(plan(run()))
    (tmp_path / "data/raw/digits.json").touch()
    preflight.check(plan(run()))


def test_a_full_disk_folders_of_odd_names_and_a_user_without_an_account_are_named_first(
    plan, answers, monkeypatch
):
    answers()
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000))
    with pytest.raises(ConfigError, match="the disk of .* has 3.0 MB free; make room first"):
        preflight.check(plan(run()))
    monkeypatch.setattr(os, "getcwd", lambda: "/B\udcfccher")  # in Latin-1
    with pytest.raises(ConfigError, match="B.cher: work in a folder whose path is UTF-8"):
        preflight.check(plan(run()))
    monkeypatch.setattr(preflight, "ROOT", Path("{mine}"))
    with pytest.raises(ConfigError, match="{mine}: move the checkout to a path without braces"):
        preflight.check(plan(run()))
    for place, name, lacking in (
        (preflight, "cache_folder", lambda: Path("~nobody-here").expanduser()),
        (preflight.getpass, "getuser", lambda: {}["uid not found: 12345"]),
    ):
        monkeypatch.setattr(place, name, lacking)
        with pytest.raises(ConfigError, match="this user has no account; set USER and HOME"):
            preflight.check(plan(run()))


def test_files_of_ones_own_that_are_missing_are_named_unless_they_are_cut(plan, answers):
    answers()
    plan(run(federation="mine"), **OWN)
    with pytest.raises(ConfigError, match="data/raw/own/shapes does not exist, .* mine is cut"):
        preflight.check(Plan({}))
    Path("data/raw/own/shapes").mkdir(parents=True)
    Path("data/raw/own/shapes/.#1.png").symlink_to("nowhere")  # hidden, as Emacs makes it
    preflight.check(Plan({}))
    Path("data/raw/own/shapes/1.png").symlink_to("nowhere")
    with pytest.raises(DataError, match="shapes/1.png is a link to a file that does not exist"):
        preflight.check(Plan({}))
    shutil.rmtree("data/raw/own")
    write_text(Plan({}).path("manifest", paper="toy", federation="mine"), "")
    preflight.check(Plan({}))


METHOD = """
from dataclasses import dataclass
from fedlib.methods.fedavg import FedAvg

print("loaded")


@dataclass(frozen=True, kw_only=True)
class Loud(FedAvg):
    def __post_init__(self):
        FedAvg.__post_init__(self)
        assert self.task.num_outputs < {most}, "too many classes"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "answer"),
    [(11, ""), (10, "too many classes"), ("exit()", "its method must not call sys.exit")],
)
def test_a_users_file_may_print_and_assert_and_must_not_exit(tmp_path, most, answer):
    (tmp_path / "loud.py").write_text(METHOD.format(most=most))
    spec = run(method=str(tmp_path / "loud.py")).spec(0).to_json() | {"groups": []}
    how = {"data": OWN["data"][0].spec(0), "raw": "", "executor": "auto"}  # without these data
    asked = json.dumps([("train", spec | {"trial": how})])
    done = python(ROOT / preflight.SCRIPT, cwd=tmp_path, input=asked, check=True)
    assert json.loads(done.stdout) == [[answer, True]] and "loaded" in done.stderr


@pytest.mark.usefixtures("in_this_process")
def test_own_data_without_a_source_are_refused_by_what_is_missing(plan):
    made = plan(run(federation="mine"), **OWN | {"data": (replace(*OWN["data"], params={}),)})
    Path("data/raw/own").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"data\[mine\]: data set own needs .* .source."):
        preflight.check(made)


def test_the_trial_of_a_users_file_is_of_the_data_as_they_are_wherever_it_is_declared(
    plan, answers, tmp_path
):
    asked = answers()
    (tmp_path / "loud.py").write_text(METHOD.format(most=11))
    plan(run(federation="mine", label="loud", method=str(tmp_path / "loud.py")), **OWN)
    Path("data/raw/own/shapes").mkdir(parents=True)
    for text, number in (("some", 1), (None, 1), ("others", 2)):
        if text:
            Path("data/raw/own/shapes/x.txt").write_text(text)
        preflight.check(Plan({}))
        assert asked.count("train") == number


def test_published_files_are_not_walked_through(plan, answers, monkeypatch):
    answers()
    monkeypatch.setattr(os, "walk", lambda *_, **__: pytest.fail("all of data/raw is walked"))
    preflight.check(plan(run()))


def test_a_check_that_was_killed_is_told_with_what_may_have_been_the_reason(plan, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=-9))
    with pytest.raises(ConfigError, match="check.py was ended by signal 9: .* too little memory"):
        preflight.check(plan(run()))


def test_building_takes_no_memory_for_values(monkeypatch):
    placed = []
    build_mlp = models.load("mlp").build

    def watched(**params):
        module = build_mlp(**params)
        placed.extend(value.device.type for value in module.parameters())
        return module

    monkeypatch.setattr(models.load("mlp"), "build", watched)
    build(run(model_params=MODEL | {"hidden": [5]}).spec(0))  # a size that no other test remembers
    assert set(placed) == {"meta"}


@pytest.mark.slow
def test_mistakes_of_all_kinds_are_found_by_the_script(plan):
    toy = toy_paper(runs=[run()], federations=("digits",))
    partition = {"kind": "iid", "num_client": 4, "train_fraction": 0.8}
    data = (Data("digits", "digits", partition, 0, "Digits", "iid"),)
    wrong = run(local=LOCAL | {"nesterov": True})
    made = plan(wrong, data=data, tables=toy.tables, figures=toy.figures)
    with pytest.raises(ConfigError) as raised:
        preflight.check(made)
    first, second = str(raised.value).splitlines()
    start = "papers.toy.runs[digits/fedavg]: method fedavg: local has unknown entries ['nesterov']"
    assert first.startswith(start)
    start = "papers.toy.data[digits]: partition iid has no parameter 'num_client'; it takes "
    assert second.strip().startswith(start)


UNBUILT = {"rounds", "seed", "evaluate_every"}  # of which any positive number can be built


@pytest.mark.slow
def test_everything_that_is_declared_can_be_built():
    plans = [Plan({"scale": scale}) for scale in SCALES[1:]]  # the first is a part of the second
    pieces = {}
    for where, (stage, spec, *_), _ in (x for plan in plans for x in preflight.list_builds(plan)):
        spec = json.loads(spec)
        if "tuning" in spec:
            spec["tuning"]["trials"] = 3  # in nothing else the scales differ
        pieces[stage, json.dumps({**spec, **{key: 1 for key in UNBUILT & spec.keys()}})] = where

    def run(spec):
        groups = spec.pop("groups")
        build(RunSpec.from_json(spec, *{TUNING} & spec.keys()), groups)

    checks, wrong = {"tune": run, "train": run, "partition": cut}, {}
    for (stage, spec), where in pieces.items():
        try:
            checks[stage](json.loads(spec))
        except ValueError as error:
            wrong[where] = str(error)
    assert pieces and wrong == {}
