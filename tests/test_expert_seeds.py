"""How the experts of a mixture are drawn, and that seeds are independent replicates."""

import itertools

import pytest
import torch
from support import modules_of, sgd, tiny_task

from fedlib import methods, tree
from fedlib.engine import experts

EXPERTS = 3
SEEDS = (1234, 1235, 1236, 1237)


def shared_and_private(state) -> dict[str, torch.Tensor]:
    """The experts of pFedMoE: the server's, then the first client's own -> [E, ...]"""
    private = tree.take(state.models["expert"], slice(1))
    return tree.concatenate([state.experts, private])


# Methods that draw several models, with what else they need, and where their state has them.
MIXTURES = {
    "adaptive_experts": (
        {"cluster_init": "full", "local_lr": 0.1, "gate_lr": 0.1},
        lambda state: state.experts,
    ),
    "fedem": ({}, lambda state: state.experts),
    "fedmix": ({}, lambda state: state.experts),
    "fedmix_clients": ({}, lambda state: state.experts),
    "fedmix_vae": ({}, lambda state: state.experts),
    "ifca": ({"cluster_init": "full"}, lambda state: state.experts),
    "pfedmm": ({}, lambda state: state.experts["heads"]),
    "gated_experts": ({"gate_features": 4}, shared_and_private),
    "plain_mixture": ({}, lambda state: state.model["experts"]),
}
each = pytest.mark.parametrize("name", MIXTURES)


def make(name, num_experts=EXPERTS, **params):
    return methods.load(name)(
        task=tiny_task(),
        local=sgd(keeps="round"),
        num_experts=num_experts,
        **modules_of(name, num_experts),
        **MIXTURES[name][0],
        **params,
    )


def heads(name, seed, **params):
    """Weights of the head, which all of these methods draw, of every expert -> [E, ...]"""
    return MIXTURES[name][1](make(name, **params).init(4, seed))["head.1.weight"]


def test_every_method_with_several_experts_is_looked_at_here():
    several = {
        name for name in methods.METHODS if "num_experts" in methods.load(name).__dataclass_fields__
    }
    assert several == set(MIXTURES)


@each
def test_no_two_experts_of_neighbouring_seeds_are_the_same(name):
    drawn = [expert for seed in SEEDS for expert in heads(name, seed)]
    assert len(drawn) == len(SEEDS) * EXPERTS
    for one, other in itertools.combinations(drawn, 2):
        assert not torch.equal(one, other)


@each
def test_the_first_expert_is_the_single_model_of_the_seed(name):
    for seed in SEEDS:
        assert torch.equal(heads(name, seed)[0], tiny_task().init(seed)["head.1.weight"])


def test_what_is_drawn_after_the_experts_is_no_expert_of_another_seed():
    pairs = itertools.product(range(50), range(EXPERTS + 1))
    numbers = [experts.expert_seed(seed, e) for seed, e in pairs]
    assert len(set(numbers)) == len(numbers) == 50 * (EXPERTS + 1)
    # PyTorch's generator of the CPU begins from the lower half of its seed.
    assert len({number % 2**32 for number in numbers}) == len(numbers)
