"""Architectures: their sizes, term by term, and what holds of all of them."""

import inspect
import itertools
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedlib import models, streams, tree
from fedlib.engine import ambient
from fedlib.engine.experts import each_expert
from fedlib.engine.task import Batch, Task
from fedlib.errors import ConfigError
from fedlib.models.layers import augment
from fedlib.models.layers.augment import CropFlip, Cutout
from fedlib.models.layers.gate import Gate
from fedlib.models.layers.initialise import convolution_weights
from fedlib.models.layers.resized_crop import ResizedCrop
from fedlib.run.operations import Operations

KEYS = torch.from_numpy(streams.keys(3, 0, "test") >> 1)


def conv(inputs, outputs, kernel, groups=1):
    return outputs * inputs // groups * kernel**2


def conv5(*channels):
    """Convolutions of 5 x 5 with biases, from each number of channels to the next."""
    return sum(conv(one, other, 5) + other for one, other in itertools.pairwise(channels))


def layers(*widths):
    """Linear layers from each width to the next."""
    return sum(one * other + other for one, other in itertools.pairwise(widths))


def resnet20_stage(inputs, outputs):
    """Six convolutions, each with a scale and a shift of every channel."""
    return conv(inputs, outputs, 3) + 5 * conv(outputs, outputs, 3) + 6 * 2 * outputs


# Stem and first stage, then the other stages.
RESNET20 = (
    conv(3, 16, 3) + 2 * 16 + resnet20_stage(16, 16),
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
    """(parameters, statistics) of the body: a scale, shift, mean and variance of each channel."""
    pairs = itertools.pairwise(width * factor for factor in (1, 1, 2, 4, 8))
    stages = [(conv(3, width, 3), width), *(resnet18_stage(*widths) for widths in pairs)]
    weights, normed = map(sum, zip(*stages, strict=True))
    return weights + 2 * normed, 2 * normed


def lstm(inputs, hidden):
    return 4 * (inputs * hidden + hidden * hidden + 2 * hidden)  # four gates, two biases each


def attention_block(width):
    """Queries, keys, values and their combination; two layers; two normalisations."""
    return 4 * layers(width, width) + layers(width, 4 * width, width) + 4 * width


# Inverted residual blocks of MobileNet-v2 (its paper, table 2): expansion, channels, how many.
BLOCKS = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))


def mobilenet_v2_body():
    """(parameters, statistics) of the body, as for `resnet18_body`."""
    weights, normed, channels = conv(3, 32, 3), 32, 32  # the stem
    for expansion, outputs, repeats in BLOCKS:
        for _ in range(repeats):
            hidden = expansion * channels
            if expansion > 1:
                weights, normed = weights + conv(channels, hidden, 1), normed + hidden
            weights += conv(hidden, hidden, 3, groups=hidden) + conv(hidden, outputs, 1)
            normed, channels = normed + hidden + outputs, outputs
    weights, normed = weights + conv(channels, 1280, 1), normed + 1280
    return weights + 2 * normed, 2 * normed


MOBILENET, STATISTICS = mobilenet_v2_body()
GREY = {"in_channels": 1, "side": 28}
TEN = {"num_classes": 10}
# pFedMoE's networks: parameters of two convolutions and two hidden layers; the totals that the
# paper's specification has for 10 and for 100 classes.
ZOO = {
    "cnn1": ((1_216, 12_832, 1_602_000, 1_000_500), {10: 2_621_558, 100: 2_666_648}),
    "cnn2": ((1_216, 6_416, 802_000, 1_000_500), {10: 1_815_142, 100: 1_860_232}),
    "cnn3": ((1_216, 12_832, 801_000, 500_500), {10: 1_320_558, 100: 1_365_648}),
    "cnn4": ((1_216, 12_832, 640_800, 400_500), {10: 1_060_358, 100: 1_105_448}),
    "cnn5": ((1_216, 12_832, 400_500, 250_500), {10: 670_058, 100: 715_148}),
}


