"""Clients of different architectures: batched by kind, never copied, and right in every stage."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import toy_paper, toy_run
from every_method import make
from support import (
    assert_close,
    cohort_of,
    executors,
    sgd,
    silently,
    simulation_of,
    tiny_task,
    toy_federation,
    with_validation,
)
from torch import nn

import fedlib.engine.device
import fedlib.engine.executors
from fedlib import tree
from fedlib.engine.device import place
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.graphs import Graphs
from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.run import checkpoint, operations
from fedlib.tree import Rows
from fedlib.workflow.plan import Plan

SIZES = (7, 12, 6, 10, 14, 11)
wide = {"w": torch.ones(3, 2), "b": torch.zeros(3)}
deep = {"v": torch.full((4,), 2.0)}


def simulation(**course):
    """Of FML, whose clients have one of two private models beside one that all share."""
    return simulation_of(make("fml"), toy_federation(SIZES), **{"rounds": 2, "seed": 3} | course)


# -- trees of rows ------------------------------------------------------------------------


def test_rows_are_taken_and_put_by_client_beside_stacked_leaves():
    both = {"own": Rows([wide, deep, wide]), "all": torch.arange(3.0)}
    assert tree.take(both, 1) == {"own": deep, "all": torch.tensor(1.0)}
    taken = tree.take(both, torch.tensor([1, 0]))
    assert taken["all"].tolist() == [1, 0]
    assert taken["own"][0] is deep and taken["own"][1] is wide
    put = tree.put(both, torch.tensor([1, 0]), tree.map(torch.zeros_like, taken))
    assert put["all"].tolist() == [0, 0, 2]
    assert put["own"][1]["v"].tolist() == [0] * 4 and put["own"][0]["w"].sum() == 0
    assert put["own"][2] is wide  # not a copy, as it is nobody's in this call
    assert deep["v"].tolist() == [2] * 4
    assert isinstance(tree.take(both["own"], slice(2)), Rows)
    own = tree.clone(both)
    tree.put_(own, torch.tensor([1]), tree.map(torch.zeros_like, tree.take(own, torch.tensor([1]))))
    assert own["all"].tolist() == [0, 0, 2] and own["own"][1]["v"].tolist() == [0] * 4


def test_kinds_are_told_apart_by_keys_shapes_types_and_by_what_is_no_tensor():
    longer, double = {"v": torch.zeros(5)}, {"v": torch.zeros(4).double()}
    assert tree.kinds(Rows([deep, wide, longer, dict(deep), double])).tolist() == [0, 1, 2, 0, 3]
    assert tree.kinds({"a": Rows([deep] * 3), "b": Rows([0, 1, 0])}).tolist() == [0, 1, 0]
    one, other = tiny_task(), tiny_task()  # equal in all but who they are
    assert tree.kinds(Rows([one, other, one])).tolist() == [0, 1, 0]
    assert tree.kinds(Rows([deep, deep])) is None
    assert tree.kinds({"all": torch.zeros(3)}) is None


def test_averages_are_of_clients_of_one_kind():
    rows = Rows([{"v": torch.full((2,), x)} for x in (1.0, 4.0)])
    assert tree.mean(rows, torch.tensor([2.0, 1.0]))["v"].tolist() == [2, 2]  # (2 + 4) / 3
    with pytest.raises(ValueError, match="2 clients have trees of different shapes"):
        tree.mean(Rows([wide, deep]), torch.ones(2))


# -- training -----------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [Batched, Graphs])
def test_architectures_of_equal_shapes_are_not_mixed_up(executor):
    class Cubed(nn.Module):
        """As `Squared` in every name and shape."""

        def __init__(self, power=3):
            super().__init__()
            self.body, self.head, self.power = nn.Identity(), nn.Linear(4, 3), power

        def forward(self, x):
            return self.head(self.body(x) ** self.power)

    tasks = [Task(lambda p=p: Cubed(p), dtype=torch.float64) for p in (2, 3)]
    federation, found = toy_federation(SIZES, unseen=0), []
    for e in (Loop(), executor()):
        cohort = replace(cohort_of(tasks[0], federation), executor=e)
        start = cohort.broadcast(tasks[0].init(0))
        own = cohort.in_turn(tasks)
        trained, _ = cohort.fit(lambda w, task, b: task.loss(w, b), start, own, local=sgd())
        found.append(trained)
    assert_close(*found)
    assert not torch.allclose(found[0]["head.weight"][0], found[0]["head.weight"][1])


def test_clients_of_one_kind_are_batched_and_of_two_are_not():
    sizes = []

    class Watching(Batched):
        def _vmap(self, fn, *args):
            sizes.append(len(args[-1].x if hasattr(args[-1], "x") else args[0]))
            return super()._vmap(fn, *args)

    method = make("fml")
    federation = toy_federation((8,) * 6, unseen=1)  # clients 0, 2, 4 are wide, 1 and 3 narrow
    cohort = replace(cohort_of(method.task, federation), executor=Watching())
    method.round(method.init(6, 0), cohort)
    assert sizes == [3, 3, 2, 2]  # two batches of 4, of each kind in turn


@executors
def test_scores_of_different_shapes_are_refused(executor):
    cohort = cohort_of(tiny_task(), toy_federation(SIZES, unseen=0), executor=executor)
    rows = cohort.in_turn([torch.zeros(2), torch.zeros(3)])
    with pytest.raises(ValueError, match=r"differ in shape between clients, \[\(2,\), \(3,\)\]"):
        cohort.score(lambda row, batch: row.expand(len(batch.y), -1), rows)


@executors
def test_a_client_without_examples_of_a_split_is_scored_with_the_others(executor):
    some = np.where(np.arange(len(SIZES)) == 2, 0, 4)  # of four test examples
    federation = with_validation(toy_federation(SIZES, unseen=0), 4 - some)
    cohort = cohort_of(tiny_task(), federation, executor=executor)
    rows = cohort.in_turn([torch.ones(1).double(), torch.ones(2).double()])
    found = cohort.score(lambda row, batch: row.sum().expand(len(batch.y)), rows, split="test")
    assert found.sum(1).tolist() == [n * (1 + client % 2) for client, n in enumerate(some)]


# -- what is kept -------------------------------------------------------------------------


@executors
def test_a_round_does_not_touch_the_rows_of_clients_outside_the_cohort(executor):
    method, federation = make("fml"), toy_federation(SIZES)
    cohort = cohort_of(method.task, federation, [1, 2], executor=executor)
    before = method.round(method.init(6, 0), cohort_of(method.task, federation))
    copy = tree.clone(before)
    after = method.round(before, cohort)
    for rows, renewed in ((before.models["large"], after.models["large"]),
                          (before.memory.buffers, after.memory.buffers)):  # fmt: skip
        same = [new is old for old, new in zip(rows, renewed, strict=True)]
        assert same == [client not in (1, 2) for client in range(6)]
    assert_close(before, copy, 0)  # and what was there is as it was
    pointers = [x.data_ptr() for row in after.models["large"] for x in tree.leaves(row)]
    # Trained clients have tensors of their own; the unseen client still has the drawn model.
    assert len(set(pointers)) == len(pointers)


def test_rows_stay_in_host_memory_when_all_clients_take_too_much(monkeypatch):
    moves, rows = [], Rows([wide, deep, wide])  # 9 + 4 + 9 numbers of 4 bytes
    monkeypatch.setattr(fedlib.engine.device, "move", lambda x, to: moves.append(to) or dict(x))
    monkeypatch.setattr(fedlib.engine.device, "total_memory", lambda device: 4 * 22 * 4)
    assert place(rows) is rows and moves == []
    monkeypatch.setattr(fedlib.engine.device, "total_memory", lambda device: 4 * 22 * 4 - 1)
    there = place(rows)
    assert moves == [torch.device("cpu")] * 2  # one of each kind, which clients share
    assert there[0] is there[2] and there[0] is not wide


# -- the stages ---------------------------------------------------------------------------


def test_rows_are_named_by_client_and_shared_ones_are_written_once(tmp_path):
    method = make("fml")
    sha256 = checkpoint.save_tensors(tmp_path / "state.pt", checkpoint.flatten(method.init(8, 0)))
    loaded = checkpoint.load_tensors(tmp_path / "state.pt", sha256)
    assert ".memory.buffers[7]['small']['head.1.bias']" in loaded
    own = {name: x.data_ptr() for name, x in loaded.items() if name.startswith(".models[")}
    drawn = [len(task.init(0)) for task in method.large]
    assert (len(own), len(set(own.values()))) == (4 * sum(drawn), sum(drawn))


def test_what_clients_of_two_sizes_send_is_counted():
    cohort = cohort_of(tiny_task(), toy_federation(SIZES), [0, 1, 2])
    cohort.collect(cohort.in_turn([wide, deep]))
    cohort.scatter({"own": cohort.in_turn([wide, deep]), "all": torch.zeros(3, 2)})
    assert cohort.journal.up == pytest.approx(9 + 4 + 9)
    assert cohort.journal.down == pytest.approx(9 + 4 + 9 + 3 * 2)


def test_a_decentralised_run_mixes_what_is_shared_and_keeps_what_is_private():
    run = simulation(aggregation="gossip", edge_probability=1.0)
    state, result = silently(run)
    copies = state.small["head.1.bias"]
    assert copies.shape == (6, 3)  # a copy of each client's
    assert_close(copies[:4], copies[1:5], 1e-9)  # all five are mixed with all others
    assert tree.kinds(state.models["large"]).tolist() == [0, 1, 0, 1, 0, 1]
    assert np.isfinite(result.train_loss).all()
    cohort = run.cohort(run.federation.ids("seen"), 0)
    with pytest.raises(ValueError, match="5 clients have trees of different shapes"):
        private = tree.take(state.models["large"], cohort.host_ids)
        cohort.average(private, private)


def test_the_cost_of_an_example_is_the_mean_over_the_kinds_by_their_examples():
    # Forward multiply-adds; a step is three times that less the input gradient of first layers.
    small, wide, narrow = ((4 + 3) * hidden for hidden in (6, 9, 5))
    steps = [3 * (small + wide) - 4 * (6 + 9), 3 * (small + narrow) - 4 * (6 + 5)]
    run = simulation()
    # One step has four examples, however many a client has.
    for number, used in (None, SIZES[:5]), (1, [4] * 5):
        solver = replace(run.method.local, steps=number, batch_size=4)
        few = replace(run, method=replace(run.method, local=solver))
        mean = np.average(np.resize(steps, 5), weights=used)
        assert operations.flops_per_example(few, few.init()) / 2 == pytest.approx(mean, rel=1e-12)


# -- declarations -------------------------------------------------------------------------


def test_a_declared_architecture_that_does_not_exist_is_named(declare):
    listed = {"large": [{"model": x, "params": {}} for x in ("mlp", "vgg")]}
    declare(toy=toy_paper(federations=("digits",), runs=[toy_run(modules=listed)]))
    with pytest.raises(ConfigError, match=r"modules\[large\[1\]\]\.model.*vgg"):
        Plan({})
