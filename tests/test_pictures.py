"""Layers that change images, and IFCA's own CNN, which has some of them. Sections:
fedlib/papers/adaptive_experts/README.md."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torchvision.transforms import functional as vision

from fedlib import streams
from fedlib.data.sources import cifar10
from fedlib.engine import ambient
from fedlib.engine.task import Batch, Task
from fedlib.errors import ConfigError
from fedlib.models import gate_cnn, ifca_cnn, ifca_original_cnn, leaf_cnn, pfedmoe_cnn, pfedmoe_gate
from fedlib.models.layers import augment
from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.initialise import convolution_weights

KEYS = torch.from_numpy(streams.keys(4, 0, "test") >> 1)
SMALL = {"conv1": 12, "conv2": 11, "hidden1": 7, "hidden2": 8}
ORIGINAL = partial(ifca_original_cnn.build, 10, **SMALL)
LEAF = {"conv1": 4, "conv2": 3, "hidden": 6, "dropout": 0.5}
AUGMENTED = {
    "leaf": partial(leaf_cnn.build, 10, **LEAF),
    "gate": partial(gate_cnn.build, 3, **LEAF),
    "ifca": partial(ifca_cnn.build, 10, 0.5, **SMALL),
    "pfedmoe": partial(pfedmoe_cnn.build, 10, channels=(4, 3), hidden=(6, 5)),
    "pfedmoe_gate": partial(pfedmoe_gate.build, 2, hidden=4, input_norm="none"),
}

CHAINS = {False: augment.augmented, True: augment.erased}  # of Adaptive Experts, of pFedMoE


def images(count, side=32, seed=0):
    return torch.rand(
        count, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def changed(layer, x, key=KEYS[0]):
    with ambient.dropout_key(key):
        return layer(x)


def batch_of(x, key=KEYS[0], train=False):
    return Batch(x, torch.zeros(len(x)), torch.arange(len(x)), key=key, train=train)


# Single layers


def test_a_crop_is_a_window_of_the_image_or_of_its_mirror_image_and_all_are_drawn():
    x = images(3000, side=12)
    crops = changed(nn.Sequential(CropFlip(pad=2), augment.Centre(8)), x)
    found = set()
    for image, crop in zip(x, crops, strict=True):
        for mirrored in (False, True):
            windows = (image.flip(-1) if mirrored else image).unfold(1, 8, 1).unfold(2, 8, 1)
            same = (windows == crop[:, None, None]).all(-1).all(-1).all(0).nonzero().tolist()
            found |= {(mirrored, *place) for place in same}
            if same:
                break
        else:
            pytest.fail("no window of the image")
    assert len(found) == 2 * 5 * 5  # 12 - 8 + 1 places in either direction
    middle = nn.Sequential(CropFlip(pad=2), augment.Centre(8)).eval()(x)
    assert torch.equal(middle, x[:, :, 2:10, 2:10])


def test_a_crop_without_mirrors_is_a_window_of_the_image():
    x = images(200, side=12)
    crops = changed(nn.Sequential(CropFlip(pad=2, flip=False), augment.Centre(8)), x)
    windows = x.unfold(2, 8, 1).unfold(3, 8, 1)  # [B, 3, 5, 5, 8, 8]
    same = (windows == crops[:, :, None, None]).all(-1).all(-1).all(1)
    assert (same.flatten(1).sum(1) == 1).all()


def test_erasing_takes_a_rectangle_of_the_declared_sizes_from_its_share_of_the_images():
    x = 1 + images(2000)
    gone = changed(augment.Erase(), x) == 0
    assert torch.equal(gone.all(1), gone.any(1))  # of all channels
    gone = gone[:, 0]
    hit = gone.flatten(1).any(1)
    assert abs(hit.double().mean() - 0.5) < 5 * (0.25 / len(x)) ** 0.5
    rows, columns = gone[hit].any(2), gone[hit].any(1)
    height, width = rows.sum(1).double(), columns.sum(1).double()
    # A rectangle: everything where both a row and a column are hit, and those without a gap.
    assert torch.equal(gone[hit], rows[:, :, None] & columns[:, None])
    for hits, size in ((rows, height), (columns, width)):
        first, last = hits.int().argmax(1), 31 - hits.flip(1).int().argmax(1)
        assert torch.equal((last - first + 1).double(), size)
    area, ratio = height * width / 32**2, height / width
    assert 0.03 < area.min() < 0.05 and 0.18 < area.max() < 0.22  # sides are rounded
    assert 0.4 < ratio.min() < 0.6 and 1.7 < ratio.max() < 2.4
    assert (ratio > 1).double().mean().sub(0.5).abs() < 0.08  # uniform in its logarithm


def test_images_of_pfedmoe_are_mirrored_then_erased_then_moved():
    # Only so can the padding of a crop cover what was erased, and never the other way round.
    mirror, erase, crop = augment.erased(True)
    assert (mirror.pad, mirror.flip) == (0, True)
    assert (erase.share, erase.area) == (0.5, (0.04, 0.2))
    assert (crop.pad, crop.flip) == (4, False)
    assert augment.erased(False) == []


def test_a_cutout_is_a_square_that_a_border_may_cut():
    x = 1 + images(2000)
    gone = (changed(augment.Cutout(16), x) == 0)[:, 0]
    rows, columns = gone.any(2), gone.any(1)
    assert torch.equal(gone, rows[:, :, None] & columns[:, None])
    for hits in (rows, columns):
        # A centre among 32 places; the square reaches 8 pixels back and 7 ahead of it.
        whole = {(max(c - 8, 0), min(c + 8, 32)) for c in range(32)}
        first, last = hits.int().argmax(1), 32 - hits.flip(1).int().argmax(1)
        assert set(zip(first.tolist(), last.tolist(), strict=True)) == whole


@pytest.mark.parametrize(
    "layer, params, message",
    [
        (augment.Erase, {"share": 1.5}, r"share must be in \[0, 1\], got 1.5"),
        (augment.Erase, {"area": (0.2, 0.1)}, "area and ratio must be positive ranges"),
        (augment.Erase, {"area": (0.1, 0.6)}, "need not fit an image"),
        (augment.Cutout, {"side": 0}, "side must be at least 1, got 0"),
    ],
)
def test_a_layer_that_makes_no_sense_is_refused(layer, params, message):
    with pytest.raises(ValueError, match=message):
        layer(**params)


def test_contrast_stretches_every_image_about_the_means_of_its_channels():
    x = images(200)
    layer = augment.Contrast(0.2, 1.8)
    after = changed(layer, x)
    mean = x.mean((2, 3), keepdim=True)
    factors = ((after - mean) / (x - mean)).flatten(1)
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors), rtol=1e-6, atol=1e-9)
    assert 0.2 < factors.min() < 0.3 and 1.7 < factors.max() < 1.8
    assert layer.eval()(x) is x


def test_standardising_takes_away_what_brightness_adds():
    x = images(4)
    after = augment.Standardise()(x).flatten(1)
    torch.testing.assert_close(after.mean(1), torch.zeros(4).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(after.std(1, correction=0), torch.ones(4).double())
    torch.testing.assert_close(augment.Standardise()(x + 63).flatten(1), after)
    assert not augment.Standardise()(torch.ones(2, 3, 4, 4)).any()


def test_colours_are_those_of_torchvision_with_the_same_factors():
    x, strength = images(8), 0.4
    mean, std = (torch.tensor(v).double()[:, None, None] for v in (augment.MEAN, augment.STD))
    after = changed(augment.ColourJitter(strength), (x - mean) / std) * std + mean
    with ambient.dropout_key(KEYS[0]):
        drawn = augment.uniform(augment._JITTER, (8, 4), x)
    assert (drawn > 0).all() and (drawn < 1).all() and len(drawn.unique()) == 32
    for image, result, share in zip(x, after, drawn.tolist(), strict=True):
        bright, contrast, colour, hue = (2 * strength * (s - 0.5) for s in share)
        expected = vision.adjust_brightness(image, 1 + bright)
        expected = vision.adjust_contrast(expected, 1 + contrast)
        expected = vision.adjust_saturation(expected, 1 + colour)
        # Torchvision's hue goes through sixths of the circle in single steps.
        torch.testing.assert_close(result, vision.adjust_hue(expected, hue), rtol=0, atol=1e-6)


def test_grey_has_no_hue_and_none_is_changed_in_evaluation():
    x = torch.full((1, 3, 2, 2), 0.3).double()
    torch.testing.assert_close(augment.turn(x, torch.full((1, 1, 1), 0.3).double()), x)
    assert augment.ColourJitter().eval()(x) is x
    with pytest.raises(ValueError, match=r"strength must be in \[0, 0.5\], got 0.6"):
        augment.ColourJitter(0.6)


def test_colours_are_scaled_as_the_images_of_cifar10_are():
    assert (augment.MEAN, augment.STD) == cifar10.SCALINGS["measured"]


@pytest.mark.parametrize(
    "layer",
    [augment.ColourJitter(), augment.Contrast(0.2, 1.8), augment.Erase(), augment.Cutout()],
)
def test_all_experts_see_the_same_and_another_batch_sees_something_else(layer):
    x = images(5)
    with ambient.expert(3):
        assert torch.equal(changed(layer, x), changed(layer, x))
        other = changed(layer, x)
    assert torch.equal(changed(layer, x), other)
    assert not torch.allclose(changed(layer, x, KEYS[1]), other)


# Switches of the networks


@pytest.mark.parametrize("name", AUGMENTED)
def test_images_are_changed_in_training_alone_and_only_if_asked_for(name):
    plain, changing = Task(AUGMENTED[name]), Task(partial(AUGMENTED[name], augment=True))
    params, named = plain.init(0), changing.init(0)
    assert all(map(torch.equal, params.values(), named.values()))  # the same, some layers later
    x = images(6).float()
    assert torch.equal(plain.logits(params, batch_of(x)), changing.logits(named, batch_of(x)))
    layers = [type(layer) for layer in CHAINS[name.startswith("pfedmoe")](True)]
    body = [type(layer) for layer in changing._training.body]
    assert body[: len(layers)] == layers
    assert not set(layers) & {type(layer) for layer in plain._training.modules()}


# IFCA's own network


def test_ifcas_own_network_has_the_number_of_parameters_of_the_specification():
    # 24 -> 12 -> 6 pixels a side; section 5.5.
    terms = [5 * 5 * 3 * 64 + 64, 5 * 5 * 64 * 64 + 64]
    terms += [64 * 6 * 6 * 384 + 384, 384 * 192 + 192, 192 * 10 + 10]
    module = ifca_original_cnn.build(10)
    assert sum(p.numel() for p in module.parameters()) == sum(terms) == 1_068_298


def same_pool(x):
    """TensorFlow's SAME: of an even side, one more row and column, at the end."""
    padded = nn.functional.pad(x, (0, 1, 0, 1), value=-torch.inf)
    return nn.functional.max_pool2d(padded, 3, 2)


