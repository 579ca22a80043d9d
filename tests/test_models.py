"""Architectures: their sizes, term by term, and what splitting them into body and head keeps."""

import pytest
import torch
from torch import nn

from fedlib import context, models, streams, tree
from fedlib.models import emnist_cnn, mobilenet_v2
from fedlib.models.gate import Gate
from fedlib.task import Batch, Task


def conv(inputs, outputs, kernel, groups=1, bias=False):
    return outputs * inputs // groups * kernel**2 + (outputs if bias else 0)


def dense(inputs, outputs):
    return inputs * outputs + outputs


def lstm(inputs, hidden):
    return 4 * (inputs * hidden + hidden * hidden + 2 * hidden)  # four gates, two biases each


# Inverted residual blocks of MobileNet-v2 (its paper, table 2): expansion, channels, how many.
BLOCKS = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))


def mobilenet_v2_body():
    """(convolutions, channels that are normalised) of the body."""
    weights, normed, channels = conv(3, 32, 3), 32, 32  # the stem
    for expansion, outputs, repeats in BLOCKS:
        for _ in range(repeats):
            hidden = expansion * channels
            if expansion > 1:
                weights, normed = weights + conv(channels, hidden, 1), normed + hidden
            weights += conv(hidden, hidden, 3, groups=hidden) + conv(hidden, outputs, 1)
            normed, channels = normed + hidden + outputs, outputs
    return weights + conv(channels, 1280, 1), normed + 1280


MOBILENET_WEIGHTS, MOBILENET_NORMED = mobilenet_v2_body()
MOBILENET_BODY = MOBILENET_WEIGHTS + 2 * MOBILENET_NORMED  # a scale and a shift each

# Name, build parameters, shape of an input; parameters of body and head; the total in section 7 of
# the specification, None for a model of ours; running statistics (a mean and a variance each).
SIZES = [
    (
        "char_lstm",
        {"num_classes": 100},
        (80,),
        100 * 8 + lstm(8, 256) + lstm(256, 256),  # embedding, two layers
        dense(256, 100),
        825_220,
        0,
    ),
    ("linear", {"in_features": 150, "num_classes": 2}, (150,), 0, dense(150, 1), 151, 0),
    ("linear", {"in_features": 64, "num_classes": 10}, (1, 8, 8), 0, dense(64, 10), None, 0),
    (
        "mlp",
        {"in_features": 64, "hidden": 32, "num_classes": 10},
        (1, 8, 8),
        dense(64, 32),
        dense(32, 10),
        None,
        0,
    ),
    (
        "emnist_cnn",
        {"num_classes": 62},
        (1, 28, 28),
        conv(1, 32, 5, bias=True) + conv(32, 64, 5, bias=True) + dense(4 * 4 * 64, 2048),
        dense(2048, 62),
        2_278_334,
        0,
    ),
    # The sums of these three are explained in test_models_adaptive_experts.py.
    (
        "leaf_cnn",
        {"num_classes": 10, "conv1": 128, "conv2": 32, "hidden": 1024, "dropout": 0.8},
        (3, 32, 32),
        conv(3, 128, 5, bias=True) + conv(128, 32, 5, bias=True) + dense(5 * 5 * 32, 1024),
        dense(1024, 10),
        None,
        0,
    ),
    (
        "ifca_cnn",
        {"num_classes": 10, "dropout": 0.5},
        (3, 32, 32),
        conv(3, 64, 5, bias=True)
        + conv(64, 64, 5, bias=True)
        + dense(5 * 5 * 64, 384)
        + dense(384, 194),
        dense(194, 10),
        None,
        0,
    ),
    (
        "gate_cnn",
        {"num_classes": 7, "conv1": 12, "conv2": 12, "hidden": 8, "dropout": 0.78},
        (3, 32, 32),
        conv(3, 12, 5, bias=True) + conv(12, 12, 5, bias=True) + dense(5 * 5 * 12, 8),
        dense(8, 7),
        None,
        0,
    ),
    (
        "mobilenet_v2",
        {"num_classes": 10},
        (3, 32, 32),
        MOBILENET_BODY,
        dense(1280, 10),
        2_236_682,
        2 * MOBILENET_NORMED,
    ),
    (
        "mobilenet_v2",
        {"num_classes": 100},
        (3, 32, 32),
        MOBILENET_BODY,
        dense(1280, 100),
        2_351_972,
        2 * MOBILENET_NORMED,
    ),
]
every_model = pytest.mark.parametrize(
    ("name", "params", "shape", "body", "head", "total", "statistics"),
    SIZES,
    ids=[f"{case[0]}-{case[1]['num_classes']}" for case in SIZES],
)


