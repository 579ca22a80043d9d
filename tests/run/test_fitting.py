"""Sizes that the data decide: taken from them where they are left out, and refused where wrong."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from conftest import toy_run
from support import toy_federation
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from fedlib.engine.solvers import SGD
from fedlib.errors import ConfigError
from fedlib.models import mlp, vae
from fedlib.models.layers.network import Network
from fedlib.models.layers.random import Dropout
from fedlib.run import build
from fedlib.run.build import Shapes, build_method, build_simulation, build_task

SHAPES = Shapes((1, 8, 8), 10)
MODEL = {"in_features": 4, "hidden": [8], "num_classes": 3}


def spec(**changes):
    return toy_run(**{"method": "fedavg", "model_params": MODEL} | changes).spec(0)


def module(**params):
    return {"model": "mlp", "params": {"hidden": 8, "num_classes": 3} | params}


def mlp_of(**params):
    return {"model_params": MODEL | params}


def mixed(**params):
    modules = {"expert": module(**params), "gate": module()}
    rates = {"num_experts": 2, "local_lr": 0.1, "gate_lr": 0.1, "cluster_init": "full"}
    return {"method": "adaptive_experts", "params": rates, "modules": modules}


def simulation(**changes):
    return build_simulation(spec(**changes), toy_federation(), executor="loop")


def sizes(task):
    """Inputs and outputs of a network."""
    first, *_, last = [value.shape for name, value in task.init(0).items() if "weight" in name]
    return first[1], last[0]


def test_what_is_left_out_is_what_the_data_have():
    bare = spec(model_params={"hidden": 8})
    assert sizes(build_task(bare, SHAPES)) == (64, 10)
    modules = {"modules": {"expert": {"model": "mlp", "params": {"hidden": 8}}, "gate": module()}}
    method = build_method(replace(bare, **mixed() | modules), build_task(bare, SHAPES), SHAPES)
    assert sizes(method.gate) == (64, 3) and sizes(method.expert) == (64, 10)
    # Also where `build` has a default: char_lstm's first matrix embeds, in 8 numbers.
    assert sizes(build_task(spec(model="char_lstm", model_params={}), SHAPES)) == (8, 10)
    assert Shapes((36,)).complete(vae.build, {}, ["in_features"]) == {"in_features": 36}


def test_a_gate_has_to_say_its_classes_which_are_experts():
    gated = spec(modules={"gate": {"model": "mlp", "params": {"hidden": 8}}})
    with pytest.raises(ConfigError, match="module gate: mlp: .*num_classes"):
        build_method(gated, build_task(gated, SHAPES), SHAPES)


def test_what_is_declared_stays():
    assert sizes(build_task(spec(model_params=MODEL), SHAPES)) == (4, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (mlp_of(in_features=5), "in_features must be 4, as inputs are 4 numbers, got 5; "),
        (mlp_of(num_classes=2), "model mlp: num_classes must be 3, as the data .*, got 2; "),
        (mlp_of(num_classes=9), "num_classes must be 3, .* so many, got 9; it may be left out"),
        ({"model": "emnist_cnn", "model_params": {}}, "emnist_cnn: it cannot read 4 numbers: .*"),
        ({"model": "resnet20", "model_params": {"norm_groups": 0}}, "model resnet20: .* zero"),
        ({"method": "local", "modules": {"large": [module(), module(num_classes=5)]}}, r"\[1\].*5"),
        (mixed(num_classes=2), "must give 3 logits, got 2"),
        (mixed(in_features=9), "module expert: it cannot read 4 numbers"),
    ],
)
def test_models_that_do_not_fit_the_data_are_refused_before_training(changes, message):
    with pytest.raises(ConfigError, match=message):
        simulation(**changes)


def test_of_a_users_method_only_classifiers_must_fit(monkeypatch):
    monkeypatch.setattr(build, "is_ours", lambda kind: False)
    simulation(**mixed())
    with pytest.raises(ConfigError, match="module expert must give 3 logits, got 2"):
        simulation(**mixed(num_classes=2))


DRAWS = "model mlp draws from the global generator of PyTorch, .*; take Drop"


class Later(Network):
    def forward(self, x):
        return super().forward(x) / (2 if self.training else 1)


@pytest.mark.parametrize(
    ("kind", "layer", "message"),
    [
        (Network, nn.Dropout, DRAWS),
        (Later, Dropout, "model mlp must give head.body.x..; move what follows, as a factor, into"),
        (Network, Dropout, None),
        (Network, lambda _: spectral_norm(nn.Linear(8, 8)), None),  # it learns as it runs
    ],
)
def test_a_model_that_draws_or_is_more_than_head_and_body_is_refused(
    kind, layer, message, monkeypatch
):
    make = lambda **_: kind([nn.Linear(4, 8), nn.ReLU(), layer(0.3)], nn.Linear(8, 3))  # noqa: E731
    monkeypatch.setattr(mlp, "build", make)
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        simulation()


def test_what_a_model_of_the_workflow_freezes_is_neither_trained_nor_drawn_anew(monkeypatch):
    make = lambda **_: Network([nn.Linear(4, 8).requires_grad_(False)], nn.Linear(8, 3))  # noqa: E731
    monkeypatch.setattr(mlp, "build", make)
    one, other = (simulation().method.task for _ in range(2))
    assert {*one.init(0)} == {"head.weight", "head.bias"}
    assert torch.equal(one._training.body[0].weight, other._evaluating.body[0].weight)
    loaded = replace(one, pretrained={"body.0.weight": torch.ones(8, 4)})._training
    assert loaded.body[0].weight.eq(1).all()
    with pytest.raises(ValueError, match=r"parameters \['body.0.weight'\] are not in the model in"):
        replace(one, pretrained={"body.0.weight": torch.ones(4, 8)})


@pytest.mark.parametrize("method", ["fedem", "pfedmm", "ifca"])
def test_more_experts_than_any_memory_has_room_for_are_refused(method):
    with pytest.raises(ConfigError, match=r"num_experts must be in \[1, 1000\], got 1000000000"):
        simulation(method=method, params={"num_experts": 10**9})


@pytest.mark.parametrize("endless", ["steps", "epochs"])
def test_more_steps_than_can_be_listed_are_refused(endless):
    with pytest.raises(ConfigError, match=rf"{endless} must be in \[1, 1000000\], got 1000000000"):
        SGD(lr=0.1, **{endless: 10**9})
