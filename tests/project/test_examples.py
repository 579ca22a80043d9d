"""The methods of docs/examples.md: short, and what their papers say in the cases that are known."""

import re

import pytest
import torch
from support import run, same_bits, sgd, tiny_task, toy_federation
from test_rooms import code_lines

from fedlib import methods
from fedlib.workflow.provenance import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/examples.md").read_text(), re.DOTALL)
FEDERATION = toy_federation((7, 12, 6, 10))


def load(number, folder, **params):
    file = folder / f"{('fedbabu', 'fedala')[number]}.py"
    file.write_text(BLOCKS[number])
    return methods.load(str(file))(task=tiny_task(), local=sgd(), **params)


def fedavg():
    return methods.load("fedavg")(task=tiny_task(), local=sgd(momentum=0.0, keeps="round"))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_method_is_at_most_forty_lines_without_its_imports(block):
    imports = re.findall(r"^(?:from|import) .*$", block, re.M)
    assert len(BLOCKS) == 2 and code_lines(block) - len(imports) <= 40


def test_the_head_of_fedbabu_stays_as_it_was_drawn(tmp_path):
    method = load(0, tmp_path)
    first, last = method.init(4, 0).params, run(method, FEDERATION).params
    for name, value in first.items():
        assert torch.equal(last[name], value) == name.startswith("head.")


def test_fedala_is_fedavg_where_the_weights_do_not_learn(tmp_path):
    found = run(load(1, tmp_path, eta=1e-300), FEDERATION)
    assert same_bits(found.params, run(load(1, tmp_path, eta=1e-200), FEDERATION).params)
    assert all((weights == 1).all() for weights in found.weights.values())
    learnt = run(load(1, tmp_path), FEDERATION).weights
    assert any((weights < 1).any() for weights in learnt.values())
    assert all(((0 <= weights) & (weights <= 1)).all() for weights in learnt.values())