def task_of(name, params, **options):
    return Task(lambda: models.load(name).build(**params), **options)


def batch_of(shape, train=False):
    # Not negative, so that they also are numbers of characters.
    x = 10 * torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    key = torch.from_numpy(streams.keys(1, 0) >> 1)[0]
    return Batch(x, torch.tensor([0, 1, 1]), torch.arange(3), key=key, train=train)


def test_every_registered_model_is_in_this_list():
    assert sorted({case[0] for case in SIZES}) == sorted(models.MODELS)


def test_an_unknown_model_names_the_choices():
    with pytest.raises(KeyError, match="no model 'vgg'; there are char_lstm, emnist_cnn, "):
        models.load("vgg")


@every_model
def test_a_model_has_the_number_of_parameters_of_the_specification(
    name, params, shape, body, head, total, statistics
):
    task = task_of(name, params)
    drawn = task.init(0)
    own_body, own_head = task.split(task.trainable(drawn))
    assert (tree.numel(own_body), tree.numel(own_head)) == (body, head)
    assert total in (None, body + head)
    assert tree.numel(drawn) == body + head + statistics


def test_parts_of_the_published_models_have_the_sizes_of_the_specification():
    # Section 7: bodies and heads that pFedMM shares and multiplies; 34,112 statistics as floats.
    sizes = {(case[0], case[1]["num_classes"]): case[3:5] for case in SIZES}
    assert sizes["emnist_cnn", 62] == (2_151_296, 127_038)
    assert sizes["mobilenet_v2", 10] == (2_223_872, 12_810)
    assert sizes["mobilenet_v2", 100] == (2_223_872, 128_100)
    assert 2 * MOBILENET_NORMED == 34_112


@every_model
@pytest.mark.parametrize("train", [False, True])
def test_the_head_on_the_body_is_the_whole_model(
    name, params, shape, body, head, total, statistics, train
):
    # Clones, because a batch in training mode renews the running statistics it is given.
    task, batch = task_of(name, params), batch_of(shape, train)
    drawn = task.init(0)
    whole = task.logits(tree.clone(drawn), batch)
    own_body, own_head = task.split(tree.clone(drawn))
    parts = task.head_logits(own_head, task.features(own_body, batch), batch)
    assert torch.equal(whole, parts)
    classes = params["num_classes"]
    steps = shape if name == "char_lstm" else ()
    assert whole.shape == (3, *steps, 1 if name == "linear" and classes == 2 else classes)
    module = models.load(name).build(**params).eval()
    module.load_state_dict(drawn, strict=False)  # all but the counts of batches
    if not train:
        assert torch.equal(whole, module(batch.x))


@every_model
def test_a_model_is_drawn_from_its_seed_alone(name, params, shape, body, head, total, statistics):
    task = task_of(name, params)
    before = torch.get_rng_state()
    drawn = task.init(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    again, other = task.init(1), task.init(2)
    assert all(torch.equal(drawn[entry], again[entry]) for entry in drawn)
    assert any(not torch.equal(drawn[entry], other[entry]) for entry in drawn)


def test_a_single_logit_is_that_of_class_1():
    task, batch = task_of("linear", {"in_features": 4, "num_classes": 2}), batch_of((4,))
    params = task.init(0)
    logit, log_probs = task.logits(params, batch), task.log_probs(params, batch)
    assert log_probs.shape == (3, 2)
    torch.testing.assert_close(log_probs[:, 1:].exp(), torch.sigmoid(logit))
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3))
    expected = nn.functional.binary_cross_entropy_with_logits(logit[:, 0], batch.y.float())
    torch.testing.assert_close(task.loss(params, batch), expected)


def test_pooling_before_the_relu_is_the_same_function_as_after_it():
    ours = emnist_cnn.build(62).body
    layers = list(ours)
    assert [type(layer) for layer in layers[1:3]] == [nn.MaxPool2d, nn.ReLU]
    published = nn.Sequential(layers[0], layers[2], layers[1], layers[3], layers[5], layers[4])
    x = batch_of((1, 28, 28)).x
    # Exact: the largest of the positive parts is the positive part of the largest.
    assert torch.equal(published(x), ours[:6](x))


@pytest.mark.parametrize(("features", "total"), [(28 * 28, 100_998), (3 * 32 * 32, 393_862)])
def test_a_gate_of_two_experts_has_the_number_of_parameters_of_the_specification(features, total):
    drawn = dict(Gate(features, num_experts=2).named_parameters())
    normalised = 2 * 128 + 2 * 2  # a scale and a shift each
    assert tree.numel(drawn) == dense(features, 128) + dense(128, 2) + normalised == total


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


# -- MobileNet-v2 and torchvision's ----------------------------------------------------------


