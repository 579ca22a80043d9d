"""Networks as they were published: torchvision's, plain layers of torch, their weight files."""

import math

import pytest
import torch
from test_models import batch_of, task_of, varied
from torch import nn
from torch.nn import functional as F

from fedlib import models
from fedlib.engine import ambient
from fedlib.engine.task import Task
from fedlib.models import mobilenet_v2
from fedlib.models.layers.gate import Gate
from fedlib.models.vae import Code


def assert_equal_to_rounding(ours, theirs):
    """Within 1e-10 of the largest entry: float64 through 52 batch normalisations."""
    largest = max(value.detach().abs().max() for value in theirs.values())
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=1e-10 * float(largest))


@pytest.mark.parametrize(
    ("name", "params", "shape"),
    [
        ("emnist_cnn", {}, (1, 28, 28)),
        ("fedmoe_cnn", {"hidden": 8}, (1, 28, 28)),
        ("lenet5", {"in_channels": 1, "side": 28}, (1, 28, 28)),
        ("pfedmoe_cnn", {"size": "cnn5"}, (3, 32, 32)),
    ],
)
def test_two_convolutions_whose_relus_are_pooled_are_the_published_network(name, params, shape):
    network = models.load(name).build(10, **params).double()
    x = seen = batch_of(name, shape).x
    kinds = nn.Conv2d, nn.Linear
    convolutions, hidden = ([m for m in network.body.modules() if isinstance(m, k)] for k in kinds)
    for convolution in convolutions:  # ours pool first: the maximum commutes with the ReLU
        seen = F.max_pool2d(convolution(seen).relu(), 2)
        assert convolution.padding == ((2, 2) if name == "fedmoe_cnn" else (0, 0))
    seen = seen.flatten(1)
    for layer in hidden:
        seen = layer(seen).relu()
    torch.testing.assert_close(network(x), network.head(seen))


def test_a_gate_skips_batch_normalisation_only_in_training_and_for_one_example():
    gate = Gate(4, num_experts=2)
    x = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(0))
    plain = nn.Sequential(nn.Flatten(), gate.hidden, nn.Sigmoid(), gate.output)
    assert torch.equal(gate.train()(x[:1]), plain(x[:1]))
    assert torch.equal(gate.hidden_norm.running_mean, torch.zeros(128))
    gate(x)
    assert gate.hidden_norm.running_mean.any()
    # A prediction does not depend on its company.
    torch.testing.assert_close(gate.eval()(x[:1]), gate(x)[:1])
    assert not torch.allclose(gate(x[:1]), plain(x[:1]))


