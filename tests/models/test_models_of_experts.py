"""The networks of Adaptive Expert Models and pFedMoE, by their specifications."""

from functools import partial
from itertools import product

import pytest
import torch
from support import batch_of, tiny_task
from torch import nn

from fedlib import models, streams
from fedlib.engine import ambient
from fedlib.engine.task import JointTask, Task
from fedlib.methods.fedmix_clients import SortingTask
from fedlib.methods.gated_mixture import MixtureTask
from fedlib.models import gate_cnn, ifca_cnn, leaf_cnn
from fedlib.models.layers.conv import Dropout2d, LocalResponse
from fedlib.models.layers.switch_norm import EPSILON, SwitchNorm1d, SwitchNorm2d
from fedlib.models.pfedmoe_gate import HIDDEN_NORMS, INPUT_NORMS

CIFAR, FEMNIST = {"in_channels": 3, "side": 32}, {"in_channels": 1, "side": 28}
SMALL = {"conv1": 4, "conv2": 3, "hidden": 6, "dropout": 0.5}
KEYS = torch.from_numpy(streams.keys(4, 0, "test") >> 1)

# One of each kind that is small enough to be evaluated often.
EVERY = {
    "leaf": partial(leaf_cnn.build, 10, **SMALL, **CIFAR),
    "leaf-femnist": partial(leaf_cnn.build, 62, **SMALL, **FEMNIST),
    "ifca": partial(ifca_cnn.build, 10, 0.5, conv1=6, conv2=5, hidden1=7, hidden2=8),
    "gate": partial(gate_cnn.build, 4, **SMALL, **CIFAR),
    "gate-of-two": partial(gate_cnn.build, 2, **SMALL, **FEMNIST),
}
every = pytest.mark.parametrize("name", EVERY)


def inputs(name, count=5):
    shape = (1, 28, 28) if EVERY[name].keywords.get("side") == 28 else (3, 32, 32)
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(3))


# Sections 5.1 to 5.3: the same functions as torch's own layers in the published order


def published(name):
    """(layers of the convolutions, layers after flattening) in the order of the specification."""
    relu, pool, drop = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Dropout(0.5)
    if name.startswith("leaf"):
        first, classes, side = (1, 62, 4) if "femnist" in name else (3, 10, 5)
        return [
            *(nn.Conv2d(first, 4, 5), relu, pool, nn.Conv2d(4, 3, 5), relu, pool),
            *(nn.Flatten(), nn.Linear(3 * side**2, 6), relu, drop, nn.Linear(6, classes)),
        ]
    if name == "ifca":
        norm = nn.LocalResponseNorm(4, alpha=0.001 / 9, beta=0.75, k=1)
        return [
            *(nn.Conv2d(3, 6, 5), relu, pool, norm, nn.Conv2d(6, 5, 5), relu, norm, pool),
            *(nn.Flatten(), nn.Linear(25 * 5, 7), relu, drop, nn.Linear(7, 8), relu),
            nn.Linear(8, 10),
        ]
    first, flat, outputs = (3, 75, 4) if name == "gate" else (1, 48, 1)
    dropped = nn.Conv2d(4, 3, 5), nn.Dropout2d(0.5)
    convolutions = [nn.Conv2d(first, 4, 5), relu, pool, *dropped, relu, pool]
    return [*convolutions, nn.Flatten(), nn.Linear(flat, 6), relu, drop, nn.Linear(6, outputs)]


