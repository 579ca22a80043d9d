"""A method from a user's file: where it is run and shown, what it depends on, each mistake."""

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import toy_paper, toy_run

from fedlib import methods
from fedlib.errors import ConfigError
from fedlib.run.check import check as build
from fedlib.run_spec import RunSpec
from fedlib.spec.figures import AccuracyOverRounds, Sweep
from fedlib.spec.tables import Accuracy, Gains
from fedlib.workflow import freshness, own_methods, preflight, provenance, remarks
from fedlib.workflow.plan import Plan

HEAD = """
from dataclasses import dataclass
from fedlib.engine.solvers import Solver
from fedlib.methods.base import Method
"""
MINE = (
    HEAD
    + """
@dataclass(frozen=True, kw_only=True)
class MyWay(Method):
    local: Solver
    strength: float = 0.5

    protocols = {"seen": {"default": "personalise"}, "unseen": {}}

    def init(self, num_clients, seed):
        return self.task.init(seed)

    def round(self, state, cohort):
        return state

    def personalise(self, state, cohort):
        return cohort.broadcast(state)
"""
)


PROTOCOLS = 'protocols = {"seen": {"default": "personalise"}, "unseen": {}}'
BARE = MINE.replace(PROTOCOLS, "")


@pytest.fixture
def mine(tmp_path):
    """Function that writes a file and returns its path."""

    def write(text=MINE, name="my_way.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_it_is_run_like_fedavg_wherever_that_is_run_but_with_hyper_parameters_of_its_own(
    mine, declare
):
    theirs = {"rounds": 7, "params": {"mu": 1.0}}
    runs = [
        toy_run("digits", "fedavg", title="FedAvg", notes=("Theirs.",), **theirs),
        toy_run("digits", "fedem"),
        toy_run("mnist", "fedem"),
    ]
    declare(toy=toy_paper(runs=runs))
    path = mine()
    plan = Plan({"methods": [path]})
    assert [key[1:] for key in plan.runs if key[2].startswith("own")] == [("digits", "own-my-way")]
    run, like = plan.run("toy", "digits", "own-my-way"), plan.run("toy", "digits", "fedavg")
    changed = {name for name, value in vars(run).items() if value != vars(like)[name]}
    assert changed == {"label", "title", "method", "params", "notes"}
    assert (run.title, run.method, run.params) == ("MyWay", path, {})
    note = f"A method of your own, from {path}; settings are those declared for FedAvg."
    assert run.notes == (note,)
    like_fedem = Plan({"methods": [f"{path}:fedem"]})
    assert [key[1] for key in like_fedem.runs if key[2] == "own-my-way"] == ["digits", "mnist"]
    tuning = {"seed": 9, "trials": 3, "rates": [0.01, 1.0]}
    declare(toy=toy_paper(runs=[toy_run(title="FedAvg", tuning=tuning)]))
    tuned = Plan({"methods": [path]}).run("toy", "digits", "own-my-way")
    assert tuned.notes == (f"A method of your own, from {path}; tuned like FedAvg.",)


def test_that_a_selection_leaves_it_without_a_run_is_said(mine, declare):
    declare(toy=toy_paper())
    path = mine()
    for selection, told in (
        ({"runs": ["toy/digits/fedavg"]}, "has no run among"),
        ({}, "run like"),
    ):
        [line] = own_methods.remarks(Plan({"methods": [path]} | selection).papers, [path], {})
        assert told in line


def test_it_is_the_last_row_of_what_shows_every_method_and_in_nothing_else(mine, declare):
    shown = {"title": "T", "caption": "C.", "labels": ("fedavg", "fedem")}
    shown |= {"federations": ("digits", "mnist")}
    sweep = {"parameter": "partition.alpha", "methods": ["fedavg", "fedem"]}
    tables = {
        "main": Accuracy(**shown),
        "fedem": Accuracy(**shown | {"labels": ("fedem",)}),
        "lead": Gains(**shown, of="fedem", groups=[]),
    }
    figures = {
        "clients": Sweep(**shown, **sweep, of="federation"),
        "experts": Sweep(**shown, **sweep, of="run"),
        "rounds": AccuracyOverRounds(**shown),
        "shard": AccuracyOverRounds(**shown, protocol="new_shard"),
    }
    declare(toy=toy_paper(tables=tables, figures=figures))
    path = mine()
    paper = Plan({"methods": [path]}).papers["toy"]
    both = paper.tables | paper.figures
    shown = [name for name, x in both.items() if x.labels[-1] == "own-my-way"]
    assert shown == ["main", "clients", "rounds"]
    assert paper.figures["clients"].params["methods"] == ["fedavg", "fedem", path]
    assert paper.figures["experts"].params["methods"] == ["fedavg", "fedem"]


