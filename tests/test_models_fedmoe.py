"""The networks of Fed-MoE for images, and how they see these in training. Sections:
fedlib/papers/fedmoe/README.md."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import vmap
from torchvision.models import resnet18
from torchvision.transforms import functional as vision

from fedlib import models, streams, tree
from fedlib.engine import ambient
from fedlib.engine.task import Batch, Task
from fedlib.models.layers.augment import CropFlip, Cutout
from fedlib.models.layers.resized_crop import ResizedCrop
from fedlib.run.cost import Operations

KEYS = torch.from_numpy(streams.keys(2, 0, "test") >> 1)
SMALL = {"cifar_resnet18": {"width": 3}, "fedmoe_cnn": {"hidden": 6}}
SHAPES = {"cifar_resnet18": (3, 32, 32), "fedmoe_cnn": (1, 28, 28)}
CHANGES = {
    "cifar_resnet18": [CropFlip(4), Cutout(16)],
    "fedmoe_cnn": [ResizedCrop((0.9, 1.1), (3 / 4, 4 / 3))],
}


def images(count, *shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(count, *shape, dtype=torch.float64, generator=draw)


def batch_of(x, train=False):
    return Batch(x, torch.zeros(len(x)), torch.arange(len(x)), key=KEYS[0], train=train)


def small(name, **params):
    return Task(lambda: models.load(name).build(10, **SMALL[name], **params), dtype=torch.float64)


def size(name, num_classes):
    with torch.device("meta"):
        module = models.load(name).build(num_classes)
    return sum(weights.numel() for weights in module.parameters())


# Sizes


@pytest.mark.parametrize(
    ("name", "num_classes", "total"),
    [("fedmoe_cnn", 62, 52_596_095), ("cifar_resnet18", 10, 89_386_567)],
)
def test_a_server_with_six_experts_two_gates_and_alpha_has_the_size_of_the_specification(
    name, num_classes, total
):
    experts, gates, alpha = 6 * size(name, num_classes), 2 * size(name, 5), 1
    assert experts + gates + alpha == total


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [("fedmoe_cnn", 62, 17_211_904), ("cifar_resnet18", 10, 555_422_720)],
)
def test_a_forward_pass_has_the_multiply_adds_of_the_specification(name, num_classes, expected):
    model = models.load(name).build(num_classes).eval()
    with torch.no_grad(), Operations() as counter:
        model(torch.zeros(1, *SHAPES[name]))
    assert counter.flops == 2 * expected


def test_a_narrow_residual_network_ends_in_eight_times_its_width():
    network = models.load("cifar_resnet18").build(10, width=2).eval()
    for side in (8, 32):
        assert network.body(torch.zeros(1, 3, side, side)).shape == (1, 16)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("fedmoe_cnn", {"side": 30}, "side must be a multiple of 4, got 30"),
        ("fedmoe_cnn", {"side": 0}, "side must be a multiple of 4, got 0"),
        ("cifar_resnet18", {"width": 0}, "width must be at least 1, got 0"),
    ],
)
def test_sizes_that_make_no_network_are_refused(name, params, message):
    with pytest.raises(ValueError, match=message):
        models.load(name).build(10, **params)


# Functions


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_the_residual_network_is_torchvisions_with_a_stem_for_small_images(train):
    published = resnet18(num_classes=10, norm_layer=nn.BatchNorm2d)
    published.conv1, published.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    network = models.load("cifar_resnet18").build(10)
    # Both name their layers in the order in which they compute.
    own = network.state_dict()
    published.load_state_dict(dict(zip(published.state_dict(), own.values(), strict=True)))
    x = images(2, 3, 16, 16)
    found, expected = (module.double().train(train)(x) for module in (network, published))
    # Float64, through 20 batch normalisations.
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    pairs = zip(network.state_dict().values(), published.state_dict().values(), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_cnn_pools_what_its_relu_leaves():
    network = models.load("fedmoe_cnn").build(62, hidden=8).double()
    first, second = (layer for layer in network.body if isinstance(layer, nn.Conv2d))
    hidden = next(layer for layer in network.body if isinstance(layer, nn.Linear))
    x = seen = images(3, 1, 28, 28)
    for convolution in (first, second):
        assert convolution.padding == (2, 2)
        seen = nn.functional.max_pool2d(convolution(seen).relu(), 2)
    expected = network.head(hidden(seen.flatten(1)).relu())
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_images_are_changed_in_training_alone_and_only_if_asked_for(name):
    plain, changing = small(name), small(name, augment=True)
    params, x = plain.init(0), images(6, *SHAPES[name])
    assert params.keys() == changing.init(0).keys()
    found = changing.logits(params, batch_of(x))
    assert torch.equal(found, plain.logits(params, batch_of(x)))
    with ambient.dropout_key(KEYS[0]):
        seen = nn.Sequential(*CHANGES[name])(x)
    assert not torch.equal(seen, x)
    found = changing.logits({k: v.clone() for k, v in params.items()}, batch_of(x, train=True))
    expected = plain.logits({k: v.clone() for k, v in params.items()}, batch_of(seen, train=True))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_stacked_clients_train_the_networks_as_each_alone(name):
    task, x = small(name, augment=True), images(4, *SHAPES[name])
    clients = [task.init(seed) for seed in (1, 2)]

    def gradients(lift, params, key):
        params = {entry: value.clone() for entry, value in params.items()}
        weights = [entry for entry in params if not task.is_statistic(entry)]
        for entry in weights:
            params[entry].requires_grad_()
        batch = batch_of(x, train=True)
        lift(lambda own, key: task.logits(own, batch._replace(key=key)).square().sum())(
            params, key
        ).sum().backward()
        return {n: value.grad if n in weights else value for n, value in params.items()}

    with ambient.stacked_experts(True):
        together = gradients(vmap, tree.stack(clients), KEYS)
    for number, own in enumerate(clients):
        alone = gradients(lambda loss: loss, own, KEYS[number])
        for entry, value in alone.items():
            # Float64, through 20 batch normalisations.
            atol = 1e-10 * max(1.0, float(value.abs().max()))
            torch.testing.assert_close(together[entry][number], value, rtol=1e-8, atol=atol)


# Random parts


def cropped(x, key=KEYS[0], layer=None):
    with ambient.dropout_key(key):
        return (layer or ResizedCrop())(x)


def test_a_resized_crop_is_torchvisions_of_a_rectangle_of_an_allowed_size():
    image = images(1, 1, 28, 28)
    # Sides before rounding are at most half a pixel longer, so these alone can have 90 % of 28^2.
    sizes = [
        (h, w) for h in range(1, 29) for w in range(1, 29) if (h + 0.5) * (w + 0.5) > 0.9 * 28**2
    ]
    resize = partial(vision.resized_crop, size=[28, 28], antialias=False)
    boxes = [(t, s, h, w) for h, w in sizes for t in range(29 - h) for s in range(29 - w)]
    windows = torch.cat([resize(image, *box) for box in boxes]).flatten(1)
    found = cropped(image.expand(2000, -1, -1, -1)).flatten(1)
    gaps, which = torch.cdist(found, windows, p=float("inf")).min(1)
    assert gaps.max() < 1e-12  # float64
    seen = [boxes[i] for i in which]
    assert {box[2:] for box in seen} == set(sizes)
    assert {box for box in seen if box[2:] in ((27, 27), (26, 28))} == {
        box for box in boxes if box[2:] in ((27, 27), (26, 28))
    }


def test_where_no_rectangle_fits_the_whole_image_is_seen():
    x = images(4, 3, 12, 12)
    torch.testing.assert_close(cropped(x, layer=ResizedCrop((1.5, 2.0))), x)
    assert ResizedCrop((0.2, 0.3)).eval()(x) is x


def test_a_small_part_keeps_to_its_range_of_areas_and_ratios():
    # On a ramp, the steps between neighbours in the middle are the length of the part over all.
    side = 40
    ramp = torch.arange(side, dtype=torch.float64)
    ramps = torch.stack([ramp[:, None].expand(-1, side), ramp.expand(side, -1)])
    y = cropped(ramps.expand(3000, -1, -1, -1), layer=ResizedCrop((0.2, 0.3), (0.5, 2.0)))
    height = side * (y[:, 0, 21, 20] - y[:, 0, 20, 20])
    width = side * (y[:, 1, 20, 21] - y[:, 1, 20, 20])
    torch.testing.assert_close(height, height.round())
    area, ratio = height * width / side**2, width / height
    assert 0.18 < area.min() < 0.21 and 0.29 < area.max() < 0.32  # sides are rounded
    assert 0.48 < ratio.min() < 0.55 and 1.8 < ratio.max() < 2.1
    assert abs((ratio > 1).double().mean() - 0.5) < 0.05  # uniform in its logarithm


def test_parts_depend_on_the_key_alone_and_batch_over_clients():
    x = images(5, 2, 28, 28)
    with ambient.expert(3):
        of_expert = cropped(x)
    assert torch.equal(of_expert, cropped(x))
    assert not torch.allclose(cropped(x, KEYS[1]), of_expert)
    together = vmap(lambda key: cropped(x, key))(KEYS)
    torch.testing.assert_close(together, torch.stack([cropped(x, key) for key in KEYS]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"area": (0.0, 1.0)}, r"area must be a positive range, got \(0.0, 1.0\)"),
        ({"area": (1.1, 0.9)}, "area must be a positive range"),
        ({"ratio": (1.1, 2.0)}, r"ratio must be a positive range about 1, got \(1.1, 2.0\)"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        ResizedCrop(**params)