def test_ifcas_own_network_computes_what_torchs_layers_do_in_the_published_order():
    task, x = Task(ORIGINAL, dtype=torch.float64), images(5)
    params = task.init(0)
    conv1, b1, conv2, b2, full1, b3, full2, b4, last, b5 = params.values()
    norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)
    flat = x[:, :, 4:28, 4:28].flatten(1)
    z = (flat - flat.mean(1, keepdim=True)) / flat.std(1, correction=0, keepdim=True)
    z = nn.functional.conv2d(z.unflatten(1, (3, 24, 24)), conv1, b1, padding=2).relu()
    z = norm(same_pool(z))
    z = same_pool(norm(nn.functional.conv2d(z, conv2, b2, padding=2).relu()))
    assert z.shape == (5, 11, 6, 6)
    z = (z.flatten(1) @ full1.T + b3).relu()
    z = (z @ full2.T + b4).relu() @ last.T + b5
    torch.testing.assert_close(task.logits(params, batch_of(x)), z)


def test_ifcas_own_network_draws_normal_numbers_within_two_deviations():
    module = ifca_original_cnn.build(10)
    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    wanted = [(0.05, 0.0), (0.05, 0.1), (0.04, 0.1), (0.04, 0.1), (1 / 192, 0.0)]
    for layer, (std, bias) in zip(layers, wanted, strict=True):
        assert layer.weight.abs().max() <= 2 * std
        # A normal distribution cut off at two deviations has one of 0.880; thousands of values.
        assert layer.weight.std().item() == pytest.approx(0.880 * std, rel=0.05)
        assert (layer.bias == bias).all()


