"""Blocks, workers, replayed steps and waiting for the device: how work is run changes no result."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stages import SPEC, options, run_here, shards
from support import assert_close, cohort_of, sgd, tiny_task, toy_federation
from torch.func import grad

import fedlib.engine.device
import fedlib.engine.executors
import fedlib.engine.graphs
from fedlib import tree
from fedlib.engine.choice import choose
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.fingerprint import Opaque, walk
from fedlib.engine.graphs import Graphs
from fedlib.engine.schedules import Schedule
from fedlib.engine.solvers import Adam
from fedlib.engine.task import Task, set_precision
from fedlib.engine.traced import Traced
from fedlib.results import RunResult

UNEVEN = (7, 12, 6, 10, 3)


def trained(executor, task=None, local=None, federation=None, count=4):
    """(parameters, solver memory) after some rounds of averaging."""
    task, federation = task or tiny_task(), federation or toy_federation(UNEVEN, unseen=0)
    local = local or sgd(epochs=2)
    params = task.init(0)
    memory = local.memory(task.trainable(params), federation.num_clients)
    first = replace(cohort_of(task, federation), executor=executor)
    for number in range(count):
        cohort = first.in_round(number)
        models, memory = cohort.fit(task.loss, cohort.broadcast(params), local=local, memory=memory)
        params = cohort.average(models, params)
    return params, memory


# -- blocks and workers -------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["loop", "traced", "batched:1"])
def test_threads_are_given_by_option_or_environment_and_recorded(wanted, tmp_path, monkeypatch):
    spec, states = SPEC | {"rounds": 2}, []
    shards(tmp_path)
    for threads in (1, 2, 3):
        monkeypatch.setenv("FEDLIB_THREADS", "3" if threads == 3 else "1")
        folder, asked = tmp_path / f"run{threads}", None if threads == 3 else threads
        assert run_here("train", options(folder, spec, executor=wanted, threads=asked)) == 0
        told = RunResult.load(folder / "history.h5").provenance
        assert told["threads"] == told["execution"]["workers"] == threads
        assert (told["execution"]["setting"], told["precision"]) == (wanted, "float32")
        states.append((folder / "state.pt").read_bytes())
    assert states[0] == states[1] == states[2]


def test_blocks_are_even_and_of_clients_with_similar_numbers_of_steps():
    # 7 clients in blocks of at most 3 are 3 blocks, of 3, 2 and 2; the busiest go together.
    blocks = Batched(3)._blocks([5, 9, 1, 8, 2, 7, 3])
    assert [block.tolist() for block in blocks] == [[1, 3, 5], [0, 6], [2, 4]]


@pytest.mark.parametrize("executor", [Loop, Traced, Batched])
def test_a_step_may_put_new_tensors_into_its_carry(executor):
    task, federation = tiny_task(), toy_federation((7, 12), unseen=0)

    def in_place(params, batch):
        for name, gradient in grad(task.loss)(params, batch).items():
            params[name] = params[name] - 0.1 * gradient
        return params

    def anew(params, batch):
        gradients = grad(task.loss)(params, batch)
        return {name: value - 0.1 * gradients[name] for name, value in params.items()}

    cohort = cohort_of(task, federation, executor=executor())
    start, local = task.init(0), sgd(batch_size=4)
    found = [cohort.scan(x, cohort.broadcast(start), local=local) for x in (in_place, anew)]
    assert_close(*found)


def test_a_block_that_does_not_fit_into_memory_is_halved_for_good():
    fitting = trained(Batched())
    sizes = []

    class Small(Batched):
        """A device with room for two clients: it notices in the second wave."""

        def _vmap(self, fn, *args):
            clients = tree.leaves(args)[0].shape[0]
            sizes.append(clients)
            if clients > 2 and len(sizes) > 1:
                raise torch.OutOfMemoryError("of this test")
            return super()._vmap(fn, *args)

    small = Small(4)  # two blocks, of 3 and 2 clients
    assert_close(fitting, trained(small))
    assert (small.chunk, small.notes["chunk_halved_to"]) == (2, 2)
    assert sizes.count(3) == 2  # in the first wave, and in the second, which failed
    assert small.setting == "batched:2"


@pytest.mark.parametrize("executor", [Loop, Batched])
def test_examples_are_scored_in_as_large_batches_as_there_is_room_for(executor):
    task, federation, sizes = tiny_task(), toy_federation((7, 12), unseen=0), []

    def own_number(params, batch):
        sizes.append(len(batch.index))
        if len(batch.index) > 4:
            raise torch.OutOfMemoryError("of this test")
        return batch.index

    cohort = cohort_of(task, federation, executor=executor())
    scores = cohort.score(own_number, cohort.broadcast(task.init(0)))
    assert [scores[0, :7].tolist(), scores[1].tolist()] == [[*range(7)], [*range(12)]]
    assert max(sizes) > 4
    assert max(size for size in sizes if size <= 4) == 4


@pytest.mark.parametrize(
    ("wanted", "setting"),
    [("loop", "loop"), ("traced", "traced"), ("batched", "batched:160"),
     ("batched:7", "batched:7"), ("graphs:2", "graphs:2"), ("auto", "batched:160")],
)  # fmt: skip
def test_an_executor_is_chosen_by_its_setting(wanted, setting):
    executor = choose(wanted, [tiny_task()])
    assert executor.setting == setting
    assert executor.notes["chosen_by"] == ("rule" if wanted == "auto" else "request")
    assert choose(executor.setting, [tiny_task()]).setting == setting


WRONG = [
    "",
    *"vmap loop:3 loop:onednn traced:3 traced:onednn traced: batched: batched:0 batched:x".split(),
]


@pytest.mark.parametrize("wanted", WRONG)
def test_an_unknown_executor_names_the_choices(wanted):
    message = f"executor must be auto, loop, .*, batched, graphs, got '{wanted}'"
    with pytest.raises(ValueError, match=message):
        choose(wanted, [tiny_task()])


# -- replayed steps -----------------------------------------------------------------------


def test_steps_are_replayed_from_the_third_wave_of_a_shape_on():
    # Shards of 8 in batches of 4, by 2 clients: 2 waves of one shape in each epoch.
    executor, federation = Graphs(), toy_federation((8, 8), unseen=0)
    trained(executor, local=sgd(epochs=5), federation=federation, count=3)
    assert executor.notes["captured_shapes"] == 1
    assert executor.notes["replays"] == 2 * 5 * 3 - fedlib.engine.graphs.WARM
    assert not executor.notes["not_replayed"]


def test_a_replayed_step_uses_the_rate_of_its_round():
    local, executor = Adam(lr=0.01, batch_size=4, schedule=Schedule("cosine", period=5)), Graphs()
    assert_close(trained(Batched(), local=local, count=6), trained(executor, local=local, count=6))
    assert executor.notes["replays"] > 0


@pytest.mark.parametrize("executor", [Graphs, Traced])
def test_a_step_that_is_repeated_uses_what_its_function_closed_over_in_its_round(executor):
    task, federation = tiny_task(), toy_federation((8, 8), unseen=0)
    executor, found = executor(), []
    first = cohort_of(task, federation)
    reference = Loop() if executor.name == "traced" else Batched()
    for number in range(4):
        pull = torch.full((), float(number)).double()  # another tensor in every round

        def loss(params, batch, pull=pull):
            return task.loss(params, batch) + pull * tree.sqnorm(params)

        models = []
        for e in (executor, reference):
            cohort = replace(first, round=number, executor=e)
            models.append(cohort.fit(loss, cohort.broadcast(task.init(0)), local=sgd())[0])
        assert_close(*models)
        found.append(models[0]["head.1.bias"])
    assert executor.notes["replays" if executor.name == "graphs" else "traced_shapes"] > 0
    assert not torch.allclose(found[2], found[3])


def test_steps_that_look_at_their_cohort_are_not_replayed_and_the_reason_is_noted():
    task, federation, executor = tiny_task(), toy_federation(), Graphs()
    found = []
    for e in (executor, Loop()):
        cohort = replace(cohort_of(task, federation), executor=e)

        def step(params, batch, cohort=cohort):
            gradient = grad(lambda p: task.loss(p, batch))(params)
            return tree.add(params, gradient, -0.1 / (1 + cohort.round))

        found.append(cohort.scan(step, cohort.broadcast(task.init(0)), local=sgd()))
    assert_close(*found)
    assert list(executor.notes["not_replayed"].values()) == [1]
    assert "may change from round to round" in next(iter(executor.notes["not_replayed"]))


def test_functions_are_told_apart_by_all_but_the_values_of_their_tensors():
    def make(factor, shift):
        return lambda x: factor * x + shift

    def key(function):
        return walk(function, lambda x: x)[0]

    ones, twos = torch.ones(2), 2 * torch.ones(2)
    assert key(make(3, ones)) == key(make(3, twos))
    assert key(make(3, ones)) != key(make(4, ones))  # another number
    assert key(make(3, ones)) != key(make(3, torch.ones(1, 2)))  # another shape
    assert key(make(3, ones)) != key(lambda x: 3 * x - ones)  # other code
    _, copy = walk(make(3, ones), lambda x: x + 10)
    assert copy(torch.zeros(2)).tolist() == [11, 11]
    assert make(3, ones)(torch.zeros(2)).tolist() == [1, 1]
    with pytest.raises(Opaque, match="a Generator, which may change from round to round"):
        walk(make(3, np.random.default_rng(0)), lambda x: x)


# -- precision ----------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [Loop, Traced, Batched, lambda: Graphs(2)])
def test_bfloat16_trains_with_parameters_in_float32(executor):
    federation = toy_federation((8, 16, 8), unseen=0)
    losses, parameters = {}, {}
    for precision in ("float32", "bfloat16"):
        task = replace(tiny_task(dtype=torch.float32, norm=True), precision=precision)
        run = trained(executor(), task=task, federation=federation, count=8)
        cohort = cohort_of(task, federation)
        models = map(cohort.broadcast, (task.init(0), run[0]))
        scores = [cohort.score(task.losses, x).mean() for x in models]
        assert all(x.dtype == torch.float32 for x in run[0].values())
        assert scores[0].dtype == torch.float32
        losses[precision], parameters[precision] = scores, run[0]["head.1.weight"]
    for before, after in losses.values():
        assert after < 0.7 * before  # it learns
    # 8 bits of mantissa are visible after some tens of steps, and yet it is the same training.
    difference = (parameters["bfloat16"] - parameters["float32"]).abs().max()
    assert 1e-4 < difference < 0.3 * parameters["float32"].abs().max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "float16"}, "precision must be one of .*, got 'float16'"),
        ({"precision": "tf32"}, "precision tf32 needs a GPU, the device is cpu"),
        (
            {"precision": "bfloat16", "dtype": torch.float64},
            "precision bfloat16 is of float32 models, got torch.float64",
        ),
    ],
)
def test_a_precision_that_cannot_be_had_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Task(tiny_task().build, **settings)


@pytest.mark.parametrize(("precision", "tf32"), [("float32", False), ("tf32", True)])
def test_a_gpu_rounds_to_tf32_only_where_that_was_asked_for(precision, tf32):
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = not tf32
        set_precision(SimpleNamespace(device=torch.device("cuda"), precision=precision))
        assert [switch.allow_tf32 for switch in switches] == [tf32, tf32]
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value
