"""The methods of docs/examples.md: short, and what their papers say in the cases that are known."""

import re

import pytest
import torch
from reference import Reference, assert_params
from support import cohort_of, run, same_bits, sgd, tiny_task, toy_federation
from test_rooms import code_lines

from fedlib import methods
from fedlib.workflow.provenance import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/examples.md").read_text(), re.DOTALL)
FEDERATION = toy_federation((7, 12, 6, 10))


def load(number, folder, **params):
    file = folder / f"{('fedbabu', 'fedala', 'cwfedavg')[number]}.py"
    file.write_text(BLOCKS[number])
    return methods.load(str(file))(task=tiny_task(), local=sgd(), **params)


def fedavg():
    return methods.load("fedavg")(task=tiny_task(), local=sgd(momentum=0.0, keeps="round"))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_method_is_at_most_forty_lines_without_its_imports(block):
    imports = re.findall(r"^(?:from|import) .*$", block, re.M)
    assert len(BLOCKS) == 3 and len(code_lines(block)) - len(imports) <= 40


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


def test_cwfedavg_averages_and_mixes_a_head_for_each_class(tmp_path):
    method = load(2, tmp_path, pull=0.0)
    found = run(method, FEDERATION, 1)
    hand = Reference(FEDERATION, method.task, method.local)  # all heads are equal at first
    hand.rounds(hand.learn, cohorts=[hand.seen])
    assert_params(hand.average(hand.nets), found.body)
    weights = torch.stack([net.head[1].weight.detach() for net in hand.nets.values()])
    shares = weights.norm(dim=2) / weights.norm(dim=2).sum(1, keepdim=True)
    for label in range(3):
        counts = [n * own[label] for n, own in zip(hand.sizes.values(), shares, strict=True)]
        mean = sum(n * w for n, w in zip(counts, weights, strict=True)) / sum(counts)
        torch.testing.assert_close(found.heads["head.1.weight"][label], mean)
    cohort = cohort_of(method.task, FEDERATION)
    personal = method.personalise(found, cohort)["head.1.weight"]
    mixed = torch.tensordot(shares[1], found.heads["head.1.weight"], 1)
    torch.testing.assert_close(personal[1], mixed)
    # With the pull, norms are nearer to the shares of labels.
    labels = cohort.shares("label", 3)
    away = [
        float((run(load(2, tmp_path, pull=pull), FEDERATION, 3).shares[:3] - labels).norm())
        for pull in (0.0, 3.0)
    ]
    assert away[1] < away[0]