def test_its_content_is_in_the_code_of_its_runs_and_of_no_other(mine, declare):
    declare(toy=toy_paper())

    def codes():
        provenance._scan.cache_clear()
        provenance._code_digest.cache_clear()
        provenance._closure.cache_clear()
        plan = Plan({"methods": [mine_path]})
        return {
            key[1:]: plan.code("train", **dict(zip(NAMES, key, strict=True))) for key in plan.runs
        }

    mine_path = mine()
    before = codes()
    mine("# A remark.\n" + MINE)
    assert codes() == before
    mine(MINE.replace("0.5", "0.6"))
    after = codes()
    changed = sorted(key for key in after if after[key] != before[key])
    assert changed == [("digits", "own-my-way"), ("mnist", "own-my-way")]
    roots = Plan({"methods": [mine_path]}).roots("train", **dict(zip(NAMES, KEY, strict=True)))
    assert "fedlib.engine.solvers" in provenance.closure(*roots)  # what the file imports


NAMES = ("paper", "federation", "label")
KEY = ("toy", "digits", "own-my-way")


def test_it_is_loaded_as_it_is_written_however_soon_and_alike(mine, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for strength in ("0.5", "0.7"):  # as many characters, and in bytecode a time of whole seconds
        path = mine(MINE.replace("0.5", strength))
        os.utime(path, (1, 1))
        assert methods.load(path).strength == float(strength)


def test_its_hyper_parameters_can_be_set_and_labels_do_not_leave_it_out(mine, declare):
    declare(toy=toy_paper())
    given = ["own-my-way.params.strength=2", "own-my-way.local.lr=0.5"]
    plan = Plan({"methods": [mine()], "tag": "t", "labels": ["fedem"], "set": given})
    assert [key[2] for key in plan.runs if key[1] == "digits"] == ["fedem", "own-my-way"]
    run = plan.run(*KEY)
    assert run.params == {"strength": 2} and run.local["lr"] == 0.5


def test_a_file_in_the_checkout_is_named_relative_to_it(tmp_path, monkeypatch, declare):
    declare(toy=toy_paper())
    monkeypatch.setattr(own_methods, "ROOT", tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/my_way.py").write_text(MINE)
    for text in ("mine/my_way.py", "./mine/../mine/my_way.py", f"{tmp_path}/mine/my_way.py"):
        assert own_methods.parse(text).path == "mine/my_way.py"
    monkeypatch.setenv("HOME", str(tmp_path / "mine"))
    assert own_methods.parse("~/my_way.py").path == "mine/my_way.py"
    assert own_methods._canonical("~nobody-here/my_way.py") == "~nobody-here/my_way.py"
    (tmp_path / "checkout").symlink_to(tmp_path)
    given = f"{tmp_path}/checkout/mine/my_way.py"
    assert own_methods.parse(given).path == "checkout/mine/my_way.py"
    monkeypatch.setattr(own_methods, "ROOT", tmp_path / "mine")
    assert own_methods.parse(given).path == "my_way.py"
    (tmp_path / "mine/linked").symlink_to(tmp_path / "mine")
    assert own_methods.parse("linked/my_way.py").path == "linked/my_way.py"
    monkeypatch.chdir(tmp_path)  # of a workflow that has this one as a module
    Path("theirs.py").write_text(MINE.replace("MyWay", "Theirs"))
    assert own_methods.parse("theirs.py").path == f"{tmp_path}/theirs.py"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "absent.py", r"methods: cannot read .*/absent.py: No such file or directory"),
        (MINE, "other.py", r"methods: .*/other.py has no class .* like the file, .*; it has MyWay"),
        ("class MyWay(:", "my_way.py", r"methods: .*/my_way.py, line 1: invalid syntax"),
        (MINE, "my_way.py:fedprox", r"no run fedprox in toy, to run MyWay like; .*: fedavg"),
    ],
)
def test_what_is_no_method_is_refused_before_anything_is_planned(
    tmp_path, mine, declare, text, name, message
):
    declare(toy=toy_paper())
    if text is not None:
        mine(text, name.partition(":")[0])
    with pytest.raises(ConfigError, match=message):
        Plan({"methods": [str(tmp_path / name)]})