def test_hidden_layers_are_pulled_to_zero_in_training():
    layer = ifca_original_cnn.DecayedLinear(4, 3, decay=0.5).double()
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def slopes(training):
        layer.train(training).zero_grad()
        layer(x).square().mean().backward()
        return layer.weight.grad.clone(), layer.bias.grad.clone()

    (trained, bias), (plain, same) = slopes(True), slopes(False)
    torch.testing.assert_close(trained, plain + 0.5 * layer.weight.detach())
    assert torch.equal(bias, same)


def test_clients_of_ifcas_own_network_in_one_batched_call_get_what_each_gets_alone():
    task = Task(ORIGINAL, dtype=torch.float64)
    clients = [task.init(seed) for seed in range(3)]
    x = images(12).unflatten(0, (3, 4))

    def gradient(params, x, key):
        batch = batch_of(x, key, train=True)
        return grad(lambda p: task.log_probs(p, batch)[:, 0].mean())(params)

    stacked = {name: torch.stack([c[name] for c in clients]) for name in clients[0]}
    with ambient.stacked_experts(True):  # as in the batched executor
        together = vmap(gradient)(stacked, x, KEYS[:3])
    for c, params in enumerate(clients):
        for name, value in gradient(params, x[c], KEYS[c]).items():
            torch.testing.assert_close(together[name][c], value)
    assert not torch.allclose(*(gradient(params, x[0], k)["head.0.bias"] for k in KEYS[:2]))


def test_clusters_of_ifcas_own_network_may_differ_in_their_convolutions_alone():
    assert convolution_weights(ORIGINAL) == {"body.4.weight", "body.8.weight"}


def test_images_too_small_for_a_crop_are_refused():
    with pytest.raises(ConfigError, match="side must be at least 24, got 20"):
        ifca_original_cnn.build(10, side=20)
    assert ifca_original_cnn.build(10, side=24).eval()(torch.zeros(1, 3, 24, 24)).shape == (1, 10)
