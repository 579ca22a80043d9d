"""Models that start from weights of the user's, all of them trained or a part frozen."""

import copy

import numpy as np
import pytest
import torch
from reference import assert_params, fedavg
from sklearn.datasets import load_digits
from support import assert_same_tensors, seeded
from torch import nn

import fedlib
from fedlib.errors import ConfigError

X, Y = load_digits(return_X_y=True)
CUT = {"num_clients": 4, "alpha": 0.5, "unseen_fraction": 0.25, "seed": 3}
CLIENTS = fedlib.partition((X / 16)[:300].astype(np.float32), Y[:300], "dirichlet", **CUT)
FEW = torch.from_numpy(CLIENTS.x[:5])


def network(frozen=True):
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(64, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 10))
    made[0].requires_grad_(not frozen)
    made[0].register_parameter("device_of", nn.Parameter(torch.empty(0), False))
    return made


def simulate(model, method="fedavg", **more):
    local = fedlib.SGD(lr=0.2, batch_size=16, momentum=0.5, weight_decay=0.1, drop_last=True)
    settings = {"local": local, "rounds": 2, "seed": 5, "progress": None}
    return fedlib.simulate(CLIENTS, model, method, **settings | more)


def states(result, client=0):
    return result.client_model(client).network.state_dict()


def test_a_run_starts_from_the_weights_that_are_given():
    model, lines = network(frozen=False), []
    found = states(simulate(model, start="given", rounds=0, progress=lines.append))
    assert all(torch.equal(found[name], value) for name, value in model.named_parameters())
    assert lines[0] == "starts from the weights of the model that was given"
    assert_same_tensors(found, states(simulate(lambda: model, rounds=0)))
    assert not torch.equal(states(simulate(model, rounds=0))["0.weight"], model[0].weight)


@pytest.mark.parametrize("method", ["fedem", "ifca", "fedmix"])
def test_further_experts_have_a_new_head_and_the_body_that_is_given(method):
    model = network(frozen=False)
    more = {"ifca": {"cluster_init": "full"}, "fedmix": {"server_lr": 0.1, "horizon": 2}}
    result = simulate(model, method, start="given", num_experts=3, rounds=0, **more.get(method, {}))
    experts = next(x for x in result.state if isinstance(x, dict) and "head.weight" in x)
    heads, bodies = experts["head.weight"], experts["body.0.weight"]
    assert torch.equal(heads[0], model[3].weight) and len({*map(str, heads)}) == 3
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