class Size(NamedTuple):
    """Parameters of a network.

    Attributes:
      name, params: what is built.
      body, head: parameters of its parts.
      total: in the papers' specifications; None where they have none.
      statistics: running ones, a mean and a variance each.
    """

    name: str
    params: dict
    body: int
    head: int
    total: int | None = None
    statistics: int = 0


def plain_sizes():
    """Networks of a few layers."""
    letters = 100 * 8 + lstm(8, 256) + lstm(256, 256)
    yield Size("char_lstm", {}, letters, layers(256, 100), 825_220)
    yield Size("constant", TEN, 0, layers(1, 10), 20)
    yield Size("linear", {"in_features": 150, "num_classes": 2}, 0, layers(150, 1), 151)
    yield Size("linear", {"in_features": 64, **TEN}, 0, layers(64, 10))
    for hidden, total in (([200, 200], 199_210), ([32], None)):
        params = {"in_features": 784, "hidden": hidden, **TEN}
        yield Size("mlp", params, layers(784, *hidden), layers(hidden[-1], 10), total)
    coder = layers(784, 512, 256, 2 * 32), layers(32, 256, 512, 784)
    yield Size("vae", {}, *coder, 1_091_920)
    for layout, types, pooler in (("bert", 2, layers(64, 64)), ("gpt2", 0, 0)):
        params = {"num_classes": 3, "size": f"{layout}-lite", "vocabulary": 20}
        body = (20 + 64 + types) * 64 + 2 * 64 + 2 * attention_block(64) + pooler
        yield Size("transformer", params, body, layers(64, 3))


def convolutional_sizes():
    """Two convolutions, and hidden layers.

    Sides: 32 -> 28 -> 14 -> 10 -> 5 pixels; 28 -> 24 -> 12 -> 8 -> 4; padded 28 -> 14 -> 7.
    """
    body = conv5(1, 32, 64) + layers(4**2 * 64, 2048)
    yield Size("emnist_cnn", {"num_classes": 62}, body, layers(2048, 62), 2_278_334)
    body = conv5(1, 32, 64) + layers(7**2 * 64, 2048)
    for classes, augmented, total in ((62, False, 6_603_710), (5, True, 6_486_917)):
        params = {"num_classes": classes, "augment": augmented}
        yield Size("fedmoe_cnn", params, body, layers(2048, classes), total)
    for size, (parts, totals) in ZOO.items():
        for classes, total in totals.items():
            params = {"num_classes": classes, "size": size}
            yield Size("pfedmoe_cnn", params, sum(parts), layers(500, classes), total)
    for number, hidden in enumerate((300, 200, 150, 100, 50), 1):
        body = conv5(1, 20, 20) + layers(4**2 * 20, hidden, 50)
        yield Size("pfedmoe_cnn", {"size": f"mnist{number}", **TEN, **GREY}, body, layers(50, 10))
    body = conv5(3, 64, 64) + layers(5**2 * 64, 384, 194)
    yield Size("ifca_cnn", {"dropout": 0.216, **TEN}, body, layers(194, 10), 798_752)
    for (classes, one, two, hidden, dropout), images, left, total in (
        ((10, 128, 32, 1024, 0.8), {}, 5, 942_634),
        ((10, 32, 256, 256, 0.76), {}, 5, 1_848_714),
        ((62, 32, 64, 2048, 0.659), GREY, 4, 2_278_334),
        ((62, 32, 64, 2048, 0.0), GREY | {"padding": 2}, 7, 6_603_710),
    ):
        params = {"num_classes": classes, "conv1": one, "conv2": two, "hidden": hidden} | images
        body = conv5(images.get("in_channels", 3), one, two) + layers(left**2 * two, hidden)
        yield Size("leaf_cnn", params | {"dropout": dropout}, body, layers(hidden, classes), total)
    for classes, inputs, images, left, totals in (
        (10, 3, {}, 5, {32: 878_538, 61: 1_758_050, 113: 3_545_706}),
        (62, 1, GREY, 4, {32: 608_702, 61: 1_219_500, 113: 2_525_324}),
        (10, 1, GREY, 4, {32: 582_026}),
    ):
        for channels, total in totals.items():
            params = {"num_classes": classes, "channels": channels} | images
            body = conv5(inputs, channels, 2 * channels) + layers(2 * channels * left**2, 512)
            yield Size("lenet5", params, body, layers(512, classes), total)


