"""The plain mixture against a loop of `nn.Module` and `torch.optim`, and what it tells of its gate:
section 7.4 of the specification.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import ROUNDS, Reference, assert_params, assert_predicts, module_of, trained
from support import tiny_task, toy_federation
from torch import nn

from fedlib import tree
from fedlib.engine.experts import expert_seed
from fedlib.errors import DataError

EXPERTS = 2


class Mixture(nn.Module):
    """Whole networks and a gate that is fed with the mean of what their heads are fed with."""

    def __init__(self, nets):
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self.A = nn.Parameter(torch.zeros(6, len(nets)).double())
        self.b = nn.Parameter(torch.zeros(len(nets)).double())

    def gate(self, x):
        features = torch.stack([net.body(x) for net in self.nets]).mean(0)
        return (features @ self.A + self.b).softmax(-1)

    def forward(self, x):
        features = [net.body(x) for net in self.nets]
        gate = (torch.stack(features).mean(0) @ self.A + self.b).softmax(-1)
        outputs = [net.head(h).softmax(-1) for net, h in zip(self.nets, features, strict=True)]
        return sum(gate[:, e : e + 1] * output for e, output in enumerate(outputs))


def by_hand(federation, task):
    """The averages after all rounds, as a mixture in evaluation mode."""
    hand = Reference(federation)
    drawn = [task.init(expert_seed(0, e)) for e in range(EXPERTS)]
    hand.nets = {c: Mixture([module_of(task, params) for params in drawn]) for c in hand.seen}
    hand.solvers = {c: hand.solvers_of(mixture) for c, mixture in hand.nets.items()}
    hand.shared = hand.average(hand.nets)  # of equal ones: what all of them start from

    def client(c, number):
        mixture = hand.receive(c)
        likelihoods = lambda b: mixture(b.x)[torch.arange(len(b.y)), b.y]  # noqa: E731
        hand.fit(c, number, hand.solvers[c], lambda b: -likelihoods(b).log().mean())

    hand.rounds(client)
    return hand.receive(0).eval()


def test_rounds_are_those_of_a_loop_in_plain_pytorch():
    federation, task = toy_federation(), tiny_task(norm=True)
    mixture = by_hand(federation, task)
    method, state = trained("plain_mixture", task, federation, num_experts=EXPERTS)
    for e, net in enumerate(mixture.nets):
        assert_params(tree.take(state.model["experts"], e), net.state_dict())
    assert_params(state.model["gate"], {"A": mixture.A.data, "b": mixture.b.data})
    expected = lambda c, x: mixture(x).detach()  # noqa: E731
    assert_predicts(method, state, Reference(federation), expected, range(4))  # unseen, too


def test_the_tables_are_the_mean_gate_of_the_examples_of_each_label():
    made, task = toy_federation(test=12), tiny_task(norm=True)
    federation = replace(made, val=made.test, test=made.val)
    params = {"num_experts": EXPERTS, "table_rounds": [0, 1, ROUNDS, 9]}
    method, state = trained("plain_mixture", task, federation, **params)
    found = method.diagnostics(state)
    # Round 9 never came; a gate of zeros is uniform.
    assert found["table_rounds"].tolist() == [0, 1, ROUNDS]
    assert (found["tables"][0] == 1 / EXPERTS).all()
    mixture = by_hand(federation, task)
    rows = np.concatenate([federation.val.of(client) for client in federation.ids("seen")])
    gate = mixture.gate(torch.from_numpy(federation.x[rows])).detach()
    for label in range(3):
        expected = gate[torch.from_numpy(federation.y[rows] == label)].mean(0)
        torch.testing.assert_close(found["tables"][-1, label], expected)
    assert not torch.equal(found["tables"][1], found["tables"][2])


def test_without_validation_examples_there_are_no_tables():
    federation, task = toy_federation(), tiny_task()
    params = {"num_experts": EXPERTS, "table_rounds": [ROUNDS]}
    with pytest.raises(DataError, match="no client of the round has validation examples, on which"):
        trained("plain_mixture", task, federation, **params)