@every
def test_a_network_computes_what_torchs_layers_do_in_the_published_order(name):
    params, x = Task(EVERY[name]).init(0), inputs(name)
    last = list(params)[-1]
    means = Task(EVERY[name]).logits(params, batch_of(x)).mean(0)
    params[last] = params[last] - means  # logits of either sign
    plain = nn.Sequential(*published(name)).eval()
    for theirs, value in zip(plain.parameters(), params.values(), strict=True):
        theirs.data.copy_(value)
    expected = plain(x)
    assert (expected < 0).any() and (expected > 0).any()
    # Sums over a few thousand terms in another order, in float32.
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(Task(EVERY[name]).logits(params, batch_of(x)), expected, **close)
    cut_off = Task(partial(EVERY[name], logit_relu=True)).logits(params, batch_of(x))
    torch.testing.assert_close(cut_off, expected.relu(), **close)


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_local_responses_are_those_of_torch(size):
    x = torch.randn(2, 7, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = nn.LocalResponseNorm(size, alpha=0.3, beta=0.75, k=1)(x)
    torch.testing.assert_close(LocalResponse(size, 0.3, 0.75)(x), expected)


# Dropout


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_channels_are_dropped_whole_and_the_rest_is_scaled(p):
    x = torch.rand(100, 40, 3, 2, generator=torch.Generator().manual_seed(0)) + 1
    with ambient.dropout_key(KEYS[0]):
        dropped = Dropout2d(p)(x)
        other = Dropout2d(p, salt=1)(x)
    kept = dropped != 0
    assert torch.equal(kept, kept[:, :, :1, :1].expand_as(kept))
    torch.testing.assert_close(dropped[kept], x[kept] / (1 - p))
    # Binomial of 4,000 channels; five deviations.
    assert abs(kept[:, :, 0, 0].double().mean() - (1 - p)) < 5 * (p * (1 - p) / 4000) ** 0.5
    assert not torch.equal(other != 0, kept)
    assert len(torch.unique(kept[:, :, 0, 0], dim=0)) > 1  # examples differ


# Section 5.4


def test_official_initial_values_are_glorot_weights_and_biases_of_one_hundredth():
    for build in EVERY.values():
        drawn = Task(build).init(1)
        for entry, value in drawn.items():
            if value.dim() == 4:  # conv: uniform on +-sqrt(6 / (fan in + fan out))
                bound = (6 / (25 * (value.shape[0] + value.shape[1]))) ** 0.5
                assert value.abs().max() <= bound
                # Uniform on +-b has a deviation of b / sqrt(3); hundreds of values or more.
                assert value.std() == pytest.approx(bound / 3**0.5, rel=0.25)
                bias = entry.replace("weight", "bias")
                fan_in = value[0].numel()
                assert 0 < drawn[bias].abs().max() <= fan_in**-0.5  # torch's own bound
            elif value.dim() == 2:
                bias = entry.replace("weight", "bias")
                assert torch.equal(drawn[bias], torch.full_like(drawn[bias], 0.01))
                assert value.abs().max() <= value.shape[1] ** -0.5  # torch's own bound


GOLDEN = 1e-6  # the specification prints six decimals


def gate(**params):
    torch.manual_seed(0)
    return models.load("pfedmoe_gate").build(**params)


def test_a_gate_without_norms_is_the_golden_one():
    network = gate(hidden=2, input_norm="none", in_channels=2, side=1).double()
    names = ("body.1.weight", "body.1.bias", "head.0.weight", "head.0.bias")
    values = ([[1, -1], [0.5, 2]], [0, 0.1], [[1, 0], [-1, 2]], [0, -0.5])
    tensors = [torch.tensor(value, dtype=torch.float64) for value in values]
    network.load_state_dict(dict(zip(names, tensors, strict=True)))
    x = torch.tensor([0.2, 0.4], dtype=torch.float64).reshape(1, 2, 1, 1)
    hidden = torch.tensor([[0.450166, 0.731059]], dtype=torch.float64)
    torch.testing.assert_close(network.body(x), hidden, rtol=0, atol=GOLDEN)
    weights = torch.tensor([[0.484559, 0.515441]], dtype=torch.float64)
    torch.testing.assert_close(network(x).softmax(-1), weights, rtol=0, atol=GOLDEN)


def test_switchable_normalisation_is_the_golden_one():
    x = torch.tensor([[1.0, 2, 3], [3, 6, 0]], dtype=torch.float64)
    expected = [[-1.095438, -0.654652, 1.035095], [0.267261, 1.118033, -1.107822]]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(SwitchNorm1d(3).double()(x), expected, rtol=0, atol=GOLDEN)


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


@pytest.mark.parametrize("input_norm", INPUT_NORMS)
@pytest.mark.parametrize("hidden_norm", HIDDEN_NORMS)
def test_a_gate_takes_single_examples_and_judges_each_alone(input_norm, hidden_norm):
    network = gate(input_norm=input_norm, hidden_norm=hidden_norm, side=4)
    x = torch.randn(3, 3, 4, 4)
    assert network.train()(x[:1]).isfinite().all()
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
    assert normed.needs_pairs and normed.extend(JointTask, others=(task,)).needs_pairs
    assert not tiny_task().extend(JointTask, others=(task,)).needs_pairs
    for kind in (MixtureTask, SortingTask):
        assert normed.extend(kind).needs_pairs and not task.extend(kind).needs_pairs
