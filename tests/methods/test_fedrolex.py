"""FedRolex against a loop over clients and windows; which windows there are; identities."""

from functools import partial

import pytest
import torch
from reference import learn, owned
from support import TinyNet, assert_close, batch_of, cohort_of, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy, linear

from fedlib import methods, tree
from fedlib.engine.task import Task
from fedlib.models import cifar_resnet18, fedmoe_cnn

WIDE, NARROW = 6, 4  # hidden units
SIZES = (7, 12, 6, 10)  # the last client is unseen


def fedrolex(task=None, small=None, **solver):
    task, small = task or tiny_task(hidden=WIDE), small or tiny_task(hidden=NARROW)
    return methods.load("fedrolex")(task=task, small=small, local=sgd(**solver))


def by_hand(method, data, params, number, clients):
    """The wide model after a round, of two linear layers with tanh between them."""
    units = [(number + i) % WIDE for i in range(NARROW)]
    trained = []
    for client in clients:
        w1, b1 = (params[f"body.0.{name}"][units].clone() for name in ("weight", "bias"))
        w2, b2 = params["head.1.weight"][:, units].clone(), params["head.1.bias"].clone()
        own = [w.requires_grad_() for w in (w1, b1, w2, b2)]

        def loss(batch, own=own):
            w1, b1, w2, b2 = own
            hidden = linear(batch.x, w1, b1).tanh()
            return cross_entropy(linear(hidden, WIDE / NARROW * w2, b2), batch.y)

        learn(own, loss, *owned(data, client), method.local, number, "fit", client)
        trained.append([w.detach() for w in own])
    share = torch.tensor([SIZES[client] for client in clients]).double()
    w1, b1, w2, b2 = (torch.stack(ws) for ws in zip(*trained, strict=True))
    w1, b1, w2, b2 = (torch.tensordot(share / share.sum(), w, 1) for w in (w1, b1, w2, b2))
    after = tree.clone(params)
    after["body.0.weight"][units], after["body.0.bias"][units] = w1, b1
    after["head.1.weight"][:, units], after["head.1.bias"] = w2, b2
    return after


def test_rounds_are_a_loop_over_clients_who_train_a_window():
    method, data = fedrolex(epochs=2), toy_federation(SIZES)
    state = method.init(data.num_clients, 0)
    expected = state.params
    for number, clients in ((3, [0, 1, 2]), (4, [0, 2])):  # units 3, 4, 5, 0 and 4, 5, 0, 1
        expected = by_hand(method, data, expected, number, clients)
        cohort = cohort_of(method.task, data, clients, executor="batched", round=number)
        state = method.round(state, cohort)
        assert_close(state.params, expected, 1e-12)  # float64


def test_in_as_many_rounds_as_units_every_unit_is_trained_equally_often():
    method = fedrolex()
    (rows,) = zip(*(method.window("body.0.bias", number) for number in range(WIDE)), strict=True)
    assert torch.bincount(torch.cat(rows)).tolist() == [NARROW] * WIDE
    assert rows[0].tolist() == [0, 1, 2, 3] and rows[4].tolist() == [4, 5, 0, 1]


def test_a_parameter_may_be_a_single_number():
    def build(hidden):
        net = TinyNet(4, 3, hidden)
        net.body.register_parameter("scale", torch.nn.Parameter(torch.ones(())))
        return net

    method = fedrolex(*(Task(partial(build, units)) for units in (WIDE, NARROW)))
    assert method.window("body.scale", 1) == () and method.scale("body.scale") == 1


NETWORKS = {
    "residual": (partial(cifar_resnet18.build, 3), {"width": 6}, {"width": 4}, (3, 8, 8)),
    "hidden layer": (partial(fedmoe_cnn.build, 3, side=8), {"hidden": 9}, {"hidden": 5}, (1, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_window_is_the_wide_network_whose_other_units_are_silent(name):
    build, wide, narrow, shape = NETWORKS[name]
    tasks = [Task(partial(build, **width), dtype=torch.float64) for width in (wide, narrow)]
    method, number = fedrolex(*tasks), 5
    params = method.init(0, 0).params
    silent = {}
    for key, x in params.items():
        silent[key] = torch.ones_like(x) if key.endswith("running_var") else torch.zeros_like(x)
        where = method.window(key, number)
        silent[key][where] = x[where]
    part = {key: x[method.window(key, number)] for key, x in params.items()}
    x = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = batch_of(x)
    ours, theirs = tasks[0].logits(silent, batch), tasks[1].logits(part, batch)
    assert_close(ours, theirs, 1e-12)
    assert sum(x.numel() for x in part.values()) < tree.numel(params)
