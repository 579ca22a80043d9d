"""The engine: padding is invisible, order is reproducible, and both executors agree."""

import itertools
import zlib
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from reference import batches, cross_entropy_of, descend, descent, module_of, owned, values_of
from support import (
    assert_close,
    clients_with,
    cohort_of,
    executors,
    sgd,
    tiny_task,
    toy_federation,
    with_validation,
)

import fedlib.engine.cohort
import fedlib.engine.waves
from fedlib import streams, tree
from fedlib.engine.batches import draw_batches, draw_cohort
from fedlib.engine.choice import choose, rule
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.experts import pad_scores
from fedlib.engine.graphs import Graphs
from fedlib.engine.participation import SELECTIONS, cohort_size, sample
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced
from fedlib.errors import DataError
from fedlib.models import emnist_cnn
from fedlib.tree import Rows

# Batches of 4 leave 3, none, 2, 2 and 3 examples over; the last client has less than a batch.
UNEVEN = (7, 12, 6, 10, 3)
PLANS = {
    "one epoch": {},
    "several epochs": {"epochs": 3},
    "steps within an epoch": {"steps": 2},
    "steps over several epochs": {"steps": 7},
    "last batches dropped": {"drop_last": True, "epochs": 2},
    "clients smaller than a batch": {"batch_size": 16, "epochs": 2},
}


def fit(task, federation, ids=None, *, executor, local, loss=None, per_client=(), **where):
    """(trained, memory) of one call of `fit` that everybody starts from the same model."""
    cohort = cohort_of(task, federation, ids, executor=executor, **where)
    params = task.init(0)
    memory = local.memory(task.trainable(params), federation.num_clients)
    start = cohort.broadcast(params)
    return cohort.fit(loss or task.loss, start, *per_client, local=local, memory=memory)


def test_parameters_that_are_no_dict_are_refused_by_name():
    task, federation = tiny_task(), toy_federation(UNEVEN, unseen=0)
    cohort = cohort_of(task, federation)
    start = cohort.broadcast(task.init(0))
    with pytest.raises(TypeError, match="params must be a dict or Rows, got a tuple"):
        cohort.fit(task.loss, (start, start), local=sgd())


@pytest.mark.parametrize("kind", [dict, lambda start: Rows(tree.unstack(start))])
def test_factors_of_rates_that_belong_to_no_parameters_are_refused(kind):
    task = tiny_task()
    cohort = cohort_of(task, toy_federation(UNEVEN, unseen=0))
    start = kind(cohort.broadcast(task.init(0)))
    with pytest.raises(ValueError, match=r"lr_scale has \['head'\], which are none of \['body"):
        cohort.fit(task.loss, start, local=sgd(), lr_scale={"head": 0.0})


# -- padding ------------------------------------------------------------------------------


@executors
@pytest.mark.parametrize("plan", PLANS)
def test_a_client_trains_as_a_module_with_an_optimiser_does(executor, plan):
    # Statistics included; the batches are those of the plan, cut from the shard here.
    task, federation = tiny_task(norm=True), toy_federation(UNEVEN, unseen=0)
    local = sgd(**PLANS[plan])
    trained, _ = fit(task, federation, executor=executor, local=local, round=3)
    for client in range(len(UNEVEN)):
        module = module_of(task, task.init(0))
        steps = batches(*owned(federation, client), local, 3, "fit", client)
        descend([descent(module.parameters(), local)], steps, cross_entropy_of(module))
        assert_close(tree.take(trained, client), {n: values_of(module)[n] for n in trained})


# -- the order of examples ----------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 2**32, 2**40 + 1])
def test_the_streams_of_many_clients_are_those_of_each_alone(seed):
    clients = [0, 7, 2**33]
    draws = streams.generators(seed, 3, "fit", each=clients)
    expected = [np.random.default_rng([seed, 3, zlib.crc32(b"fit"), c]) for c in clients]
    assert [d.bit_generator.state for d in draws] == [e.bit_generator.state for e in expected]


