"""Cohorts that train part by part: the same bits for any part, and no more models than one has."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from every_method import make
from support import assert_close, cohort_of, federation_for, same_bits, sgd, tiny_task

from fedlib import tree
from fedlib.engine import executors, parts
from fedlib.engine.cohort import Cohort
from fedlib.engine.executors import Loop
from fedlib.engine.gossip import GossipCohort
from fedlib.engine.traced import Traced
from fedlib.tree import Rows

SIZES = (7, 12, 6, 10, 8, 4, 9)  # the last client does not train
# What the server makes of the clients' models is a sum, so that none needs to be kept.
STREAMING = (
    "afl apfl biased_fedavg fedavg fedavg_adam fedem fedmix fedmix_clients fedprox fedrolex "
    "gated_experts ifca label_leakage moe_fedavg pfedme_moreau pfedmm plain_mixture "
    "server_finetuning"
).split()
every_streaming = pytest.mark.parametrize("name", STREAMING)


def rounds(name, executor, monkeypatch, clients, summed):
    """The state after two rounds with parts of so many clients, summed in such pieces."""
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": 0})
    monkeypatch.setattr(parts, "SUMMED_BYTES", {"cpu": summed})
    monkeypatch.setattr(executor, "together", clients, raising=False)
    method, federation = make(name, dtype=torch.float32), federation_for(name, SIZES)
    state = method.init(federation.num_clients, 0)
    for number in range(2):
        cohort = cohort_of(method.task, federation, round=number)
        state = method.round(state, replace(cohort, executor=executor))
    return state


@every_streaming
def test_every_bit_is_the_same_for_any_part(name, monkeypatch):
    # Clients of a part; bytes that are summed at once, client by client or a few together.
    for clients, summed in ((4, 1), (1, 600)):
        several = rounds(name, Loop(), monkeypatch, clients, summed)
        assert same_bits(several, rounds(name, Loop(), monkeypatch, 6, summed)), clients


def test_a_total_that_is_read_in_a_part_counts_whole(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": 0})  # a client in each part
    task = tiny_task()
    cohort = cohort_of(task, federation_for("fedavg", SIZES))
    found = [
        cohort.fit(task.loss, cohort.held(task.init(0)), local=sgd(), returns=returns)[0].mean()
        for returns in (Cohort.total, lambda part, models: part.collect(part.total(models)))
    ]
    assert_close(*found, 1e-14)


@pytest.mark.parametrize("size", [0, 2**24], ids=["several parts", "one part"])
def test_what_is_returned_of_a_part_has_a_row_for_each_of_its_clients(size, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": size})
    cohort = cohort_of(task := tiny_task(), federation_for("fedavg", SIZES))
    start, wrong = cohort.held(task.init(0)), lambda part, trained: torch.zeros(())
    with pytest.raises(ValueError, match="values of clients must be .*; one has 0 rows"):
        cohort.fit(task.loss, start, local=sgd(), returns=wrong)


@pytest.mark.parametrize("name", ["fedem", "moe_fedavg"])
def test_every_bit_is_the_same_for_any_part_of_traced_steps_and_any_workers(name, monkeypatch):
    whole = rounds(name, Loop(), monkeypatch, 6, 2**20)
    for executor in (Loop(3), Traced(), Traced(2)):
        assert same_bits(whole, rounds(name, executor, monkeypatch, 4, 2**20))


class Weighing(Loop):
    """A loop that notes how many bytes of tensors there are after the clients of a part."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def fold(self, *args):
        after = super().fold(*args)
        gc.collect()
        alive = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors()}
        self.most = max(self.most, sum(x.nbytes() for x in alive.values()))
        return after


def tensors():
    return [x for x in gc.get_objects() if type(x) is torch.Tensor and x.device.type == "cpu"]


def most_bytes(name, clients, monkeypatch):
    """The most bytes of tensors in a round of so many clients, parts of three of them."""
    executor = Weighing()
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": 0})
    monkeypatch.setattr(parts, "SUMMED_BYTES", {"cpu": 1})
    monkeypatch.setattr(executor, "together", 3)
    wide = make(name, hidden=1500, dtype=torch.float32)
    method = replace(wide, local=sgd(momentum=0.0, weight_decay=0.0))
    federation = federation_for(name, (4,) * (clients + 1))
    cohort = replace(cohort_of(method.task, federation), executor=executor)
    method.round(method.init(federation.num_clients, 0), cohort)
    return executor.most


@pytest.mark.parametrize("name", ["fedavg", "fedavg_adam", "ifca", "pfedmm"])
def test_memory_does_not_grow_with_the_cohort(name, monkeypatch):
    gc.collect()
    gc.freeze()  # of what there was before, nothing is looked at after every part
    few, many = (most_bytes(name, clients, monkeypatch) for clients in (6, 12))
    gc.unfreeze()
    # A model has 12,003 numbers in float32; 6 more of them would be 6 times that.
    assert many - few < 2 * 4 * 12_003


def test_rows_and_stacked_models_are_kept_in_the_order_of_the_cohort(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": 0})
    task, federation = tiny_task(), federation_for("fedavg", SIZES)
    cohort = cohort_of(task, federation, [4, 1, 2, 0])
    start = cohort.broadcast(task.init(0))
    trained, _ = cohort.fit(task.loss, start, local=sgd())

    def returns(part, models):
        rows = Rows(tree.unstack(models))
        return {"total": part.total(models), "own": models, "rows": rows, "ids": part.ids}

    kept, _ = cohort.fit(task.loss, start, local=sgd(), returns=returns)
    assert kept["ids"].tolist() == [4, 1, 2, 0]
    assert same_bits(trained, kept["own"])
    assert same_bits(trained, tree.together(kept["rows"]))
    assert_close(tree.mean(trained, cohort.num_examples), kept["total"].mean())
    assert len(cohort.journal.losses) == 2
    assert torch.equal(*cohort.journal.losses)


def test_a_total_among_some_clients_is_theirs():
    task, federation = tiny_task(), federation_for("fedavg", SIZES)
    cohort = cohort_of(task, federation, [4, 1, 2])
    total = cohort.total(torch.tensor([[1.0], [10.0], [100.0]]), np.array([True, False, True]))
    assert (total.sum.item(), total.weight) == (8 * 1 + 6 * 100, 8 + 6)


def test_without_a_server_everybody_keeps_what_a_total_would_add_up():
    task, federation = tiny_task(), federation_for("fedavg", SIZES)
    there = vars(cohort_of(task, federation))
    cohort = GossipCohort(**{k: v for k, v in there.items() if k in Cohort.__dataclass_fields__})
    x = torch.arange(6.0)[:, None]
    assert cohort.total(x) is x
    with pytest.raises(ValueError, match="of some clients needs a server, and there is none"):
        cohort.total(x, among=np.arange(6) < 3)


def test_parts_have_as_many_clients_as_there_is_room_for(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", {"cpu": 4 * 100})
    models = {"w": torch.zeros(30).expand(10, 30)}  # 120 bytes each
    sizes = [len(range(10)[cut]) for cut in parts.slices(models, 10, 1)]
    assert sizes == [3, 3, 3, 1]
    sizes = [len(range(10)[cut]) for cut in parts.slices(models, 10, executors.TURNS)]
    assert sizes == [8, 2]