def gate_sizes():
    """A gate has an output per expert, and a single one for two."""
    for experts, one, two, hidden, images, left, total in (
        *((2, 12, 12, 8, {}, 5, 6_941), (3, 12, 12, 8, {}, 5, 6_959), (4, 12, 12, 8, {}, 5, 6_968)),
        *((7, 12, 12, 8, {}, 5, 6_995), (10, 12, 12, 8, {}, 5, 7_022)),
        *((10, 64, 16, 256, GREY, 4, 95_642), (3, 16, 16, 128, {}, 5, 59_347)),
    ):
        params = {"num_classes": experts, "conv1": one, "conv2": two, "hidden": hidden} | images
        body = conv5(images.get("in_channels", 3), one, two) + layers(left**2 * two, hidden)
        head = layers(hidden, 1 if experts == 2 else experts)
        yield Size("gate_cnn", params, body, head, total)
    for hidden in (16, 32, 64, 128, 256):
        # Scale and shift of every input, and two logits for means and for variances.
        body, total = 2 * 3072 + 2 * 2 + layers(3072, hidden), 3074 * hidden + hidden + 2 + 6_148
        yield Size("pfedmoe_gate", {"hidden": hidden}, body, layers(hidden, 2), total, 2 * 3072)
    # Without switches, and with a normalisation of the hidden units and of the outputs.
    for norm, one in (("none", 0), ("batch", 2)):
        params, normed = {"input_norm": "none", "hidden_norm": norm}, one * (64 + 2)
        body, head = layers(3072, 64) + one * 64, layers(64, 2) + one * 2
        yield Size("pfedmoe_gate", params, body, head, 3074 * 64 + 64 + 2 + normed, normed)


def residual_sizes():
    """Networks with shortcuts, all normalised."""
    for classes, width, total in ((10, 64, 11_173_962), (5, 64, 11_171_397), (10, 16, None)):
        params, (body, statistics) = {"num_classes": classes, "width": width}, resnet18_body(width)
        yield Size("cifar_resnet18", params, body, layers(8 * width, classes), total, statistics)
    for classes, total in ((10, 2_236_682), (100, 2_351_972)):
        head = layers(1280, classes)
        yield Size("mobilenet_v2", {"num_classes": classes}, MOBILENET, head, total, STATISTICS)
    yield Size("resnet20", {"num_classes": 100}, sum(RESNET20), layers(64, 100), 275_572)


SIZES = [*plain_sizes(), *convolutional_sizes(), *gate_sizes(), *residual_sizes()]


def shown(case) -> str:
    return "-".join(map(str, (case[0], *case[1].values())))


def task_of(name, params, **options):
    params = {"dropout": 0.5} | params if name == "gate_cnn" else params
    return Task(lambda: models.load(name).build(**params), **options)


@pytest.mark.parametrize("size", SIZES, ids=shown)
def test_a_model_has_the_number_of_parameters_of_its_specification(size):
    task = task_of(size.name, size.params)
    drawn = task.init(0)
    body, head = task.split(task.trainable(drawn))
    assert (tree.numel(body), tree.numel(head)) == (size.body, size.head)
    assert size.total in (None, size.body + size.head)
    assert tree.numel(drawn) == size.body + size.head + size.statistics


@pytest.mark.parametrize(("features", "total"), [(28 * 28, 100_998), (3 * 32 * 32, 393_862)])
def test_a_gate_of_two_experts_has_the_number_of_parameters_of_the_specification(features, total):
    drawn = dict(Gate(features, num_experts=2).named_parameters())
    normalised = 2 * 128 + 2 * 2  # a scale and a shift each
    assert tree.numel(drawn) == layers(features, 128, 2) + normalised == total