def test_a_client_draws_its_orders_and_then_a_key_for_each_step():
    [batches] = draw_cohort([7], sgd(batch_size=3, epochs=2), 5, "fit", clients=[8])
    draw = streams.generator(5, "fit", 8)
    assert batches.order.tolist() == [*draw.permutation(7), *draw.permutation(7)]
    assert batches.keys.tolist() == draw.integers(0, 2**62, 6).tolist()


@pytest.mark.parametrize(
    ("local", "sizes"),
    [
        (sgd(), [4, 4, 2]),
        (sgd(epochs=2), [4, 4, 2, 4, 4, 2]),
        (sgd(steps=2), [4, 4]),
        (sgd(steps=4), [4, 4, 2, 4]),
        (sgd(drop_last=True, epochs=2), [4, 4, 4, 4]),
        (sgd(drop_last=True, steps=3), [4, 4, 4]),
        (sgd(drop_last=True, batch_size=16), [10]),
        (sgd(batch_size=5), [5, 5]),
    ],
)
def test_a_shard_of_ten_is_cut_into_these_batches(local, sizes):
    batches = draw_batches(10, local, 0)
    assert [step.size for step in batches.steps] == sizes
    for epoch in range(batches.steps[-1].epoch + 1):
        own = [batches.order[start:stop] for start, stop, e in batches.steps if e == epoch]
        assert len(np.unique(np.concatenate(own))) == sum(map(len, own))
    assert sorted(batches.order[:10]) == list(range(10))


# -- gradients and losses -----------------------------------------------------------------


@executors
def test_the_journal_holds_the_mean_loss_over_each_clients_examples(executor):
    # A rate of zero keeps the model, so the mean over an epoch is the mean over the shard,
    # however it is cut into batches.
    task, federation = tiny_task(), toy_federation(UNEVEN, unseen=0)
    cohort = cohort_of(task, federation, executor=executor)
    params = task.init(0)
    cohort.fit(task.loss, cohort.broadcast(params), local=sgd(lr=0.0, epochs=2))
    every = cohort.score(lambda batch: task.losses(params, batch))
    assert_close(cohort.journal.losses, [cohort.example_mean(every)])


@executors
@pytest.mark.parametrize(("sizes", "batch_size", "left"), [((8, 9), 4, 9), ((8, 1), 4, 1)])
def test_batch_normalisation_refuses_a_batch_of_one(executor, sizes, batch_size, left):
    federation, local = toy_federation(sizes, unseen=0), sgd(batch_size=batch_size)
    message = f"client 1 has {left} training .* of 4 leave one alone, .* leave out a client of one"
    with pytest.raises(DataError, match=message):
        fit(tiny_task(norm=True), federation, executor=executor, local=local)
    fit(tiny_task(), federation, executor=executor, local=local)  # without it, one is enough


# -- scores -------------------------------------------------------------------------------


@executors
@pytest.mark.parametrize("piece", [2, 512])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sizes", [(0, 3, 1, 4), (3, 0, 0), (2, 2), (0, 0)])
def test_scores_come_in_shard_order_with_zeros_beyond(executor, piece, shared, sizes, monkeypatch):
    monkeypatch.setattr(fedlib.engine.cohort, "EVALUATION_BATCH", {"cpu": piece})
    federation = with_validation(toy_federation([6] * len(sizes), unseen=0), sizes)
    cohort = cohort_of(tiny_task(), federation, executor=executor)
    w = torch.arange(4 * cohort.size).double().reshape(cohort.size, 4) - 5  # unlike models
    w = tree.broadcast(w[0], cohort.size) if shared else w
    scores = cohort.score(
        lambda w, batch: torch.stack([batch.x @ w, batch.index.double()], -1), w, split="val"
    )
    expected = np.zeros((len(sizes), max(sizes), 2))
    for client, size in enumerate(sizes):
        expected[client, :size, 0] = federation.x[federation.val.of(client)] @ w[client].numpy()
        expected[client, :size, 1] = np.arange(size)
    assert_close(scores, torch.from_numpy(expected))
    mean = expected.sum(1) / np.maximum(sizes, 1)[:, None]
    with nullcontext() if any(sizes) else pytest.raises(DataError, match="no client has val exa"):
        assert_close(cohort.example_mean(scores, split="val"), torch.from_numpy(mean))


