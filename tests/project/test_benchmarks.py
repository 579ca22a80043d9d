"""The benchmarks measure the work they say, and their arithmetic is right. Nothing is timed."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from support import only_in_ci

from benchmarks import factors, micro, models, page
from benchmarks.contenders import CONTENDERS
from benchmarks.items import ITEMS
from fedlib.engine.participation import sample
from fedlib.workflow.provenance import ROOT


class Turns:
    """A clock that lets a contender do so many rounds, and notes them."""

    def __init__(self, rounds):
        self.rounds, self.samples = rounds, []

    def begin(self):
        self.begun_before = len(self.samples)

    def tick(self, samples):
        self.samples.append(samples)
        return len(self.samples) < self.rounds


def tiny(name):
    """The item with four clients, of which two take part in a round."""
    return dataclasses.replace(ITEMS[name], num_clients=4, examples=24, cohort=2, batch_size=4)


# -- work items ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ITEMS)
def test_cohorts_are_those_the_engine_draws(name):
    item = ITEMS[name]
    everybody = np.arange(item.num_clients)
    for number in range(3):
        drawn = sample(everybody, item.rate, 0, number)
        assert item.clients(number).tolist() == drawn.tolist()
        assert len(drawn) == item.cohort


@pytest.mark.parametrize("name", ["W1a", "W2b", "W2c", "W3b"])
def test_the_plain_model_is_the_engines_model(name):
    # Float64 and evaluation mode; a reordered ReLU is exact, folded normalisation is not quite.
    item = ITEMS[name]
    plain, fast = models.plain(item).double().eval(), models.fast(item).double().eval()
    fast.load_state_dict(plain.state_dict())
    x = torch.from_numpy(dataclasses.replace(item, examples=2).data()[0]).double()
    with torch.no_grad():
        assert fast(x).shape == (2, item.num_classes)
        torch.testing.assert_close(fast(x), plain(x), rtol=1e-10, atol=1e-10)


# -- contenders ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contender", "name"),
    [
        ("ours/loop", "W2b"),
        ("ours/batched", "W2b"),
        ("pfedmm/loop", "W1a"),
        ("plain", "W2b"),
        ("fedem", "W4a"),
    ],
)
def test_a_contender_trains_the_cohorts_of_the_item(contender, name):
    item, turns = tiny(name), Turns(3)
    who, _, setting = contender.partition("/")
    threads = torch.get_num_threads()
    options = {"pfedmm": True} if who == "pfedmm" else {}
    CONTENDERS[who].load().run(item, setting, 1, turns, **options)
    torch.set_num_threads(threads)
    assert turns.begun_before == 0  # so that starting is no part of warming up
    assert turns.samples == [int(item.sizes()[item.clients(n)].sum()) for n in range(3)]


@only_in_ci  # eight seconds
def test_a_job_of_its_own_takes_its_first_step_and_a_table_needs_no_pytorch():
    first, _, imported = micro.start(1).values()
    assert first["value"] > 0 == imported["value"]


def test_factors_are_derived_from_kept_trainings():
    found = [*factors.trainings(ROOT / "docs/results/adaptive_experts/full/local")]
    assert [x["method"] for x in found] == ["local_experts"] * 5 and found[0]["train"] > 1


# -- documents ----------------------------------------------------------------------------


def test_the_readme_has_the_goals_of_the_result_files():
    results = ROOT / "benchmarks/results"
    known = {x: json.loads((results / f"{x}.json").read_text()) for x in page.SIDE_BY_SIDE}
    text = (ROOT / "benchmarks/README.md").read_text()
    assert page.renewed(text, known) == text
    assert "| W2c | rate / best peer | 1.3 | **1.59** (pfl/threads) |" in text