def published_mobilenet_v2(params):
    """torchvision's body and our head, float64, with `params` where a gradient is wanted."""
    from torchvision.models import mobilenet_v2 as published

    body = nn.Sequential(published(weights=None).features, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Sequential(nn.Identity(), nn.Linear(1280, 10))
    module = nn.Module()
    module.body, module.head = body, head
    module.double().load_state_dict(params, strict=False)  # all but the counts of batches
    return module


def varied(drawn, seed=0):
    """Parameters and statistics that are no longer 0 or 1, as after some training."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value * (1 + 0.1 * torch.rand(value.shape, generator=draw)) + 0.01
        for name, value in drawn.items()
    }


def assert_equal_to_rounding(ours, theirs):
    """Within 1e-10 of the largest entry: float64 through 52 batch normalisations."""
    largest = max(value.detach().abs().max() for value in theirs.values())
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=1e-10 * float(largest))


# Maps shrink to 1 pixel from 32; to 2 from 40 and 64, and are never square in the last.
SIDES = [(32, 32), (40, 40), (64, 64), (32, 64), (70, 33)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_mobilenet_v2_is_torchvisions_with_its_gradients_and_statistics(side, train, layout):
    build = {"num_classes": 10, "dropout": 0.0}
    task = task_of("mobilenet_v2", build, dtype=torch.float64)
    params = varied(task.init(0))
    batch = batch_of((3, *side), train)
    batch = batch._replace(x=batch.x.double().contiguous(memory_format=layout))
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


@pytest.mark.parametrize("train", [True, False])
def test_stacked_clients_train_mobilenet_v2_as_each_alone(train):
    build = {"num_classes": 10, "dropout": 0.2}
    task = task_of("mobilenet_v2", build, dtype=torch.float64)
    clients = [varied(task.init(0), seed) for seed in (1, 2)]
    batch = batch_of((3, 32, 32), train)
    batch = batch._replace(x=batch.x.double())

    def gradients(lift, params):
        params = {name: value.clone() for name, value in params.items()}
        weights = {n: params[n].requires_grad_() for n in params if not task.is_statistic(n)}
        lift(lambda p: task.loss(p, batch))(params).sum().backward()
        return {n: v.grad if n in weights else v for n, v in params.items()}

    stacked = {name: torch.stack([own[name] for own in clients]) for name in clients[0]}
    with context.stacked_experts(True):
        together = gradients(torch.func.vmap, stacked)
    for number, own in enumerate(clients):
        alone = gradients(lambda loss: loss, own)
        assert_equal_to_rounding({name: value[number] for name, value in together.items()}, alone)


def test_mobilenet_v2_is_drawn_as_torchvision_draws():
    from torchvision.models import mobilenet_v2 as published

    drawn = task_of("mobilenet_v2", {"num_classes": 10}).init(4)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        features, head = published(weights=None).features.state_dict(), nn.Linear(1280, 10)
    expected = {f"body.0.{n}": v for n, v in features.items() if v.is_floating_point()}
    expected |= {f"head.1.{n}": v for n, v in head.state_dict().items()}
    assert drawn.keys() == expected.keys()
    assert all(torch.equal(drawn[name], value) for name, value in expected.items())


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
    return model.eval()


@pytest.fixture
def weight_file(torchvision_model, tmp_path):
    """Its weight file."""
    torch.save(torchvision_model.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_pretrained_weights_are_those_of_the_body(weight_file):
    task = task_of("mobilenet_v2", {"num_classes": 10})
    weights = mobilenet_v2.pretrained(weight_file)
    body, _ = task.split(task.init(0))
    shapes = {entry: value.shape for entry, value in body.items()}
    assert {entry: value.shape for entry, value in weights.items()} == shapes


def test_a_pretrained_body_computes_torchvisions_features(torchvision_model, weight_file):
    params = {"num_classes": 10}
    task = task_of("mobilenet_v2", params, pretrained=mobilenet_v2.pretrained(weight_file))
    batch = batch_of((3, 32, 32))
    body, head = task.split(task.init(3))
    expected = torchvision_model.features(batch.x).mean((2, 3))
    torch.testing.assert_close(task.features(body, batch), expected)
    # The last layer is drawn as without them.
    drawn = task_of("mobilenet_v2", params).split(task_of("mobilenet_v2", params).init(3))[1]
    assert all(torch.equal(head[entry], drawn[entry]) for entry in drawn)


def test_pretrained_weights_of_another_model_are_refused(weight_file):
    weights = mobilenet_v2.pretrained(weight_file)
    with pytest.raises(ValueError, match="pretrained parameters .*body.0.0.0.weight.* not in the"):
        task_of("emnist_cnn", {"num_classes": 62}, pretrained=weights)