def test_a_model_that_mixes_examples_scores_none_alone():
    task = Task(torch.nn.Identity, mixes_examples=True)
    cohort = cohort_of(task, toy_federation((513,), unseen=0))
    assert {*cohort.score(lambda batch: 0 * batch.index + len(batch.y))[0].tolist()} == {511, 2}


@executors
def test_scores_of_another_split_or_of_whole_batches_have_no_mean(executor):
    task, federation = tiny_task(), toy_federation((7, 12), test=4, unseen=0)
    cohort = cohort_of(task, federation, executor=executor)
    models = tree.stack([task.init(seed) for seed in (0, 1)])
    scores = cohort.score(task.losses, models, split="test")
    with pytest.raises(ValueError, match="4 scores are not of train examples; say of which"):
        cohort.example_mean(scores)
    for score, shape in ((task.loss, r"\[\]"), (lambda *x: task.loss(*x)[None], r"\[1\]")):
        with pytest.raises(ValueError, match=rf"each example must be \[B, ...\], got {shape}"):
            cohort.score(score, models)


@executors
def test_padded_scores_have_one_shape_whoever_is_in_the_cohort(executor):
    # So that steps which read them are recorded or captured once, and not for each cohort.
    task, federation = tiny_task(), toy_federation(UNEVEN)
    params = task.init(0)
    for ids in ([0], [2, 4], [1, 3]):
        cohort = cohort_of(task, federation, ids, executor=executor)
        assert cohort.some(torch.zeros(1).long()).host_ids.tolist() == ids[:1]
        scores = cohort.score(task.log_probs, cohort.broadcast(params))
        found = pad_scores(scores, federation.train.sizes)
        assert found.shape == (len(ids), max(UNEVEN), *scores.shape[2:])
        assert torch.equal(found[:, : scores.shape[1]], scores)
        assert (found[:, scores.shape[1] :] == 0).all()


# -- the server ---------------------------------------------------------------------------


@pytest.mark.parametrize(("aggregation", "expected"), [("damped", 1.1), ("renormalised", 11 / 7)])
def test_absent_clients_count_with_the_old_model_or_not_at_all(aggregation, expected):
    # Golden value of the specification, 8.2: w = (.5, .3, .2), clients 0 and 2 return 1 and 3, the
    # old model is 0: .5 * 1 + .2 * 3 = 1.1, and divided by .5 + .2 it is 11/7.
    federation = toy_federation((5, 3, 2), unseen=0)
    cohort = cohort_of(tiny_task(), federation, [0, 2], aggregation=aggregation)
    new = cohort.average({"w": torch.tensor([1.0, 3.0]).double()}, {"w": torch.zeros(()).double()})
    assert new["w"].item() == pytest.approx(expected, rel=1e-15)


# -- who takes part -----------------------------------------------------------------------

POPULATION = np.array([3, 4, 5, 8, 9, 11, 12])


@pytest.mark.parametrize(
    ("rate", "population", "size"),
    [(0.29, 100, 29), (0.58, 50, 29), (0.299, 100, 29), (0.1, 5, 1), (0.5, 5, 2), (1, 7, 7)],
)
def test_a_round_has_its_share_of_the_clients_rounded_down(rate, population, size):
    clients = np.arange(100, 100 + population)
    for selection, number in itertools.product(SELECTIONS, range(10)):
        ids = sample(clients, rate, 0, number, selection)
        assert len(ids) == size and {*ids} <= {*clients}
        assert (np.diff(ids) > 0).all()  # ascending, so nobody twice
    assert cohort_size(rate, population) == size


