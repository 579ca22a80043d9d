"""docs/authors-commands.md: each command plans the settings of the authors' own."""

import re
import shlex

import pytest

from fedlib.workflow import config
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
    assert given(theirs, "lr_scheduler") in (None, run.local.get("schedule", {}).get("kind"))
    assert given(theirs, "explore_strategy") in (None, run.params.get("exploration"))
    assert ("--decentralized" in theirs) == (run.participation["aggregation"] == "gossip")
    if solver := given(theirs, "optimizer"):
        assert run.local.get("momentum") == MOMENTUM.get(solver)
