"""The presets of Fed-MoE are what the method takes, and mean what they say."""

import json

import pytest
import torch
from support import tiny_task, toy_federation, with_server
from test_fedmoe import run

from fedlib import methods
from fedlib.engine.solvers import from_spec
from fedlib.papers.fedmoe import presets

EXPERTS = {"femnist": 5, "cifar10": 5, "sent140": 3, "yelp": 3}


def made(dataset, preset):
    found = presets.fedmoe(dataset, preset)
    spec = json.loads(json.dumps(found._asdict()))  # declarations are JSON
    return methods.load("fedmoe")(
        task=tiny_task(),
        gate=tiny_task(classes=EXPERTS[dataset], hidden=3),
        local=from_spec(spec["local"]),
        **spec["params"],
    )


@pytest.mark.parametrize(
    ("dataset", "preset"),
    [
        *((name, "paper") for name in presets.SETTINGS),
        *((name, "code") for name, setting in presets.SETTINGS.items() if setting.code),
    ],
)
def test_every_preset_trains(dataset, preset):
    method = made(dataset, preset)
    state = run(method, with_server(toy_federation(), by_rule=True), rounds=1)
    assert torch.isfinite(state.best.loss)
    assert presets.SETTINGS[dataset].cohort == method.num_routed


def test_a_cosine_falls_over_all_epochs_of_the_run():
    assert made("cifar10", "paper").server.schedule.period == 100 * 5 * 5
    spec = presets.fedmoe("cifar10", rounds=10).params["server"]
    assert from_spec(spec).schedule.period == 10 * 5 * 5
