"""Users' modules: which are taken, which layer is the head, and what is said of the others."""

import copy

import numpy as np
import pytest
import torch
from test_api import X, cut, quiet
from torch import nn

import fedlib
from fedlib.api.model import builder
from fedlib.api.probe import HeadApart
from fedlib.engine import ambient
from fedlib.errors import ConfigError

INPUTS = torch.from_numpy(X[:2])
LOCAL = fedlib.SGD(lr=0.1, batch_size=16)


class Odd(nn.Module):
    """Two layers `a` and `fc`, and a forward pass of one's own."""

    def __init__(self, run, make=lambda self: None):
        super().__init__()
        self.a, self.fc = nn.Linear(64, 8), nn.Linear(8, 10)
        self.run = run
        make(self)

    def forward(self, x):
        return self.run(self, x)


class BodyHead(nn.Module):
    """As the engine has it, with `after` behind the head."""

    def __init__(self, after):
        super().__init__()
        self.body, self.head, self.after = nn.Linear(64, 8), nn.Linear(8, 10), after

    def forward(self, x):
        return self.after(self, self.head(self.body(x)))


def with_(**layers):
    return lambda self: [setattr(self, name, make()) for name, make in layers.items()]


def tie(self):
    self.body = nn.Sequential(nn.Linear(64, 10), nn.Linear(10, 64))
    self.head = nn.Linear(64, 10)
    self.head.weight = self.body[0].weight
    del self.a, self.fc


def build(model):
    return builder(model, INPUTS, "model", (10,))


