"""Architectures: their sizes, term by term, and what splitting them into body and head keeps."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedlib import models, streams, tree
from fedlib.engine import ambient
from fedlib.engine.experts import each_expert
from fedlib.engine.task import Batch, Task
from fedlib.errors import ConfigError
from fedlib.models import emnist_cnn, mobilenet_v2
from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.fast import MaxPool2d
from fedlib.models.layers.gate import Gate
from fedlib.models.vae import Code


def conv(inputs, outputs, kernel, groups=1, bias=False):
    return outputs * inputs // groups * kernel**2 + (outputs if bias else 0)


def dense(inputs, outputs):
    return inputs * outputs + outputs


def layers(*widths):
    """Linear layers from each width to the next."""
    return sum(dense(inputs, outputs) for inputs, outputs in itertools.pairwise(widths))


def lenet5_body(inputs, channels, left):
    """(first convolution, the rest); maps of left x left pixels remain."""
    upper = conv(channels, 2 * channels, 5, bias=True) + dense(2 * channels * left**2, 512)
    return conv(inputs, channels, 5, bias=True), upper


def resnet20_stage(inputs, outputs):
    """Six convolutions, each with a scale and a shift of every channel."""
    return conv(inputs, outputs, 3) + 5 * conv(outputs, outputs, 3) + 6 * 2 * outputs


# Stem, then the stages.
RESNET20 = (
    conv(3, 16, 3) + 2 * 16,
    resnet20_stage(16, 16),
    resnet20_stage(16, 32),
    resnet20_stage(32, 64),
)


def resnet18_stage(inputs, outputs):
    """Four convolutions of 3 x 3, and one of 1 x 1 where the shape changes, all normalised."""
    weights, normed = conv(inputs, outputs, 3) + 3 * conv(outputs, outputs, 3), 4 * outputs
    if inputs != outputs:
        weights, normed = weights + conv(inputs, outputs, 1), normed + outputs
    return weights, normed


def resnet18_body(width):
    """(convolutions, channels that are normalised) of the body."""
    stages = [
        resnet18_stage(*widths) for widths in itertools.pairwise(width * f for f in (1, 1, 2, 4, 8))
    ]
    weights, normed = map(sum, zip(*stages, strict=True))
    return conv(3, width, 3) + weights, width + normed


def lstm(inputs, hidden):
    return 4 * (inputs * hidden + hidden * hidden + 2 * hidden)  # four gates, two biases each


def attention_block(width):
    """Queries, keys, values and their combination; two layers; two normalisations."""
    return 4 * dense(width, width) + layers(width, 4 * width, width) + 4 * width


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
# the specification (6 of FedMix's), None for a model of ours; running statistics (a mean and a
# variance each).
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
    *(
        (
            "fedmoe_cnn",
            {"num_classes": classes, "augment": augment},
            (1, 28, 28),
            conv(1, 32, 5, bias=True) + conv(32, 64, 5, bias=True) + dense(7 * 7 * 64, 2048),
            dense(2048, classes),
            total,
            0,
        )
        for classes, augment, total in ((62, False, 6_603_710), (5, True, 6_486_917))
    ),
    *(
        (
            "cifar_resnet18",
            {"num_classes": classes, "width": width, "augment": augment},
            (3, 32, 32),
            resnet18_body(width)[0] + 2 * resnet18_body(width)[1],
            dense(8 * width, classes),
            total,
            2 * resnet18_body(width)[1],
        )
        for classes, width, augment, total in (
            (10, 64, False, 11_173_962),
            (5, 64, True, 11_171_397),
            (10, 16, True, None),
        )
    ),
    # The sums of these two are explained in test_models_pfedmoe.py.
    (
        "pfedmoe_cnn",
        {"num_classes": 10},
        (3, 32, 32),
        conv(3, 16, 5, bias=True)
        + conv(16, 32, 5, bias=True)
        + dense(5 * 5 * 32, 2000)
        + dense(2000, 500),
        dense(500, 10),
        2_621_558,
        0,
    ),
    (
        "pfedmoe_gate",
        {"num_classes": 2},
        (3, 32, 32),
        2 * 3072 + 2 * 2 + dense(3072, 64),
        dense(64, 2),
        196_802 + 6_148,
        2 * 3072,
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
        "ifca_original_cnn",
        {"num_classes": 10},
        (3, 32, 32),
        conv(3, 64, 5, bias=True)
        + conv(64, 64, 5, bias=True)
        + layers(6 * 6 * 64, 384, 192),  # 24 x 24 pixels, pooled twice
        dense(192, 10),
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
    *(
        (
            "lenet5",
            {"num_classes": classes, "channels": channels, "in_channels": shape[0], "side": side},
            (*shape, side, side),
            sum(lenet5_body(shape[0], channels, left)),
            dense(512, classes),
            total,
            0,
        )
        for classes, shape, side, left, totals in (
            (10, (3,), 32, 5, {32: 878_538, 61: 1_758_050, 113: 3_545_706}),
            (62, (1,), 28, 4, {32: 608_702, 61: 1_219_500, 113: 2_525_324}),
            (10, (1,), 28, 4, {32: 582_026}),
        )
        for channels, total in totals.items()
    ),
    (
        "mlp",
        {"in_features": 784, "hidden": [200, 200], "num_classes": 10},
        (1, 28, 28),
        layers(784, 200, 200),
        dense(200, 10),
        199_210,
        0,
    ),
    *(
        (
            "resnet20",
            {"num_classes": 100, "augment": augment},
            (3, 32, 32),
            sum(RESNET20),
            dense(64, 100),
            275_572,
            0,
        )
        for augment in (False, True)
    ),
    *(
        (
            "transformer",
            {"num_classes": 3, "size": f"{layout}-lite", "vocabulary": 20, "max_length": 9},
            (7,),
            (20 + 9 + types) * 64 + 2 * 64 + 2 * attention_block(64) + pooler,
            dense(64, 3),
            None,
            0,
        )
        for layout, types, pooler in (("bert", 2, dense(64, 64)), ("gpt2", 0, 0))
    ),
    (
        "vae",
        {},
        (1, 28, 28),
        layers(784, 512, 256, 2 * 32),
        layers(32, 256, 512, 784),
        1_091_920,
        0,
    ),
]
every_model = pytest.mark.parametrize(
    ("name", "params", "shape", "body", "head", "total", "statistics"),
    SIZES,
    ids=["-".join(map(str, (case[0], *case[1].values()))) for case in SIZES],
)


def task_of(name, params, **options):
    return Task(lambda: models.load(name).build(**params), **options)


def batch_of(shape, train=False, name=""):
    # Not negative, so that they also are numbers of characters.
    x = 10 * torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    x = x.long() if name == "transformer" else x  # which tokens are, not bytes
    key = torch.from_numpy(streams.keys(1, 0) >> 1)[0]
    return Batch(x, torch.tensor([0, 1, 1]), torch.arange(3), key=key, train=train)


def test_every_registered_model_is_in_this_list():
    assert sorted({case[0] for case in SIZES}) == sorted(models.MODELS)


def test_an_unknown_model_names_the_choices():
    with pytest.raises(
        KeyError, match="no model 'vgg'; there are char_lstm, cifar_resnet18, emnist_cnn, "
    ):
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
    sizes = {(case[0], case[1].get("num_classes")): case[3:5] for case in SIZES}
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
    task, batch = task_of(name, params), batch_of(shape, train, name)
    drawn = task.init(0)
    whole = task.logits(tree.clone(drawn), batch)
    own_body, own_head = task.split(tree.clone(drawn))
    parts = task.head_logits(own_head, task.features(own_body, batch), batch)
    assert torch.equal(whole, parts)
    classes = params.get("num_classes", 784)  # an autoencoder's are the pixels
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
    lenet5 = models.load("lenet5").build(62, in_channels=1, side=28).body
    for parts in (list(emnist_cnn.build(62).body), [*lenet5[0], *lenet5[1]]):
        assert [type(layer) for layer in parts[1:3]] == [MaxPool2d, nn.ReLU]
        pool = nn.MaxPool2d(2)
        published = nn.Sequential(parts[0], parts[2], pool, parts[3], parts[5], pool)
        x = batch_of((1, 28, 28)).x
        # The largest of the positive parts is the positive part of the largest; what is left is
        # rounding, as the second convolution adds up in another order.
        torch.testing.assert_close(published(x), nn.Sequential(*parts[:6])(x))


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


# -- the models of FedMix ------------------------------------------------------------------


def test_the_private_parts_of_local_global_have_the_sizes_of_the_specification():
    # Section 8 of FedMix's: the floats that a client sends.
    for name, params, total, private, rest in (
        ("lenet5", {"num_classes": 10}, 878_538, conv(3, 32, 5, bias=True), 876_106),
        ("resnet20", {"num_classes": 100}, 275_572, sum(RESNET20[:2]), 261_092),
    ):
        drawn = task_of(name, params).init(0)
        lower = {entry: value for entry, value in drawn.items() if entry.startswith("body.0.")}
        assert tree.numel(lower) == private == total - rest
        assert sum(value.numel() for value in drawn.values()) == total
    assert (sum(RESNET20[:2]), *RESNET20[2:]) == (464 + 14_016, 51_072, 203_520)


def test_the_wide_lenets_are_the_smallest_of_two_and_four_times_the_size():
    def size(channels):
        return sum(lenet5_body(3, channels, 5)) + dense(512, 10)

    for times, channels in ((2, 61), (4, 113)):
        assert size(channels - 1) < times * size(32) <= size(channels)


@pytest.mark.parametrize("name", ["lenet5", "resnet20"])
def test_the_last_layer_is_one_linear_layer_called_head(name):
    task = task_of(name, {"num_classes": 7})
    head = task.split(task.init(0))[1]
    assert head.keys() == {"head.weight", "head.bias"}
    features = {"lenet5": 512, "resnet20": 64}[name]
    assert head["head.weight"].shape == (7, features)
    batch = batch_of((3, 32, 32))
    found = task.features(task.split(task.init(0))[0], batch)
    assert found.shape == (3, features)
    assert found.min() >= 0 and found.max() > 0  # after the last ReLU


def test_images_too_small_for_the_convolutions_are_refused():
    with pytest.raises(ConfigError, match="images of 15 x 15 pixels are too small for 2 conv"):
        models.load("lenet5").build(10, side=15)


def test_one_hidden_layer_may_be_a_number_or_a_list():
    drawn, listed = (
        task_of("mlp", {"in_features": 64, "hidden": hidden, "num_classes": 10}).init(3)
        for hidden in (32, [32])
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)  # the order in which a perceptron has always been drawn
        body, head = nn.Linear(64, 32), nn.Linear(32, 10)
    expected = {
        "body.1.weight": body.weight,
        "body.1.bias": body.bias,
        "head.weight": head.weight,
        "head.bias": head.bias,
    }
    assert list(drawn) == list(listed) == list(expected)
    for name, value in expected.items():
        assert torch.equal(drawn[name], value) and torch.equal(listed[name], value)


def test_a_perceptron_without_a_hidden_layer_is_refused():
    with pytest.raises(ConfigError, match=r"hidden must name at least one layer, got \[\]"):
        models.load("mlp").build(64, [], 10)


def group_normalised(x, groups, scale, shift):
    parts = x.reshape(len(x), groups, -1)
    mean, variance = parts.mean(-1, keepdim=True), parts.var(-1, correction=0, keepdim=True)
    plain = ((parts - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)
    return plain * scale[:, None, None] + shift[:, None, None]


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("side", [(32, 32), (9, 14)])
def test_resnet20_is_the_published_network(groups, side):
    build = {"num_classes": 10, "norm_groups": groups}
    task = task_of("resnet20", build, dtype=torch.float64)
    params = varied(task.init(0))
    batch = batch_of((3, *side))
    batch = batch._replace(x=batch.x.double())
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


@pytest.mark.parametrize("model", ["resnet20", "lenet5"])
def test_fedmixs_networks_augment_in_training_alone_and_have_the_same_parameters(model):
    plain, augmenting = (
        task_of(model, {"num_classes": 10, "augment": augment}, dtype=torch.float64)
        for augment in (False, True)
    )
    params = plain.init(0)
    theirs = dict(zip(augmenting.init(0), params.values(), strict=True))
    for train in (False, True):
        batch = batch_of((3, 32, 32), train)
        batch = batch._replace(x=batch.x.double())
        found, expected = augmenting.logits(theirs, batch), plain.logits(params, batch)
        assert torch.equal(found, expected) != train
    with ambient.dropout_key(batch.key):
        seen = batch._replace(x=CropFlip(4)(batch.x))
    assert torch.equal(found, plain.logits(params, seen))


@pytest.mark.parametrize(
    ("name", "build", "shape"),
    [
        ("lenet5", {"num_classes": 10, "channels": 4, "hidden": 8}, (3, 32, 32)),
        ("resnet20", {"num_classes": 10, "augment": True}, (3, 16, 16)),
        ("vae", {"in_features": 36, "hidden": [8, 6], "latent": 3}, (1, 6, 6)),
    ],
)
def test_stacked_clients_and_experts_train_the_models_of_fedmix_as_each_alone(name, build, shape):
    task = task_of(name, build, dtype=torch.float64)
    batch = batch_of(shape, train=True)
    keys = torch.from_numpy(streams.keys(3, 0, "test") >> 1)
    clients = [[varied(task.init(c), 2 * c + e) for e in range(2)] for c in range(len(keys))]

    def loss(experts, key):
        own = batch._replace(x=batch.x.double() / 10, key=key)
        return each_expert(lambda params: task.logits(params, own), experts).square().sum()

    def gradients(lift, params, key):
        params = tree.map(lambda x: x.clone().requires_grad_(), params)
        lift(loss)(params, key).sum().backward()
        return {entry: value.grad for entry, value in params.items()}

    by_client = [tree.stack(experts) for experts in clients]
    with ambient.stacked_experts(True):
        together = gradients(torch.func.vmap, tree.stack(by_client), keys)
    for number, experts in enumerate(by_client):
        alone = gradients(lambda loss: loss, experts, keys[number])
        assert_equal_to_rounding({n: value[number] for n, value in together.items()}, alone)


def test_the_autoencoder_decodes_a_draw_in_training_and_the_mean_otherwise():
    task = task_of("vae", {"in_features": 4, "hidden": [6, 5], "latent": 2}, dtype=torch.float64)
    encoder, decoder = task.split(task.init(0))
    batch = batch_of((1, 2, 2), train=True)
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
    assert task.features(encoder, batch._replace(x=batch.x.double())).shape == (3, 2 * 2)


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
    with ambient.stacked_experts(True):
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
    params, batch = task.init(0), batch_of((4,))
    batch = batch._replace(x=batch.x.double())
    w = params["body.0.weight"]
    assert "head.weight" not in params
    expected = batch.x @ w.T / math.sqrt(1 + 1e-5) @ w.T  # statistics of mean 0 and variance 1
    torch.testing.assert_close(task.logits(params, batch), expected)
