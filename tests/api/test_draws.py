"""The global generators of the process: seeds pass through them, and what others draw is found."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from support import same_bits
from test_api import cut, quiet
from torch import nn

import fedlib
from fedlib import draws
from fedlib.errors import ConfigError

SGD = fedlib.SGD(lr=0.1, batch_size=16)
DRAWS = {
    "PyTorch": lambda: torch.rand(()).item(),
    "NumPy": lambda: np.random.rand(),
    "Python": random.random,
}


def network(kind=nn.Linear):
    return nn.Sequential(kind(64, 16), nn.ReLU(), kind(16, 10))


@pytest.mark.parametrize("name", DRAWS)
def test_what_a_block_draws_from_a_global_generator_is_found_and_taken_back(name):
    with draws.aside(1):
        expected = DRAWS[name]()
    with draws.aside(1):
        told = pytest.raises(ConfigError, match=f"it draws from .* of {name},")
        with told, draws.refuse("it", "do not"):
            DRAWS[name]()
        assert DRAWS[name]() == expected


def test_gpus_that_are_first_used_in_a_block_have_its_seed_and_later_the_one_before(monkeypatch):
    waiting = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", waiting.append)
    with draws.aside(5), draws.aside(1):
        assert (torch.initial_seed(), waiting) == (1, [5, 1])
    assert waiting == [5, 1, 5, torch.initial_seed()]


class Slow(nn.Linear):
    """Notes which layers draw their weights at the same time."""

    drawing, seen = [], []

    def reset_parameters(self):
        self.drawing.append(self)
        time.sleep(0.002)
        self.seen.append(len(self.drawing))
        super().reset_parameters()
        self.drawing.remove(self)


def test_runs_in_threads_give_the_bits_of_runs_one_after_the_other():
    def run(seed):
        return quiet(cut(), model, local=SGD, rounds=1, seed=seed).state.params

    model, before = network(Slow), torch.get_num_threads()
    with ThreadPoolExecutor(4) as pool:
        assert same_bits([*pool.map(run, range(6))], [*map(run, range(6))])
    assert {*Slow.seen} == {1}  # while a thread draws, all others wait
    assert torch.get_num_threads() == before


def test_a_function_that_sets_the_seed_gives_its_weights_and_further_experts_a_new_head():
    def seeded():
        torch.manual_seed(3)
        return network()

    result = quiet(cut(), seeded, "fedem", local=SGD, rounds=1, seed=5, num_experts=2)
    first, other = (result.simulation.method.task.init(seed) for seed in (5, 6))
    given = seeded()
    assert same_bits([first["body.0.weight"], first["head.weight"]], [x.weight for x in given[::2]])
    assert torch.equal(first["body.0.weight"], other["body.0.weight"])
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: nn.Linear(3, 2).weight,
        lambda: nn.init.orthogonal_(torch.empty(4, 3)),
        lambda: torch.randn(5),
        lambda: torch.randint(3, 9, (5,)),
        lambda: torch.randperm(9),
        lambda: torch.normal(torch.zeros(4), 2.0),
        lambda: torch.tensor(torch.empty(4, device="meta").uniform_().shape),
        lambda: torch.rand(4, generator=torch.Generator().manual_seed(3)),
    ],
)
def test_what_is_drawn_apart_are_the_numbers_of_the_seed_whatever_another_thread_draws(draw):
    torch.manual_seed(5)
    expected = [draw(), draw()]
    with draws.Apart(5), ThreadPoolExecutor(1) as pool:
        found = [draw()]
        pool.submit(torch.rand, 3).result()
        found.append(draw())
    assert same_bits(found, expected)


@pytest.mark.parametrize(
    "around", [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu")]
)
def test_what_the_caller_sets_for_pytorch_changes_nothing(around):
    expected = quiet(cut(), network(), local=SGD, rounds=1)
    with around():
        found = quiet(cut(), network(), local=SGD, rounds=1)
        accuracy, model = found.evaluate(), found.client_model(0)
    assert same_bits(found.state, expected.state)
    assert same_bits(model.state_dict(), expected.client_model(0).state_dict())
    assert accuracy.equals(expected.evaluate())