def test_by_residue_one_of_each_class_takes_part():
    drawn = [sample(POPULATION, 3 / 7, 0, number, "residue").tolist() for number in range(200)]
    for positions in ([0, 3, 6], [1, 4], [2, 5]):
        own = {*POPULATION[positions].tolist()}
        assert {client for ids in drawn for client in own & {*ids}} == own
        assert all(len(own & {*ids}) == 1 for ids in drawn)


def test_anchored_cohorts_have_the_first_clients_always_and_any_of_the_others():
    drawn = [sample(POPULATION, 5 / 7, 0, number, "anchored").tolist() for number in range(100)]
    assert all(ids[:2] == [3, 4] for ids in drawn)
    assert {client for ids in drawn for client in ids[2:]} == {5, 8, 9, 11, 12}


# -- data and executors -------------------------------------------------------------------


def test_images_are_scaled_to_zero_mean_and_unit_deviation_per_channel():
    pixels = np.random.default_rng(0).integers(0, 256, size=(6, 2, 3, 3), dtype=np.uint8)
    scale = {"mean": (0.1, 0.4), "std": (0.5, 0.2)}
    federation = clients_with(pixels, np.zeros(6, np.int64), [(range(6), [])], 1, **scale)
    data = DeviceData(federation, torch.float64, torch.device("cpu"))
    rows = torch.tensor([[4, 0], [1, 1]])
    mean, std = np.array([0.1, 0.4]).reshape(2, 1, 1), np.array([0.5, 0.2]).reshape(2, 1, 1)
    expected = torch.from_numpy((pixels[rows.numpy()] / 255 - mean) / std)
    assert_close(data.inputs(rows), expected, 1e-14)  # a few roundings of values up to 5


@pytest.mark.parametrize("executor", [Loop(), Traced(), Batched(), Graphs()])
def test_a_forward_pass_leaves_fixed_running_statistics_alone(executor):
    task, federation = tiny_task(norm=True), toy_federation((8, 12), unseen=0)
    cohort = cohort_of(task, federation, executor=executor)
    body, head = task.split(task.init(0))
    before, heads = tree.clone(body), cohort.broadcast(head)

    def loss(head, body, batch):
        return task.loss(body | head, batch)

    for bodies in (cohort.broadcast(body), tree.repeat(body, cohort.size)):
        cohort.fit(loss, heads, bodies, local=sgd(epochs=2))
        assert_close(bodies, cohort.broadcast(before), 0)


def test_the_executor_is_chosen_for_model_and_device():
    light, convolving = tiny_task(), Task(lambda: emnist_cnn.build(10))
    wide = tiny_task(hidden=20_000)
    of_gpu = {"device": torch.device("cuda"), "is_light": False, "recurs": False}
    gpu, heavy_on_gpu = (SimpleNamespace(**of_gpu, is_heavy=heavy) for heavy in (False, True))
    names = [choose("auto", [task]).name for task in (light, convolving, wide, gpu, heavy_on_gpu)]
    assert names == ["batched", "traced", "traced", "graphs", "loop"]
    heavy = tiny_task(features=6_000, hidden=8_400, dtype=torch.float32)
    assert (wide.is_heavy, heavy.is_heavy, choose("auto", [heavy]).name) == (False, True, "loop")
    several = [rule([light, other]) for other in (light, convolving, heavy)]
    assert several == ["batched", "traced", "loop"]
    assert rule([gpu, heavy_on_gpu]) == "loop"
    assert choose("loop", [light]).name == "loop"
    recurrent = Task(lambda: torch.nn.GRU(2, 2))
    assert {choose(x, [light, recurrent]).name for x in ("auto", "batched", "graphs:2")} == {"loop"}


@pytest.mark.usefixtures("threads_of_torch")
def test_an_error_in_a_worker_thread_is_raised():
    cohort = cohort_of(tiny_task(), toy_federation(), executor=Loop(2))

    def loss(params, batch):
        raise ArithmeticError("of this client")

    with pytest.raises(ArithmeticError, match="of this client"):
        cohort.fit(loss, cohort.broadcast(tiny_task().init(0)), local=sgd())