AFTER = {
    "a clamp that small outputs do not reach": lambda self, z: z.clamp(-50, 50),
    "a temperature in training": lambda self, z: z / 4 if self.training else z,
    "in place": lambda self, z: z.clamp_(-50, 50),
    "for large outputs": lambda self, z: z if z.abs().max() < 50 else z / 2,
    "a softmax": lambda self, z: z.softmax(1),
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_what_follows_the_head_is_refused_whatever_its_value(after):
    for seed in range(3):
        torch.manual_seed(seed)  # which changed what was accepted
        for model in (Odd(lambda s, x: after(s, s.fc(s.a(x).relu()))), BodyHead(after)):
            with pytest.raises(ConfigError, match="last layer, Linear '(fc|head)', must give the"):
                build(model)


class Scaled(Odd):
    """A weight of its own, `scale`, beside its layers."""

    def __init__(self, run, shape=()):
        super().__init__(run)
        self.scale = nn.Parameter(torch.ones(shape))


class Cosines(nn.Linear):
    """A linear layer of unit vectors with a learned scale."""

    def __init__(self, features):
        super().__init__(features, 10, bias=False)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        normal = nn.functional.normalize
        return self.scale * nn.functional.linear(normal(x), normal(self.weight))


ON_TOP = {
    "Linear 'fc'": Scaled(lambda s, x: s.fc(s.a(x).relu()) * s.scale),
    "Linear 'a'": Scaled(lambda s, x: s.a(x).relu() @ s.scale.T, (10, 8)),  # such as of cosines
}


@pytest.mark.parametrize("layer", ON_TOP)
def test_weights_of_the_model_itself_are_no_last_layer(layer):
    """They would make the whole model the head, so that FedPer sent nothing."""
    with pytest.raises(ConfigError, match=f"{layer}, must give the logits; .* the logits `head`"):
        build(lambda: ON_TOP[layer])


def test_one_module_of_a_layer_and_a_learned_scale_is_a_head():
    for model in (Cosines(64), nn.Sequential(nn.Linear(64, 8), Cosines(8))):
        assert isinstance(build(model)().head, Cosines)


TAKEN = {
    "size": lambda s, x: s.fc(s.a(x).relu().view(-1, s.fc.in_features)),
    "type": lambda s, x: s.fc(s.a(x).relu().to(s.fc.weight.dtype)),
    "device": lambda s, x: s.fc(s.a(x).relu().to(s.fc.weight.device)),
    "shape": lambda s, x: s.fc(s.a(x).relu()[:, : s.fc.weight.shape[1]]),
    "own weights beside it": lambda s, x: s.fc(s.a(x) + s.shift),
    "another name": lambda s, x: s.alias(s.a(x)),
}


@pytest.mark.parametrize("run", TAKEN.values(), ids=TAKEN)
def test_the_head_is_the_last_layer_and_its_attributes_can_be_read(run):
    def more(self):
        self.shift, self.alias = nn.Parameter(torch.ones(8)), self.fc

    made = build(lambda: Odd(run, more))()
    assert isinstance(made, HeadApart) and isinstance(made.head, nn.Linear)
    x = torch.randn(5, 64)
    expected = made(x)
    torch.testing.assert_close(made.head(made.body(x)), expected)
    user = made.whole()
    assert isinstance(user, Odd) and user.fc is user.alias is made.head
    assert torch.equal(user(x), expected)


def test_a_head_whose_weights_are_computed_is_taken():
    norm = nn.utils.parametrizations.weight_norm
    made = build(lambda: Odd(TAKEN["size"], with_(fc=lambda: norm(nn.Linear(8, 10)))))()
    assert isinstance(made, HeadApart) and made.path == "fc"
    x = torch.randn(5, 64)
    torch.testing.assert_close(copy.deepcopy(made)(x), made.whole()(x))


NO_HEAD = {
    "its weights": lambda s, x: s.fc(s.a(x) + s.fc.weight.sum()),
    "twice": lambda s, x: s.fc(s.fc(s.a(x))[:, :8]),
    "beside others": lambda s, x: s.fc(s.a(x)) + s.fc(s.a(-x)),
}


@pytest.mark.parametrize("run", NO_HEAD.values(), ids=NO_HEAD)
def test_a_layer_that_others_read_is_no_head(run):
    with pytest.raises(ConfigError, match="Linear 'fc', must"):
        build(Odd(run))


def test_tied_body_and_head_are_refused_whatever_they_are_called():
    with pytest.raises(ConfigError, match="share no weights"):
        build(lambda: Odd(lambda s, x: s.head(s.body(x)), tie))
    with pytest.raises(ConfigError, match="has no layer with weights"):
        builder(nn.Flatten, INPUTS, "gate")


Own = type("Own", (Exception,), {})


@pytest.mark.parametrize("modes", [(True, False), (True,)])
def test_an_error_of_a_model_is_one_line_with_its_class(modes):
    def run(self, x):
        if self.training in modes:
            raise Own("too small\nand more")
        return self.fc(self.a(x))

    with pytest.raises(ConfigError, match="64 numbers.*: Own: .*too small") as told:
        build(Odd(run))
    assert "\n" not in str(told.value)


out = TAKEN["size"]
FORMS = {
    r"a dict of \['logits'\]": lambda s, x: {"logits": s.fc(s.a(x))},
    "a tuple of 2": lambda s, x: (s.fc(s.a(x)), x),
    r"shape \[2\] for 2": lambda s, x: s.fc(s.a(x))[:, 0],
    "got None": lambda s, x: None,
    r"got \{tensor.* for 2 inputs": lambda s, x: {s.fc(s.a(x))},
    "a tuple of 1 for 2 inputs in training": lambda s, x: (out(s, x),) if s.training else out(s, x),
}


@pytest.mark.parametrize("told", FORMS)
def test_what_is_given_in_place_of_logits_is_named(told):
    with pytest.raises(ConfigError, match=told):
        build(Odd(FORMS[told]))


class Several(nn.Linear):
    def forward(self, x, mask):
        return super().forward(x * mask)


def test_a_model_with_several_inputs_is_told_that_these_are_not_supported():
    told = r"forward\(x, mask\); models with several inputs are not"
    with pytest.raises(ConfigError, match=told):
        build(Several(64, 10))


HIDDEN = {
    "layers": with_(layers=lambda: [nn.Linear(8, 8)]),
    "a.scale": lambda self: setattr(self.a, "scale", {"one": torch.ones(8, requires_grad=True)}),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_weights_that_pytorch_does_not_know_are_named(name):
    with pytest.raises(ConfigError, match=f"weights in {name} are none of its parameters"):
        build(Odd(TAKEN["size"], HIDDEN[name]))
    frozen = with_(teacher=lambda: [nn.Linear(8, 8).requires_grad_(False)])
    build(Odd(TAKEN["size"], lambda self: (frozen(self), with_(same=lambda: [self.a])(self))))


@pytest.mark.parametrize("change", [lambda x: x.sub_(0.5), lambda x: x.clamp_(-100, 100)])
def test_a_model_that_changes_its_inputs_is_told_so(change):
    with pytest.raises(ConfigError, match="changes its inputs in place"):
        build(Odd(lambda s, x: s.fc(s.a(change(x)))))


Mine = type("Mine", (nn.Dropout,), {})


class Attending(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, dropout, batch_first=True)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(self.layer(x.view(-1, 8, 8)).flatten(1))


DRAW = {
    "Mine 'drop' draws from the global generator of PyTorch": Odd(
        lambda s, x: s.fc(s.drop(s.a(x))), with_(drop=Mine)
    ),
    "MultiheadAttention 'layer.self_attn' draws .*; .*dropout=0": lambda: Attending(0.1),
    "model draws from the global generator of NumPy": Odd(
        lambda s, x: s.fc(s.a(x) + np.random.rand())
    ),
}


@pytest.mark.parametrize("told", DRAW)
def test_the_layer_that_draws_is_named(told):
    with pytest.raises(ConfigError, match=told):
        build(DRAW[told])


def test_weights_that_differ_each_time_the_model_is_made_are_refused():
    source = np.random.default_rng(0)

    def make():
        model = nn.Linear(64, 10)
        model.bias.data = torch.from_numpy(source.normal(size=10)).float()
        return model

    with pytest.raises(ConfigError, match="model: bias has other values each time"):
        build(make)


class Zeroed(Odd):
    def reset_parameters(self):
        nn.init.zeros_(self.fc.weight)


def test_an_initialisation_of_a_container_is_done_after_its_layers():
    inner = Zeroed(TAKEN["size"])
    inner.fc.weight.data.fill_(7.0)
    one, other = (build(x)() for x in (inner, nn.Sequential(nn.Linear(64, 64), inner)))
    for made in (one, other):
        assert not made.head.weight.any() and made.head.bias.all()
    inner.a.requires_grad_(False), inner.fc.requires_grad_(False)
    kept = build(nn.Sequential(inner, nn.Linear(10, 10)))()
    assert (kept.body[0].fc.weight == 7).all()


def test_one_dropout_layer_in_two_places_has_two_masks_and_stays_one_layer():
    drop = nn.Dropout(0.5)
    made = build(nn.Sequential(drop, drop, nn.Linear(64, 10)))()
    with ambient.dropout_key(torch.tensor(3)):
        kept = made.body[:2](torch.ones(500, 64)) != 0
    # Binomial with a share of 1/4; five deviations.
    assert abs(kept.double().mean() - 0.25) < 5 * (0.25 * 0.75 / kept.numel()) ** 0.5
    two = build(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5), nn.Linear(64, 10)))()
    assert [layer.salt for layer in two.body[:2]] == [0, 1]
    again = Odd(lambda s, x: s.fc(s.drop(s.drop(s.a(x)))), with_(drop=nn.Dropout))
    for executor in ("loop", "batched"):
        quiet(cut(), again, local=LOCAL, rounds=1, executor=executor)


def test_a_compiled_model_is_trained_as_the_plain_one():
    model = Odd(TAKEN["size"])
    given = model, torch.compile(model)
    done = [quiet(cut(), x, local=LOCAL, rounds=1).accuracy() for x in given]
    assert done[0].equals(done[1])
    assert isinstance(build(lambda: torch.compile(Odd(TAKEN["size"])))().whole(), Odd)


@pytest.mark.parametrize("given", [lambda model: model, lambda model: lambda: model])
def test_a_scripted_model_is_refused(given):
    with pytest.raises(ConfigError, match="TorchScript"):
        build(given(torch.jit.script(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 10)))))


def test_a_buffer_may_be_nan():
    build(Odd(TAKEN["size"], lambda self: self.register_buffer("seen", torch.tensor(torch.nan))))
