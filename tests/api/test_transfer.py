"""Models that start from weights of the user's, all of them trained or a part frozen."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedlib

X, Y = load_digits(return_X_y=True)
CUT = {"num_clients": 4, "alpha": 0.5, "unseen_fraction": 0.25, "seed": 3}
CLIENTS = fedlib.partition((X / 16)[:300].astype(np.float32), Y[:300], "dirichlet", **CUT)
SEED = 5


def network(frozen=True):
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(64, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 10))
    made[0].requires_grad_(not frozen)
    return made


def simulate(model, method="fedavg", **more):
    local = fedlib.SGD(lr=0.2, batch_size=16, momentum=0.5, weight_decay=0.1, drop_last=True)
    settings = {"local": local, "rounds": 2, "seed": SEED, "progress": None, "threads": 1}
    return fedlib.simulate(CLIENTS, model, method, **settings | more)


def states(result, client=0):
    return result.client_model(client).network.state_dict()


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_a_run_starts_from_the_weights_that_are_given():
    model, lines = network(frozen=False), []
    given = simulate(model, start="given", rounds=0, progress=lines.append)
    found = states(given)
    assert all(torch.equal(found[name], value) for name, value in model.named_parameters())
    assert lines[0] == "starts from the weights of the model that was given"
    assert equal(states(given), states(simulate(lambda: model, rounds=0)))
    drawn = states(simulate(model, rounds=0))
    assert not torch.equal(drawn["0.weight"], model[0].weight)


@pytest.mark.parametrize("method", ["fedem", "ifca", "fedmix"])
def test_further_experts_have_a_new_head_and_the_body_that_is_given(method):
    model = network(frozen=False)
    more = {"ifca": {"cluster_init": "full"}, "fedmix": {"server_lr": 0.1, "horizon": 2}}
    result = simulate(model, method, start="given", num_experts=3, rounds=0, **more.get(method, {}))
    experts = next(x for x in result.state if isinstance(x, dict) and "head.weight" in x)
    heads, bodies = experts["head.weight"], experts["body.0.weight"]
    assert torch.equal(heads[0], model[3].weight)
    assert len({str(head) for head in heads}) == 3
    assert all(torch.equal(body, model[0].weight) for body in bodies)


@pytest.mark.parametrize("executor", ["loop", "traced", "batched"])
@pytest.mark.parametrize("method", ["fedavg", "fedem"])
def test_what_is_frozen_stays_and_the_rest_learns_as_without_it(method, executor):
    model = network()
    more = {"fedem": {"num_experts": 2}}.get(method, {})
    result = simulate(model, method, start="given", executor=executor, **more)
    # The same as a model whose first layer is no part of it: a constant map of the inputs.
    first = copy.deepcopy(model[0])

    class Rest(nn.Module):
        def __init__(self):
            super().__init__()
            self.rest = copy.deepcopy(model[1:])

        def forward(self, x):
            return self.rest(nn.functional.linear(x, first.weight.detach(), first.bias.detach()))

    expected = simulate(Rest(), method, start="given", executor=executor, **more)
    assert result.accuracy().equals(expected.accuracy())
    assert result.history.bytes_up.tolist() == expected.history.bytes_up.tolist()
    if method == "fedavg":
        found = states(result)
        assert torch.equal(found["0.weight"], model[0].weight)
        assert not torch.equal(found["3.weight"], model[3].weight)
        network_of = result.client_model(0).network
        assert [type(x) for x in network_of.parameters()] == [nn.Parameter] * 6
        again = pickle.loads(pickle.dumps(result.client_model(0)))
        x = CLIENTS.x[:5]
        assert torch.equal(again(x), result.client_model(0)(x))


def test_frozen_layers_keep_their_values_where_others_are_drawn():
    model = network()
    found = states(simulate(model, rounds=0))
    assert torch.equal(found["0.weight"], model[0].weight)
    assert not torch.equal(found["3.weight"], model[3].weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "gven"}, "start must be one of drawn, given"),
        ({"model": network().requires_grad_(False)}, "frozen, so there is nothing to train"),
    ],
)
def test_a_start_that_cannot_be_is_refused(changes, message):
    with pytest.raises(fedlib.errors.ConfigError, match=message):
        simulate(**{"model": network()} | changes)
