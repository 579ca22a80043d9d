"""How the experts of a mixture are drawn, and that seeds are independent replicates."""

import itertools

import pytest
import torch
from every_method import make
from support import tiny_task

from fedlib import methods, tree

EXPERTS = 3
SEEDS = (1234, 1235, 1236, 1237)


def shared_and_private(state) -> dict[str, torch.Tensor]:
    """The experts of pFedMoE: the server's, then the first client's own -> [E, ...]"""
    return tree.concatenate([state.experts, tree.take(state.models["expert"], slice(1))])


# Methods that draw several models, and where the state has them if not in `experts`.
MIXTURES = [x for x in methods.METHODS if "num_experts" in methods.load(x).__dataclass_fields__]
WHERE = {
    "pfedmm": lambda state: state.experts["heads"],
    "gated_experts": shared_and_private,
    "plain_mixture": lambda state: state.model["experts"],
}
each = pytest.mark.parametrize("name", MIXTURES)


def heads(name, seed):
    """Weights of the head, which all of these methods draw, of every expert -> [E, ...]"""
    state = make(name).init(4, seed)
    return WHERE.get(name, lambda state: state.experts)(state)["head.1.weight"]


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