class Adapted(nn.Linear):
    """A linear layer whose weights are frozen, beside a low-rank change that trains."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.low = nn.Parameter(torch.zeros(2, inputs))
        self.high = nn.Parameter(torch.zeros(outputs, 2))
        self.weight.requires_grad_(False)

    def reset_parameters(self):
        super().reset_parameters()
        if hasattr(self, "low"):
            nn.init.normal_(self.low)
            nn.init.zeros_(self.high)

    def forward(self, x):
        return super().forward(x) + x @ self.low.T @ self.high.T


@pytest.mark.parametrize("start", ["drawn", "given", "function"])
@pytest.mark.parametrize("frozen", ["0.weight", "2.weight", "2.bias"])
def test_a_layer_that_is_frozen_in_part_keeps_that_part(start, frozen):
    torch.manual_seed(2)
    model = nn.Sequential(Adapted(64, 9), nn.ReLU(), Adapted(9, 10))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name != frozen)
    given = (lambda: model) if start == "function" else model
    found = []
    for seed in (1, 2):  # of the global generator
        torch.manual_seed(seed)
        result = simulate(given, start="given" if start == "given" else "drawn")
        assert torch.equal(states(result)[frozen], model.get_parameter(frozen))
        assert (states(result)["0.low"].std() > 0.5) == (start == "drawn")  # given zeros stay near
        client = result.client_model(0)
        torch.testing.assert_close(client.network(FEW).softmax(1), client(FEW))
        wide = result.client_model(0).double()
        torch.testing.assert_close(wide(FEW).float(), client(FEW))
        assert wide.network[0].weight.dtype == torch.float64
        found.append(states(result))
    assert_same_tensors(*found)


@pytest.mark.parametrize("method", ["pfedmm", "fedgh", "lg_fedavg", "local_global", "fedrolex"])
def test_a_method_that_cannot_do_with_a_frozen_head_says_so_at_once(method):
    model = nn.Sequential(nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))
    model[2].requires_grad_(False)
    more = {"pfedmm": {"num_experts": 2}, "fedrolex": {"small": model}}.get(method, {})
    told = {"pfedmm": "with these frozen weights", "fedrolex": "roll"}.get(method, "to share")
    with pytest.raises(ConfigError, match=told):
        simulate(model, method, local=fedlib.SGD(lr=0.1), rounds=10**6, **more)


def test_further_architectures_start_from_the_weights_that_are_given():
    small, large = network(frozen=False), nn.Sequential(nn.Linear(64, 5), nn.Linear(5, 10))
    result = simulate(small, "local", large=[large], start="given", rounds=0)
    assert torch.equal(states(result)["0.weight"], large[0].weight)
    drawn = simulate(small, "local", large=[large], rounds=0)
    assert not torch.equal(states(drawn)["0.weight"], large[0].weight)


@pytest.mark.slow  # torch.export takes seconds for the first model
def test_the_predictor_of_a_model_with_frozen_layers_is_kept(tmp_path):
    result = simulate(network(), "fedavg", rounds=1)
    result.save(tmp_path, [1])
    assert torch.equal(fedlib.load(tmp_path).client_model(1)(FEW), result.client_model(1)(FEW))


def test_further_architectures_move_with_what_is_frozen():
    result = simulate(network(frozen=False), "local", large=[network(), network()], rounds=1)
    wide = result.client_model(1).double()
    torch.testing.assert_close(wide(FEW).float(), result.client_model(1)(FEW))
    assert wide.network[0].weight.dtype == torch.float64


class Cosine(nn.Module):
    """A head without `reset_parameters`, whose last parameter is a scale."""

    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(10, 9))
        self.scale = nn.Parameter(torch.full(shape, 5.0))

    def forward(self, x):
        return self.scale * nn.functional.linear(x, nn.functional.normalize(self.weight, dim=1))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_head_with_a_scale_has_an_output_for_each_class(shape):
    model = nn.Sequential(nn.Linear(64, 9), nn.ReLU(), Cosine(shape))
    assert simulate(model, start="given").simulation.method.task.num_outputs == 10


def test_experts_that_would_stay_equal_are_refused():
    model = nn.Sequential(nn.Linear(64, 9), nn.ReLU(), Cosine(()))
    with pytest.raises(ConfigError, match="would stay equal; give .* a reset_parameters"):
        simulate(model, "fedem", num_experts=2, start="given")


@pytest.mark.parametrize("what", ["dtype", "device"])
def test_other_defaults_of_pytorch_are_refused(what):
    model = network()
    change = getattr(torch, f"set_default_{what}")
    change({"dtype": torch.float64, "device": "meta"}[what])
    try:
        with pytest.raises(ConfigError, match="PyTorch's defaults must be torch.float32 on cpu"):
            simulate(model)
    finally:
        change({"dtype": torch.float32, "device": None}[what])


# -- models of other people, beside a plain loop ------------------------------------------------


class TinyBert(nn.Module):
    """An encoder of texts as BERT: a mask for padding, and the first token's state for the head."""

    def __init__(self, words, length, width=8):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm, self.pooler = nn.LayerNorm(width), nn.Linear(width, width)
        self.classifier = nn.Linear(width, 2)

    def forward(self, tokens):
        mask = (tokens == 0) & (tokens != 0).any(1, keepdim=True)
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        seen, _ = self.attention(hidden, hidden, hidden, key_padding_mask=mask, need_weights=False)
        return self.classifier(self.pooler(self.norm(hidden + seen)[:, 0]).tanh())


def as_by_hand(federation, build, solver, rounds):
    """A client's network after FedAvg, which is that of a plain loop with torch.optim."""
    result = fedlib.simulate(federation, build, local=solver, rounds=rounds, progress=None)
    expected = fedavg(build, federation, solver, rounds)
    found = result.client_model(federation.called[0]).network.state_dict()
    assert_params(found, expected.state_dict(), rtol=1e-3, atol=1e-5)  # float32, a few dozen steps
    return result


def test_a_small_bert_learns_texts_of_clients_and_goes_home(tmp_path):
    texts = ["a good day", "so bad", "good", "a bad day it was", "very good it was", "bad"] * 20
    labels = ["up" if "good" in text else "down" for text in texts]
    who = np.array(["ann", "bob", "cy"])[np.arange(len(texts)) // 2 % 3]
    clients = fedlib.partition(texts, labels, "natural", client=who, length=5)
    build = seeded(lambda: TinyBert(int(clients.x.max()) + 1, 5))
    net = as_by_hand(clients, build, fedlib.SGD(lr=0.3, batch_size=8), 4)
    assert net.pooled_accuracy().iloc[-1] > 0.9
    more = {"num_experts": 2, "local": fedlib.AdamW(lr=0.01, batch_size=8), "rounds": 2}
    result = fedlib.simulate(clients, build(), "pfedmm", start="given", progress=None, **more)
    result.save(tmp_path / "kept", clients="bob")
    kept = fedlib.load(tmp_path / "kept").client_model("bob")
    tokens = torch.from_numpy(clients.x[:4]).long()
    torch.testing.assert_close(kept(tokens), result.client_model("bob")(tokens))