@pytest.mark.parametrize(
    ("name", "num_classes", "shape", "expected"),
    [("fedmoe_cnn", 62, (1, 28, 28), 17_211_904), ("cifar_resnet18", 10, (3, 32, 32), 555_422_720)],
)
def test_a_forward_pass_has_the_multiply_adds_of_the_specification(
    name, num_classes, shape, expected
):
    model = models.load(name).build(num_classes).eval()
    with torch.no_grad(), Operations() as counter:
        model(torch.zeros(1, *shape))
    assert counter.flops == 2 * expected


# What holds of all of them, small enough to be evaluated often.

LEAF = {"conv1": 4, "conv2": 3, "hidden": 6, "dropout": 0.5}
IFCA = {"conv1": 12, "conv2": 11, "hidden1": 7, "hidden2": 8}
AUGMENTED = TEN | {"augment": True}
LITE = {"num_classes": 3, "vocabulary": 20, "max_length": 9}
SMALL = [
    ("char_lstm", {"num_classes": 20, "embedding": 3, "hidden": 5}, (6,)),
    ("cifar_resnet18", TEN | {"width": 2}, (3, 16, 16)),
    ("cifar_resnet18", AUGMENTED | {"width": 2}, (3, 16, 16)),
    ("emnist_cnn", {"num_classes": 62}, (1, 28, 28)),
    ("fedmoe_cnn", TEN | {"hidden": 6}, (1, 28, 28)),
    ("fedmoe_cnn", AUGMENTED | {"hidden": 6}, (1, 28, 28)),
    ("gate_cnn", LEAF | {"num_classes": 4}, (3, 32, 32)),
    ("gate_cnn", LEAF | GREY | {"num_classes": 2}, (1, 28, 28)),
    ("ifca_cnn", TEN | IFCA | {"dropout": 0.5}, (3, 32, 32)),
    ("leaf_cnn", TEN | LEAF, (3, 32, 32)),
    ("leaf_cnn", LEAF | GREY | {"num_classes": 62}, (1, 28, 28)),
    ("lenet5", TEN | {"channels": 4, "hidden": 8}, (3, 32, 32)),
    ("constant", {"num_classes": 10}, (1, 8, 8)),
    ("linear", {"in_features": 64, "num_classes": 10}, (1, 8, 8)),
    ("linear", {"in_features": 12, "num_classes": 2}, (12,)),
    ("mlp", {"in_features": 64, "hidden": [7, 5], "num_classes": 10}, (1, 8, 8)),
    ("mobilenet_v2", TEN, (3, 32, 32)),
    ("pfedmoe_cnn", TEN | {"channels": (4, 3), "hidden": (6, 5)}, (3, 32, 32)),
    ("pfedmoe_cnn", AUGMENTED | {"channels": (4, 3), "hidden": (6, 5)}, (3, 32, 32)),
    ("pfedmoe_gate", {"num_classes": 2, "side": 4}, (3, 4, 4)),
    ("pfedmoe_gate", {"num_classes": 2, "augment": True, "hidden": 4}, (3, 32, 32)),
    ("resnet20", TEN, (3, 16, 16)),
    ("resnet20", AUGMENTED, (3, 16, 16)),
    ("transformer", LITE | {"size": "bert-lite", "pool": "first"}, (7,)),
    ("transformer", LITE | {"size": "gpt2-lite"}, (7,)),
    ("vae", {"in_features": 36, "hidden": [8, 6], "latent": 3}, (1, 6, 6)),
]
every_model = pytest.mark.parametrize(("name", "params", "shape"), SMALL, ids=map(shown, SMALL))


def batch_of(name, shape, train=False, key=KEYS[0]):
    # Not negative, so that they also are numbers of characters.
    x = 10 * torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    x = x.long() if name == "transformer" else x.double()  # which tokens are, not bytes
    return Batch(x, torch.tensor([0, 1, 1, 0]), torch.arange(4), key=key, train=train)


