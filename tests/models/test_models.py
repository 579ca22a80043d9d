"""Architectures: their sizes, term by term, and what holds of all of them."""

import inspect

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


GREY = {"in_channels": 1, "side": 28}
TEN = {"num_classes": 10}
LEAF = {"conv1": 4, "conv2": 3, "hidden": 6, "dropout": 0.5}
OF_TWO = {"num_classes": 2} | LEAF | {"conv1": 12, "conv2": 12, "hidden": 8}
BERT_BLOCK = 12 * 64**2 + 13 * 64  # four and two matrices of width 64, their biases, two norms
# Parameters to train, in total: of the papers' specifications, where these have them.
SIZES = [
    ("char_lstm", {}, 825_220),
    ("cifar_resnet18", TEN, 11_173_962),
    ("cifar_resnet18", {"num_classes": 5}, 11_171_397),
    ("constant", TEN, 10 + 10),
    ("emnist_cnn", {"num_classes": 62}, 2_278_334),
    ("fedmoe_cnn", {"num_classes": 62}, 6_603_710),
    ("fedmoe_cnn", {"num_classes": 5, "augment": True}, 6_486_917),
    ("gate_cnn", OF_TWO, 6_941),  # one output
    ("gate_cnn", OF_TWO | {"num_classes": 4}, 6_968),
    ("gate_cnn", TEN | GREY | {"conv1": 64, "conv2": 16, "hidden": 256}, 95_642),
    ("ifca_cnn", TEN | {"dropout": 0.2}, 798_752),
    ("leaf_cnn", TEN | LEAF | {"conv1": 128, "conv2": 32, "hidden": 1024}, 942_634),
    ("leaf_cnn", LEAF | GREY | {"num_classes": 62, "conv1": 32, "conv2": 64, "hidden": 2048},
     2_278_334),
    ("leaf_cnn", LEAF | GREY | {"num_classes": 62, "conv1": 32, "conv2": 64, "hidden": 2048,
                                "padding": 2}, 6_603_710),
    ("lenet5", TEN | {"channels": 32}, 878_538),
    ("lenet5", TEN | {"channels": 113}, 3_545_706),
    ("lenet5", GREY | {"num_classes": 62, "channels": 61}, 1_219_500),
    ("linear", {"in_features": 150, "num_classes": 2}, 150 + 1),
    ("mlp", {"in_features": 784, "hidden": [200, 200], **TEN}, 199_210),
    ("mobilenet_v2", TEN, 2_236_682),
    ("mobilenet_v2", {"num_classes": 100}, 2_351_972),
    *(
        ("pfedmoe_cnn", TEN | {"size": f"cnn{number}"}, total)
        for number, total in enumerate((2_621_558, 1_815_142, 1_320_558, 1_060_358, 670_058), 1)
    ),
    ("pfedmoe_cnn", {"num_classes": 100, "size": "cnn1"}, 2_666_648),
    *(  # two convolutions of 20 kernels; 320 maps, `hidden` units, 50 and 10 more
        ("pfedmoe_cnn", TEN | GREY | {"size": f"mnist{number}"}, 11_100 + (321 + 50) * hidden)
        for number, hidden in enumerate((300, 200, 150, 100, 50), 1)
    ),
    # Scale and shift of every input, and two logits for means and for variances.
    ("pfedmoe_gate", {"hidden": 64}, 3074 * 64 + 64 + 2 + 6_148),
    ("pfedmoe_gate", {"hidden": 64, "input_norm": "none"}, 3074 * 64 + 64 + 2),
    ("pfedmoe_gate", {"hidden": 64, "input_norm": "none", "hidden_norm": "batch"},
     3074 * 64 + 64 + 2 + 2 * (64 + 2)),
    ("resnet20", {"num_classes": 100}, 275_572),
    ("transformer", {"num_classes": 3, "size": "gpt2-lite", "vocabulary": 20},
     (20 + 64) * 64 + 2 * 64 + 2 * BERT_BLOCK + 64 * 3 + 3),
    ("vae", {}, 1_091_920),
]  # fmt: skip


def shown(case) -> str:
    return "-".join(map(str, (case[0], *case[1].values())))


def task_of(name, params, **options):
    params = {"dropout": 0.5} | params if name == "gate_cnn" else params
    return Task(lambda: models.load(name).build(**params), **options)


@pytest.mark.parametrize(("name", "params", "total"), SIZES, ids=map(shown, SIZES))
def test_a_model_has_the_number_of_parameters_of_its_specification(name, params, total):
    task = task_of(name, params)
    assert tree.numel(task.trainable(task.init(0))) == total


@pytest.mark.parametrize(("features", "total"), [(28 * 28, 100_998), (3 * 32 * 32, 393_862)])
def test_a_gate_of_two_experts_has_the_number_of_parameters_of_the_specification(features, total):
    assert tree.numel(dict(Gate(features, num_experts=2).named_parameters())) == total


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
    ("gate_cnn", LEAF | GREY | {"num_classes": 2}, (1, 28, 28)),
    ("ifca_cnn", TEN | IFCA | {"dropout": 0.5}, (3, 32, 32)),
    ("leaf_cnn", TEN | LEAF, (3, 32, 32)),
    ("lenet5", TEN | {"channels": 4, "hidden": 8}, (3, 32, 32)),
    ("constant", {"num_classes": 10}, (1, 8, 8)),
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
    with pytest.raises(ConfigError, match="no model 'vgg'; there are: char_lstm, cifar_resnet18, "):
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

    with ambient.stack_experts(True):  # as in the batched executor
        together = gradients(vmap, tree.stack(clients), KEYS[:2])
    for number, experts in enumerate(clients):
        alone = gradients(lambda loss: loss, experts, KEYS[number])
        # Float64, through up to 52 normalisations.
        largest = max(float(value.abs().max()) for value in alone.values())
        for entry, value in alone.items():
            torch.testing.assert_close(together[entry][number], value, rtol=0, atol=1e-10 * largest)


CHANGES = {
    "cifar_resnet18": [CropFlip(4), Cutout()],
    "fedmoe_cnn": [ResizedCrop()],
    "resnet20": [CropFlip(4)],
    **dict.fromkeys(("pfedmoe_cnn", "pfedmoe_gate"), augment.distortions(True)),
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
    assert torch.equal(found, plain.logits(tree.clone(drawn), batch._replace(x=seen, train=True)))


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
        ("fedmoe_cnn", {"side": 0}, "images of 0 x 0 pixels are too small"),
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
        ("transformer", {"size": "bert-lite", "pool": "max"}, "no pool 'max' of bert; .* first, "),
        ("transformer", {"size": "gpt2-lite", "pool": "first"}, "no pool 'first' of gpt2; .* mean"),
        ("transformer", {"size": "gpt2-medium", "vocabulary": 100}, r"in \[0, 100\), got 50256"),
        ("transformer", {"size": "bert-lite", "pad": -1}, "pad must be in .*, got -1"),
        ("transformer", {"size": "bert-lite", "vocabulary": 9, "pad": 9}, "in .*9.*, got 9"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(name, params, message):
    with pytest.raises(ValueError, match=message):
        models.load(name).build(num_classes=10, **params)
