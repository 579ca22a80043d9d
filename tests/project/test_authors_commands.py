"""docs/authors-commands.md: each command has the settings of the authors' own, and runs.

The settings are those of the plan at the papers' scale. What runs is the same run of the demo: one
round on digits or made-up texts.
"""

import pydoc
import re
import shlex
import sys

import commands
import pytest
import stages

from fedlib import cli
from fedlib.errors import ConfigError
from fedlib.workflow import config, provenance, shell
from fedlib.workflow.plan import Plan
from fedlib.workflow.provenance import ROOT

PAGE = (ROOT / "docs/authors-commands.md").read_text(encoding="utf-8")
ROWS = [
    tuple(re.findall(r"`([^`]+)`", cell)[0] for cell in row.split(" | "))
    for row in re.findall(r"^\| (.*`.*) \|$", PAGE, re.M)
]
# Where the demo has a run of that kind, and its label there if it is another one.
DEMO = {
    **{
        "cifar10": "digits",
        "cifar10-unseen": "digits-unseen",
        "cifar10-alpha1e6": "digits-alpha1e6",
    },
    **{"cifar10-p1.0": "digits-p1.0", "femnist": "rotated-digits", "cifar10-p0.6": "digits-p0.6"},
    **dict.fromkeys(("sent140-m50", "yelp-m10"), "text-m6"),
}
MOE = {"sent140-m50": "digits-m6"}  # the texts of the demo have the main label alone
EXPERTS = {"eps-j1", "eps-j3", "eps-j4", "eps-j5"}  # of which the demo has eps-j2


def asked(command: str) -> dict:
    """The configuration of a command `make reproduce CONFIG="..."`."""
    make, target, words = shlex.split(command)
    assert (make, target) == ("make", "reproduce")
    values = re.findall(r"\S+?=(?:\[[^\]]*\]|\S+)", words.removeprefix("CONFIG="))
    return config.read([], values)


REPRODUCED = [(theirs, ours) for theirs, ours in ROWS if ours.startswith("make reproduce")]


def flag(command: str, name: str):
    found = re.search(rf"--{name} (\S+)", command)
    return found and float(found[1])


@pytest.mark.parametrize(("theirs", "ours"), REPRODUCED)
def test_the_command_plans_one_federation_with_the_authors_settings(theirs, ours):
    plan = Plan({"scale": "full", **asked(ours)})
    [paper] = plan.papers.values()
    [data] = {run.federation for run in paper.runs}
    assert {run.label for run in paper.runs} == {*asked(ours)["labels"]}
    [partition] = (one.partition for one in paper.data if one.name == data)
    run = paper.runs[-1]
    given = {
        **{"n_learners": run.params.get("num_experts", 1), "lr": run.local["lr"]},
        **{"bz": run.local["batch_size"], "mu": run.params.get("mu"), "a": run.params.get("lam")},
        **{"log_freq": run.evaluate_every, "sampling_rate": run.participation["rate"]},
        **{"n_tasks": partition.get("num_clients"), "nc": partition.get("num_clients")},
        **{"num_clients": partition.get("num_clients"), "alpha": partition.get("alpha")},
        **{"spc": partition.get("server_per_class"), "p": partition.get("p")},
        **{"upc": partition.get("writers_per_client"), "ups": partition.get("server_writers")},
        **{"test_tasks_frac": partition.get("unseen_fraction")},
        **{"val_frac": partition.get("val_fraction"), "nme": run.params.get("num_main")},
        **{"entro": run.params.get("entropy_weight"), "local_ep": run.local.get("epochs")},
        **{"epochs": run.rounds, "npos": partition.get("server_per_class")},
    }
    different = {
        name: (flag(theirs, name), value)
        for name, value in given.items()
        if flag(theirs, name) not in (None, value)
    }
    assert different == {}
    if flag(theirs, "n_rounds"):
        assert run.rounds == 201  # 0 to R in their loop; they write 200 or 201
    momentum = {"optimizer sgd": 0.9, "optimizer prox_sgd": 0.0, "optimizer adam": None}
    for words, value in momentum.items():
        assert f"--{words} " not in f"{theirs} " or run.local.get("momentum") == value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(ours: str) -> Plan:
    """The plan of the demo that is like a command's."""
    given = asked(ours)
    [data], labels = given["federations"], {*given["labels"]}
    [paper] = given["papers"]
    there = DEMO.get(data, "digits-m6")
    if paper == "fedmoe" and labels != {"fedmoe"}:
        there = MOE.get(data, there)
    sets = [text.replace(f"{data}.", f"{there}.") for text in given.get("set") or ()]
    kept = [text for text in sets if ".rounds=" not in text]
    rest = {"labels": sorted(labels - EXPERTS), "federations": [there], "set": kept or None}
    seeds = {"seeds": [0]} if paper != "pfedmm" else {}
    return Plan({"scale": "demo", "papers": [paper], **rest, **seeds, "tag": "t", "rounds": 1})


@pytest.mark.slow
def test_the_commands_run(folder, capsys, monkeypatch):
    # This process has more loaded than a job.
    monkeypatch.setattr(provenance, "assert_covered", lambda *roots: None)
    done = set()
    for _, ours in REPRODUCED:
        plan = small(ours)
        assert plan.trainings(), ours
        shell.write_specifications(plan, folder)
        for stage, wildcards in plan.jobs():
            if stage in ("download", "partition", "train", "evaluate"):
                line = commands.command(plan, stage, **wildcards)
                if line not in done:
                    done.add(line)
                    _, script, *arguments = shlex.split(line)
                    assert stages.run_here(stage, arguments) == 0, (ours, script)
    assert len(done) > 40


def test_the_other_commands_run(folder, capsys, monkeypatch):
    for _, ours in set(ROWS) - set(REPRODUCED):
        python, how, what, *more = shlex.split(ours)
        if how == "-c":
            exec(what, {"help": lambda name: print(pydoc.render_doc(name))})
            assert "epsilon" in capsys.readouterr().out
        else:
            monkeypatch.setattr(sys, "argv", [what, *more])
            with pytest.raises(ConfigError, match="no training of full is finished"):
                cli.main()
