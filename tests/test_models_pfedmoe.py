"""The networks of pFedMoE: sizes as the specification has them, and its gate by its formulas."""

from itertools import product

import pytest
import torch
from support import tiny_task
from torch.nn import functional as F

from fedlib import models
from fedlib.engine import functional
from fedlib.engine.task import JointTask, Task
from fedlib.models.layers.switch_norm import EPSILON, SwitchNorm1d, SwitchNorm2d
from fedlib.models.pfedmoe_gate import HIDDEN_NORMS, INPUT_NORMS

GOLDEN = 1e-6  # the specification prints six decimals


def cnn(size, num_classes=10, **params):
    return models.load("pfedmoe_cnn").build(num_classes, size, **params)


def gate(**params):
    torch.manual_seed(0)
    return models.load("pfedmoe_gate").build(**params)


def test_a_gate_without_norms_is_the_golden_one():
    network = gate(hidden=2, input_norm="none", in_channels=2, side=1).double()
    names = ("body.1.weight", "body.1.bias", "head.0.weight", "head.0.bias")
    values = ([[1, -1], [0.5, 2]], [0, 0.1], [[1, 0], [-1, 2]], [0, -0.5])
    network.load_state_dict(
        {n: torch.tensor(v, dtype=torch.float64) for n, v in zip(names, values, strict=True)}
    )
    x = torch.tensor([0.2, 0.4], dtype=torch.float64).reshape(1, 2, 1, 1)
    hidden = torch.tensor([[0.450166, 0.731059]], dtype=torch.float64)
    torch.testing.assert_close(network.body(x), hidden, rtol=0, atol=GOLDEN)
    weights = torch.tensor([[0.484559, 0.515441]], dtype=torch.float64)
    torch.testing.assert_close(network(x).softmax(-1), weights, rtol=0, atol=GOLDEN)


def test_switchable_normalisation_is_the_golden_one():
    x = torch.tensor([[1.0, 2, 3], [3, 6, 0]], dtype=torch.float64)
    expected = torch.tensor(
        [[-1.095438, -0.654652, 1.035095], [0.267261, 1.118033, -1.107822]], dtype=torch.float64
    )
    found = SwitchNorm1d(3).double()(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=GOLDEN)


@pytest.mark.parametrize("share", range(3))
def test_each_statistic_alone_is_the_normalisation_of_that_name(share):
    # Instance, layer and batch normalisation, as torch has them.
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64)
    norm = SwitchNorm2d(3).double()
    for shares in (norm.mean_shares, norm.var_shares):
        shares.data[share] = 1000.0
    expected = [
        F.instance_norm(x, eps=EPSILON),
        F.layer_norm(x, x.shape[1:], eps=EPSILON),
        F.batch_norm(x, None, None, training=True, eps=EPSILON),
    ][share]
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-12)


def test_two_dimensional_switchable_normalisation_mixes_the_statistics_by_their_shares():
    x = torch.tensor([[[1.0, 3], [5, 7]], [[0, 2], [4, 10]]], dtype=torch.float64).unsqueeze(2)
    # By map, example and channel of the batch, worked out by hand; shares differ from each other.
    means = [[[2, 4, 1.5], [6, 4, 6.5]], [[1, 4, 1.5], [7, 4, 6.5]]]
    variances = [[[1, 5, 1.25], [1, 5, 5.25]], [[1, 14, 1.25], [9, 14, 5.25]]]
    of_means, of_variances = [0.5, 0.25, 0.25], [0.125, 0.25, 0.625]
    norm = SwitchNorm2d(2).double()
    norm.mean_shares.data = torch.tensor(of_means, dtype=torch.float64).log()
    norm.var_shares.data = torch.tensor(of_variances, dtype=torch.float64).log()
    found = norm(x)
    for example, channel in product(range(2), range(2)):
        mean = sum(w * m for w, m in zip(of_means, means[example][channel], strict=True))
        of_map = variances[example][channel]
        variance = sum(w * v for w, v in zip(of_variances, of_map, strict=True))
        expected = (x[example, channel] - mean) / (variance + EPSILON) ** 0.5
        torch.testing.assert_close(found[example, channel], expected, rtol=0, atol=1e-12)
    # A tenth of the batch's, which begin at 0 and 1.
    assert norm.running_mean.tolist() == pytest.approx([0.15, 0.65])
    assert norm.running_var.tolist() == pytest.approx([0.9 + 0.125, 0.9 + 0.525])


def test_running_statistics_tell_evaluation_what_training_saw():
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(64, 5, dtype=torch.float64)
    norm = SwitchNorm1d(5).double()
    for _ in range(200):  # 0.9^200 is nothing
        norm(x)
    torch.testing.assert_close(norm.running_mean, x.mean(0), rtol=1e-8, atol=0)
    torch.testing.assert_close(norm.running_var, x.var(0, correction=0), rtol=1e-8, atol=0)
    trained = norm(x)
    torch.testing.assert_close(norm.eval()(x), trained, rtol=0, atol=1e-7)


@pytest.mark.parametrize("input_norm", INPUT_NORMS)
@pytest.mark.parametrize("hidden_norm", HIDDEN_NORMS)
def test_a_gate_takes_single_examples_and_judges_each_alone(input_norm, hidden_norm):
    network = gate(input_norm=input_norm, hidden_norm=hidden_norm, side=4)
    x = torch.randn(3, 3, 4, 4)
    alone = network.train()(x[:1])
    assert alone.isfinite().all()
    network(x)  # statistics other than the initial ones
    weights = network.eval()(x).softmax(-1)
    assert ((weights > 0) & (weights < 1)).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3))
    torch.testing.assert_close(network(x[:1]).softmax(-1), weights[:1])


@pytest.mark.parametrize("input_norm", INPUT_NORMS)
@pytest.mark.parametrize("hidden_norm", HIDDEN_NORMS)
def test_a_gate_asks_the_engine_for_no_second_example(input_norm, hidden_norm):
    task = Task(lambda: gate(input_norm=input_norm, hidden_norm=hidden_norm, side=4))
    assert not task.needs_pairs
    normed = tiny_task(norm=True)
    assert normed.needs_pairs and normed.extended(JointTask, others=(task,)).needs_pairs
    assert not tiny_task().extended(JointTask, others=(task,)).needs_pairs


def test_the_engine_renews_the_running_statistics_of_a_gate():
    task = Task(lambda: gate(side=4), dtype=torch.float64)
    params = task.init(0)
    assert task.statistics == {"body.1.running_mean", "body.1.running_var"}
    before = params["body.1.running_mean"].clone()
    functional.call(task._training, params, torch.randn(8, 3, 4, 4, dtype=torch.float64))
    assert not torch.equal(params["body.1.running_mean"], before)