def group_normalised(x, groups, scale, shift):
    parts = x.reshape(len(x), groups, -1)
    mean, variance = parts.mean(-1, keepdim=True), parts.var(-1, correction=0, keepdim=True)
    plain = ((parts - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)
    return plain * scale[:, None, None] + shift[:, None, None]


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("side", [(32, 32), (9, 14)])
def test_resnet20_is_the_published_network(groups, side):
    task = task_of("resnet20", {"num_classes": 10, "norm_groups": groups}, dtype=torch.float64)
    params = varied(task.init(0))
    batch = batch_of("resnet20", (3, *side))
    rest = iter(params.values())  # kernel, scale and shift of each convolution in turn

    def normalised(x, stride=1):
        y = F.conv2d(x, next(rest), stride=stride, padding=1)
        return group_normalised(y, groups, next(rest), next(rest))

    x = normalised(batch.x).clamp(min=0)
    for channels in (16, 32, 64):
        for number in range(3):
            narrower = x.shape[1] < channels
            assert narrower == (number == 0 and channels > 16)
            y = normalised(normalised(x, 2 if narrower else 1).clamp(min=0))
            shortcut = torch.zeros_like(y)
            shortcut[:, : x.shape[1]] = x[:, :, ::2, ::2] if narrower else x
            x = (y + shortcut).clamp(min=0)
    logits = x.mean((2, 3)) @ next(rest).T + next(rest)
    assert next(rest, None) is None
    assert_equal_to_rounding({"logits": task.logits(params, batch)}, {"logits": logits})


def test_resnet20_draws_convolutions_of_variance_two_over_fan_in():
    drawn = task_of("resnet20", {"num_classes": 100}).init(0)
    for value in drawn.values():
        if value.dim() == 4:
            # The mean square of n normal numbers has relative deviation sqrt(2 / n).
            ratio = value.square().mean() * value[0].numel() / 2
            assert abs(ratio - 1) < 5 * (2 / value.numel()) ** 0.5


def test_the_autoencoder_decodes_a_draw_in_training_and_the_mean_otherwise():
    task = task_of("vae", {"in_features": 4, "hidden": [6, 5], "latent": 2}, dtype=torch.float64)
    encoder, decoder = task.split(task.init(0))
    batch = batch_of("vae", (1, 2, 2), train=True)
    many = torch.tensor([[1.0, -2.0, 0.0, 2 * math.log(3.0)]], dtype=torch.float64)
    code = many.expand(20_000, -1)  # of means 1 and -2, and deviations 1 and 3
    with ambient.dropout_key(batch.key):
        drawn = Code(2)(code)
        assert torch.equal(Code(2)(code), drawn)
        with ambient.expert(1):
            assert not torch.equal(Code(2)(code), drawn)
    scaled = (drawn - torch.tensor([1.0, -2.0])) / torch.tensor([1.0, 3.0])
    # Deviations of the mean, and of the mean square, of n standard normal numbers.
    assert scaled.mean(0).abs().max() < 5 / len(code) ** 0.5
    assert (scaled.square().mean(0) - 1).abs().max() < 5 * (2 / len(code)) ** 0.5

    found = task.head_logits(decoder, code, batch)
    assert torch.equal(found, task.head_logits(decoder, drawn, batch))
    evaluated = task.head_logits(decoder, code, batch._replace(train=False, key=None))
    assert torch.equal(evaluated, task.head_logits(decoder, code[:, :2], batch))
    assert task.features(encoder, batch).shape == (4, 2 * 2)


def published_mobilenet_v2(params):
    """torchvision's body and our head, float64, with `params` where a gradient is wanted."""
    from torchvision.models import mobilenet_v2 as published

    body = nn.Sequential(published(weights=None).features, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Sequential(nn.Identity(), nn.Linear(1280, 10))
    module = nn.Module()
    module.body, module.head = body, head
    module.double().load_state_dict(params, strict=False)  # all but the counts of batches
    return module


# Maps shrink to 1 pixel from 32, to 2 from 40, and are never square in the last.
@pytest.mark.parametrize(
    ("side", "train", "layout"),
    [
        ((32, 32), True, torch.contiguous_format),
        ((40, 40), False, torch.channels_last),
        ((70, 33), True, torch.channels_last),
    ],
)
def test_mobilenet_v2_is_torchvisions_with_its_gradients_and_statistics(side, train, layout):
    task = task_of("mobilenet_v2", {"num_classes": 10, "dropout": 0.0}, dtype=torch.float64)
    params = varied(task.init(0))
    batch = batch_of("mobilenet_v2", (3, *side), train)
    batch = batch._replace(x=batch.x.contiguous(memory_format=layout))
    own = {name: value.clone() for name, value in params.items()}
    weights = {n: own[n].requires_grad_() for n in own if not task.is_statistic(n)}
    logits = task.logits(own, batch)
    grads = torch.autograd.grad(logits.square().sum(), list(weights.values()))

    theirs = published_mobilenet_v2(params).train(train)
    expected = theirs.head(theirs.body(batch.x))
    named = dict(theirs.named_parameters())
    expected_grads = torch.autograd.grad(expected.square().sum(), list(named.values()))
    assert_equal_to_rounding({"logits": logits}, {"logits": expected})
    assert_equal_to_rounding(
        dict(zip(weights, grads, strict=True)), dict(zip(named, expected_grads, strict=True))
    )
    statistics = {n: v for n, v in theirs.named_buffers() if v.is_floating_point()}
    assert statistics.keys() == task.statistics
    assert_equal_to_rounding(own, statistics)


# -- pretrained weights -------------------------------------------------------------------


@pytest.fixture(scope="module")
def torchvision_model():
    """A model as torchvision publishes it, with random weights and statistics."""
    from torchvision.models import mobilenet_v2 as published

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = published(weights=None)
        for entry, value in model.state_dict().items():
            if entry.endswith(("running_mean", "running_var")):
                value.uniform_(0.5, 1.5)
    return model.double().eval()


@pytest.fixture
def weight_file(torchvision_model, tmp_path):
    """Its weight file."""
    torch.save(torchvision_model.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_a_pretrained_body_computes_torchvisions_features(torchvision_model, weight_file):
    params, options = {"num_classes": 10}, {"dtype": torch.float64}
    weights = mobilenet_v2.pretrained(weight_file)
    task = task_of("mobilenet_v2", params, pretrained=weights, **options)
    batch = batch_of("mobilenet_v2", (3, 32, 32))
    body, head = task.split(task.init(3))
    expected = torchvision_model.features(batch.x).mean((2, 3))
    torch.testing.assert_close(task.features(body, batch), expected)
    # The last layer is drawn as without them.
    drawn = task.split(task_of("mobilenet_v2", params, **options).init(3))[1]
    assert all(torch.equal(head[entry], drawn[entry]) for entry in drawn)


def test_pretrained_weights_of_another_model_are_refused(weight_file):
    weights = mobilenet_v2.pretrained(weight_file)
    with pytest.raises(ValueError, match="pretrained parameters .*body.0.0.0.weight.* not in the"):
        task_of("emnist_cnn", {"num_classes": 62}, pretrained=weights)


# -- what a task keeps of its modules -----------------------------------------------------------


class Tied(nn.Module):
    """Two layers with one weight, and batch statistics."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.body[0].weight

    def forward(self, x):
        return self.head(self.body(x))


def test_a_task_keeps_no_values_of_its_modules_and_ties_what_was_tied():
    task = Task(Tied, dtype=torch.float64)
    for module in (task._training, task._evaluating):
        assert all(x.is_meta for x in [*module.parameters(), *module.buffers()])
        assert module.head.weight is module.body[0].weight
    params, batch = task.init(0), batch_of("linear", (4,))
    w = params["body.0.weight"]
    assert "head.weight" not in params
    expected = batch.x @ w.T / math.sqrt(1 + 1e-5) @ w.T  # statistics of mean 0 and variance 1
    torch.testing.assert_close(task.logits(params, batch), expected)


# -- the networks of Fed-MoE ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_the_residual_network_is_torchvisions_with_a_stem_for_small_images(train):
    from torchvision.models import resnet18

    published = resnet18(num_classes=10, norm_layer=nn.BatchNorm2d)
    published.conv1, published.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    network = models.load("cifar_resnet18").build(10)
    # Both name their layers in the order in which they compute.
    own = network.state_dict()
    published.load_state_dict(dict(zip(published.state_dict(), own.values(), strict=True)))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    found, expected = (module.double().train(train)(x) for module in (network, published))
    # Float64, through 20 batch normalisations.
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    pairs = zip(network.state_dict().values(), published.state_dict().values(), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
