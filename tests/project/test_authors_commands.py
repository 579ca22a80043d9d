"""docs/authors-commands.md: each command has the settings of the authors' own, and runs.

The settings are those of the plan at the papers' scale. What runs is the same run of the demo, for
one round.
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
REPRODUCED = [row for row in ROWS if row[1].startswith("make reproduce")]
# Names of the authors' flags and ours; what ours are called in runs and partitions.
FLAGS = (
    "n_learners num_experts, lr lr, bz batch_size, mu mu, log_freq evaluate_every, nc num_clients"
)
FLAGS += ", sampling_rate rate, n_tasks num_clients, num_clients num_clients, alpha alpha, p p"
FLAGS += ", test_tasks_frac unseen_fraction, val_frac val_fraction, local_ep epochs, epochs rounds"
FLAGS += ", a lam, spc server_per_class, upc writers_per_client, ups server_writers, nme num_main"
FLAGS += ", entro entropy_weight, npos server_per_class"
MOMENTUM = {"sgd": 0.9, "prox_sgd": 0.0}


def asked(command):
    """The configuration of a command `make reproduce CONFIG="..."`."""
    words = shlex.split(command)[-1].removeprefix("CONFIG=")
    return config.read([], re.findall(r"\S+?=(?:\[[^\]]*\]|\S+)", words))


def given(command, flag):
    found = re.search(rf"--{flag} (\S+)", command)
    return found and found[1]


@pytest.mark.parametrize(("theirs", "ours"), REPRODUCED)
def test_the_command_plans_the_authors_settings(theirs, ours):
    [paper] = Plan({"scale": "full", **asked(ours)}).papers.values()
    assert {run.label for run in paper.runs} == {*asked(ours)["labels"]}
    run, [data] = paper.runs[-1], {run.federation for run in paper.runs}
    [partition] = (one.partition for one in paper.data if one.name == data)
    values = {"num_experts": 1, **partition, **run.participation, **vars(run)} | run.local
    for flag, name in map(str.split, FLAGS.split(", ")):
        if told := given(theirs, flag):
            assert float(told) == (values | run.params)[name], flag
    if given(theirs, "n_rounds"):
        assert run.rounds == 201  # 0 to R in their loop; they write 200 or 201
    if solver := given(theirs, "optimizer"):
        assert run.local.get("momentum") == MOMENTUM.get(solver)


@pytest.mark.slow
def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # This process has more loaded than a job.
    monkeypatch.setattr(provenance, "assert_covered", lambda *roots: None)
    done = set()
    for _, ours in REPRODUCED:
        about = asked(ours)
        [data], [paper] = about["federations"], about["papers"]
        there = data.replace("cifar10", "digits").replace("femnist", "rotated-digits")
        there = "digits-m6" if paper == "fedmoe" else there
        labels = [x for x in about["labels"] if not re.fullmatch("eps-j[1345]", x)]
        sets = [text.replace(data, there) for text in about.get("set") or ()]
        more = {"labels": labels, "federations": [there], "set": sets or None, "tag": "t"}
        plan = Plan({"scale": "demo", "papers": [paper], "rounds": 1, **more})
        shell.write_specifications(plan)
        for stage, wildcards in plan.jobs():
            if stage in ("download", "partition", "train", "evaluate"):
                line = commands.command(plan, stage, **wildcards)
                if line not in done:
                    assert stages.run_here(stage, shlex.split(line)[2:]) == 0, line
                    done.add(line)
        assert plan.trainings()


def test_the_other_commands_run(capsys, monkeypatch):
    for _, ours in set(ROWS) - set(REPRODUCED):
        _, how, what, *more = shlex.split(ours)
        if how == "-c":
            exec(what, {"help": lambda name: print(pydoc.render_doc(name))})
            assert "epsilon" in capsys.readouterr().out
        else:
            monkeypatch.setattr(sys, "argv", [what, *more])
            with pytest.raises(ConfigError, match="no training of full is finished"):
                cli.main()
