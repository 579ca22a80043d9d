"""The README's worked example is executed: it must be a complete, correct method."""

import importlib.util
import re
import sys

import pytest
import torch
from support import EXECUTORS, cohort_of, sgd, tiny_task, toy_federation

from fedlib import tree
from fedlib.workflow.provenance import ROOT


@pytest.fixture
def fedper(tmp_path):
    """The class in the README's only Python block, loaded from a file."""
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "fedper.py"
    file.write_text(block)
    spec = importlib.util.spec_from_file_location("fedlib.methods.fedper", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses looks the module up
    spec.loader.exec_module(module)
    yield module.FedPer
    del sys.modules[spec.name]


def train(method, federation, executor):
    state = method.init(federation.num_clients, 0)
    for number in range(3):
        cohort = cohort_of(method.task, federation, executor=executor, round=number)
        state = method.round(state, cohort)
    return state, cohort


def test_the_example_method_runs_the_same_on_both_executors(fedper):
    method, federation = fedper(task=tiny_task(norm=True), local=sgd()), toy_federation()
    states = [train(method, federation, executor)[0] for executor in EXECUTORS]
    for a, b in zip(*map(tree.leaves, states), strict=True):
        # Float64; batch normalisation amplifies the rounding of another order of summation.
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_the_example_method_shares_its_body_and_nothing_else(fedper):
    method, federation = fedper(task=tiny_task(), local=sgd()), toy_federation()
    state, cohort = train(method, federation, "loop")
    body, _ = method.task.split(method.task.init(0))
    assert cohort.journal.down == cohort.journal.up == tree.numel(body)
    heads = state.heads["head.1.weight"][cohort.ids]
    assert not torch.equal(heads[0], heads[1])
    predictors = method.personalise(state, cohort)
    log_probs = cohort.score(method.predict, predictors, split="test")
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(cohort.size, 4).double())
