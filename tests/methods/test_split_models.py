"""Methods that split a client's model in two, LG-FedAvg and FedRep; Local with several kinds."""

import copy
from dataclasses import replace

import pytest
import torch
from reference import (
    Reference,
    assert_params,
    assert_predicts,
    cross_entropy_of,
    descend,
    module_of,
    says,
)
from support import assert_close, tiny_task, toy_federation
from zoo import COHORTS, LOCAL, SIZES, cohort, deep, narrow, run

from fedlib import methods
from fedlib.methods.parts.own_models import OwnModels

normed = tiny_task(norm=True)


# -- independent loops --------------------------------------------------------------------------


def test_lg_fedavg_is_an_independent_loop():
    federation = toy_federation(SIZES)
    hand = Reference(federation, solver=LOCAL)
    tasks = [(narrow, deep)[c % 2] for c in range(4)]
    nets = [module_of(task, task.init(0)) for task in tasks]
    head = copy.deepcopy(nets[0].head.state_dict())

    def client(c, number):
        nets[c].head.load_state_dict(head)
        hand.fit(c, number, hand.solvers_of(nets[c]), cross_entropy_of(nets[c].train()))

    def server(ids):
        head.update(hand.average({c: nets[c].head for c in ids}))

    hand.rounds(client, server, COHORTS)
    method = methods.load("lg_fedavg")(task=narrow, local=LOCAL, large=(narrow, deep))
    state = run(method, federation, executor="batched")
    assert_params(state.head, {f"head.{name}": value for name, value in head.items()})
    nets[3].head.load_state_dict(head)
    assert_predicts(method, state, hand, lambda c, x: says(nets[c], x))
    for net in nets:
        net.head.load_state_dict(head)
    assert_predicts(method, state, hand, lambda c, x: says(nets[c], x), way="aggregate")


@pytest.mark.parametrize("head_epochs", [1, 3])
def test_fedrep_is_an_independent_loop(head_epochs):
    federation = toy_federation(SIZES)
    hand = Reference(federation, solver=LOCAL)
    nets = [module_of(normed, normed.init(0)) for _ in range(4)]
    body = copy.deepcopy(nets[0].body.state_dict())
    method = methods.load("fedrep")(task=normed, local=LOCAL, head_epochs=head_epochs)

    def client(c, number):
        net = nets[c].train()
        net.body.load_state_dict(body, strict=False)
        heads = hand.batches(c, number, "head", replace(LOCAL, epochs=head_epochs))
        descend(hand.solvers_of(net.head), heads, cross_entropy_of(net), LOCAL.clip_norm)
        hand.fit(c, number, hand.solvers_of(net.body), cross_entropy_of(net), "body")

    def server(ids):
        body.update(hand.average({c: nets[c].body for c in ids}))

    hand.rounds(client, server, COHORTS)
    state = run(method, federation, executor="batched")
    assert_params(state.body, {f"body.{name}": value for name, value in body.items()})
    nets[3].body.load_state_dict(body, strict=False)
    assert_predicts(method, state, hand, lambda c, x: says(nets[c], x))
    for net in nets:
        net.body.load_state_dict(body, strict=False)
    assert_predicts(method, state, hand, lambda c, x: says(nets[c], x), way="aggregate")


def test_local_trains_each_architecture_as_if_it_were_the_only_one():
    federation = toy_federation(SIZES)
    both = methods.load("local")(task=normed, local=LOCAL, large=(narrow, deep))
    state = run(both, federation, executor="batched")
    for kind, task in enumerate((narrow, deep)):
        alone = methods.load("local")(task=task, local=LOCAL)
        expected = run(alone, federation, executor="batched")
        for client in range(kind, 4, 2):
            assert_close(state.models[client], expected.models[client])
    everyone = cohort(both, federation, range(5), executor="batched")
    scores = everyone.score(both.predict, both.personalise(state, everyone), split="test")
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(5, 4).double())
    unseen = cohort(both, federation, [4], executor="batched", round=2)
    trained = both.train_alone(state, unseen)
    assert trained.task[0] is narrow
    assert not torch.equal(trained.model[0]["head.bias"], state.models[4]["head.bias"])


def test_class_weights_of_the_task_are_those_of_all_architectures():
    weights = torch.tensor([1.0, 2.0, 3.0]).double()
    own = OwnModels.among(replace(narrow, class_weights=weights), (narrow, deep))
    assert [task.class_weights.tolist() for task in own.tasks] == [[1, 2, 3]] * 2
    assert [task.class_weights for task in (narrow, deep)] == [None] * 2