def test_a_name_that_is_taken_is_refused(mine, tmp_path, declare):
    declare(toy=toy_paper(runs=[toy_run(label="fedavg", title="MyWay")]))
    with pytest.raises(ConfigError, match="toy has a run that tables call MyWay already; give the"):
        Plan({"methods": [mine()]})
    declare(toy=toy_paper())
    (tmp_path / "b").mkdir()
    with pytest.raises(ConfigError, match="toy has a run that tables call MyWay already"):
        Plan({"methods": [mine(), mine(name="b/my_way.py")]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1 / 0\nclass MyWay(Method): ...", r"my_way.py, line 5: ZeroDivisionError: divi"),
        (MINE.replace("strength: float = 0.5", "strength: float"), r"missing 1 required .*'streng"),
        (MINE.replace("def init", "def int"), "MyWay has no init, .* method needs; it has int: is"),
        (MINE + "\n    def diagnostic(self, s): ...\n", "has diagnostic, which nothing calls"),
        (MINE.replace("local: Solver", "local = None"), "MyWay.local has no type, so it would be"),
        (MINE.replace("@dataclass", "# "), "MyWay is not a dataclass; write @dataclass"),
        (BARE, 'MyWay does not say whom .* import ClassVar; protocols: ClassVar = {"seen'),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_runs(mine, text, message):
    config = {"papers": ["pfedmm"], "federations": ["synthetic"], "labels": ["fedavg"]}
    run = Plan({"methods": [mine(text)], **config}).run("pfedmm", "synthetic", "own-my-way")
    with pytest.raises(ConfigError, match=message):
        build(run.spec(0))


def test_what_the_text_does_not_tell_of_predictors_is_found_before_anything_runs(mine):
    config = {"papers": ["fedmoe"], "federations": ["digits-m6"], "labels": ["fedavg"]}

    def check(protocols: str) -> None:
        text = BARE + f"\n    protocols = {protocols}\n"
        found = preflight.list_builds(Plan({"methods": [mine(text)], **config}))
        specs = {where: json.loads(built[1]) for where, built, _ in found}
        given = specs["papers.fedmoe.runs[digits-m6/own-my-way]"]
        groups, _ = given.pop("groups"), given.pop("trial")
        build(RunSpec.from_json(given), groups)

    with pytest.raises(ConfigError, match="of the server here, .*seen"):
        check("dict(seen={'default': 'personalise'})")
    check('{"seen": {}, "server": {"default": "personalise"}}')


def test_a_method_that_a_later_command_does_not_name_blocks_nothing_and_may_be_deleted(
    mine, tmp_path, monkeypatch, declare
):
    declare(toy=toy_paper())
    monkeypatch.chdir(tmp_path)
    path = mine()
    for file in map(Path, Plan({"methods": [path]}).files("evaluation", paper="toy")):
        if "own-my-way" in file.parts:
            file.parent.mkdir(parents=True)
            file.touch()
    Path(path).unlink()
    assert list(remarks.describe(freshness.make_plan({}))) == []


def test_a_line_says_where_it_is_run_and_where_not(mine, declare):
    other = toy_paper(name="other", runs=[toy_run(label="fedem")])
    declare(toy=toy_paper(), other=other)
    path = mine()
    assert list(remarks.describe(Plan({"methods": [path]}))) == [
        f"MyWay of {path}, run like fedavg on toy/digits, toy/mnist",
    ]