def varied(drawn, seed=0):
    """Parameters and statistics that are no longer 0 or 1, as after some training."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: value * (1 + 0.1 * torch.rand(value.shape, generator=draw)) + 0.01
        for name, value in drawn.items()
    }


def test_every_registered_model_is_in_both_lists_and_others_are_refused():
    assert {case[0] for case in SIZES} == {case[0] for case in SMALL} == {*models.MODELS}
    for name in models.MODELS:
        with_chain = "augment" in inspect.signature(models.load(name).build).parameters
        assert with_chain == any(case[0] == name and case[1].get("augment") for case in SMALL)
    with pytest.raises(KeyError, match="no model 'vgg'; there are char_lstm, cifar_resnet18, "):
        models.load("vgg")


@every_model
@pytest.mark.parametrize("train", [False, True])
def test_the_head_on_the_body_is_the_whole_model(name, params, shape, train):
    # Clones, because a batch in training mode renews the running statistics it is given.
    task, batch = task_of(name, params, dtype=torch.float64), batch_of(name, shape, train)
    drawn = task.init(0)
    whole = task.logits(tree.clone(drawn), batch)
    body, head = task.split(tree.clone(drawn))
    assert torch.equal(whole, task.head_logits(head, task.features(body, batch), batch))
    classes = params.get("num_classes", 36)  # an autoencoder's are the pixels
    single = classes == 2 and name in ("linear", "gate_cnn")
    assert whole.shape == (4, *(shape if name == "char_lstm" else ()), 1 if single else classes)
    if not train:
        module = task.build().double().eval()
        module.load_state_dict(drawn, strict=False)  # all but the counts of batches
        # Where numbers lie in memory may change the last bit of a product.
        torch.testing.assert_close(whole, module(batch.x), rtol=1e-12, atol=1e-13)


@every_model
def test_a_model_is_drawn_from_its_seed_alone(name, params, shape):
    task = task_of(name, params)
    before = torch.get_rng_state()
    drawn, convolutions = task.init(1), convolution_weights(task.build)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    again, other = task.init(1), task.init(2)
    assert all(torch.equal(drawn[entry], again[entry]) for entry in drawn)
    assert any(not torch.equal(drawn[entry], other[entry]) for entry in drawn)
    # Clusters of Adaptive Expert Models may differ in these alone; MobileNet has its own layers.
    if name != "mobilenet_v2":
        assert convolutions == {entry for entry, value in drawn.items() if value.dim() == 4}


@every_model
def test_chance_in_training_is_a_function_of_the_batchs_key(name, params, shape):
    task = task_of(name, params, dtype=torch.float64)
    drawn = task.init(0)
    for train in (True, False):
        one, same, other = (
            task.logits(tree.clone(drawn), batch_of(name, shape, train, key))
            for key in KEYS[[0, 0, 1]]
        )
        assert torch.equal(one, same)
        chance = params.get("augment") or "dropout" in params
        chance = chance or name in ("mobilenet_v2", "transformer", "vae")
        assert torch.equal(one, other) != bool(train and chance)


@every_model
def test_stacked_clients_and_experts_train_as_each_alone(name, params, shape):
    task = task_of(name, params, dtype=torch.float64)
    batch = batch_of(name, shape, train=True)
    if name not in ("char_lstm", "transformer"):
        batch = batch._replace(x=batch.x / 10)
    clients = [tree.stack([varied(task.init(c), 2 * c + e) for e in range(2)]) for c in range(2)]

    def loss(experts, key):
        own = batch._replace(key=key)
        return each_expert(lambda params: task.logits(params, own), experts).square().sum()

    def gradients(lift, params, key):
        params = {entry: value.clone() for entry, value in params.items()}
        weights = {entry for entry in params if not task.is_statistic(entry)}
        for entry in weights:
            params[entry].requires_grad_()
        lift(loss)(params, key).sum().backward()
        return {n: value.grad if n in weights else value for n, value in params.items()}

    with ambient.stacked_experts(True):  # as in the batched executor
        together = gradients(vmap, tree.stack(clients), KEYS[:2])
    for number, experts in enumerate(clients):
        alone = gradients(lambda loss: loss, experts, KEYS[number])
        # Float64, through up to 52 normalisations.
        largest = max(float(value.abs().max()) for value in alone.values())
        for entry, value in alone.items():
            torch.testing.assert_close(together[entry][number], value, rtol=0, atol=1e-10 * largest)


CHANGES = {
    "cifar_resnet18": [CropFlip(4), Cutout()],
    "fedmoe_cnn": [ResizedCrop((0.9, 1.1), (3 / 4, 4 / 3))],
    "resnet20": [CropFlip(4)],
    **dict.fromkeys(("pfedmoe_cnn", "pfedmoe_gate"), augment.erased(True)),
}


@pytest.mark.parametrize(
    ("name", "params", "shape"), [case for case in SMALL if case[1].get("augment")]
)
def test_images_are_changed_in_training_alone_and_only_if_asked_for(name, params, shape):
    plain, changing = (
        task_of(name, params | {"augment": augment}, dtype=torch.float64)
        for augment in (False, True)
    )
    drawn, named = plain.init(0), changing.init(0)
    assert all(map(torch.equal, drawn.values(), named.values()))  # the same, some layers later
    batch = batch_of(name, shape)
    assert torch.equal(plain.logits(drawn, batch), changing.logits(named, batch))
    with ambient.dropout_key(KEYS[0]):
        seen = nn.Sequential(*CHANGES[name])(batch.x)
    assert not torch.equal(seen, batch.x)
    found = changing.logits(tree.clone(named), batch._replace(train=True))
    expected = plain.logits(tree.clone(drawn), batch._replace(x=seen, train=True))
    assert torch.equal(found, expected)


def test_a_single_logit_is_that_of_class_1():
    task = task_of("linear", {"in_features": 12, "num_classes": 2}, dtype=torch.float64)
    params, batch = task.init(0), batch_of("linear", (12,))
    logit, log_probs = task.logits(params, batch), task.log_probs(params, batch)
    assert log_probs.shape == (4, 2)
    torch.testing.assert_close(log_probs[:, 1:].exp(), torch.sigmoid(logit))
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(4).double())
    expected = nn.functional.binary_cross_entropy_with_logits(logit[:, 0], batch.y.double())
    torch.testing.assert_close(task.loss(params, batch), expected)


# Parameters that make no model

TOO_SMALL = "8 x 8 pixels are too small for 2 convolutions .* 2 or"


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("fedmoe_cnn", {"side": 30}, "side must be a multiple of 4, got 30"),
        ("fedmoe_cnn", {"side": 0}, "side must be a multiple of 4, got 0"),
        ("cifar_resnet18", {"width": 0}, "width must be at least 1, got 0"),
        ("lenet5", {"side": 15}, "images of 15 x 15 pixels are too small for 2 conv"),
        ("mlp", {"in_features": 64, "hidden": []}, r"hidden must name .* one layer, got \[\]"),
        ("leaf_cnn", LEAF | GREY | {"side": 8}, TOO_SMALL),
        ("gate_cnn", LEAF | GREY | {"side": 8}, TOO_SMALL),
        ("pfedmoe_cnn", {"size": "cnn6"}, "no size 'cnn6'; there are cnn1, "),
        ("pfedmoe_cnn", {"channels": (16,)}, r"channels must be two numbers from 1, got \(16,\)"),
        ("pfedmoe_cnn", {"hidden": (0, 500)}, r"hidden must be two .* from 1, got \(0, 500\)"),
        ("pfedmoe_gate", {"input_norm": "group"}, "input_norm must be one of .*, got 'group'"),
        ("pfedmoe_gate", {"hidden_norm": "group"}, "hidden_norm must be one of .*, got 'group'"),
        ("transformer", {"size": "bert-large"}, "no size 'bert-large'; choose one of bert-base, "),
        ("transformer", {"size": "bert-lite", "pool": "max"}, "no pool 'max'; choose one of first"),
        ("transformer", {"size": "gpt2-medium", "vocabulary": 100}, r"in \[0, 100\), got 50256"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(name, params, message):
    with pytest.raises((ConfigError, KeyError, ValueError), match=message):
        models.load(name).build(num_classes=10, **params)
