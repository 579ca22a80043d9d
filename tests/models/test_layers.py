"""Dropout masks and random crops: pure functions of the batch's key that look like chance."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from fedlib import streams
from fedlib.engine import ambient
from fedlib.engine.experts import each_expert
from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.conv import Dropout2d
from fedlib.models.layers.fast import Depthwise, Pointwise
from fedlib.models.layers.random import Dropout, gaussian

SHAPE = torch.Size([200, 50])
SIGMAS = 5  # true chance goes beyond in one of two million comparisons
KEYS = torch.from_numpy(streams.keys(3, 0, "test") >> 1)


def mask(key, p=0.5, salt=0, expert=0, shape=SHAPE):
    """Which values are kept."""
    with ambient.dropout_key(torch.as_tensor(key)), ambient.expert(expert):
        return Dropout(p, salt)(torch.ones(shape, dtype=torch.float64)) != 0


def assert_independent(a, b, p):
    """The mean product of n pairs of centred values has deviation p (1 - p) / sqrt(n)."""
    product = ((a.double() - (1 - p)) * (b.double() - (1 - p))).mean()
    assert abs(product) < SIGMAS * p * (1 - p) / a.numel() ** 0.5


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("key", KEYS.tolist())
def test_a_mask_keeps_about_the_declared_share(p, key):
    # The number kept is binomial(n, 1 - p): deviation of the share sqrt(p (1 - p) / n).
    kept = mask(key, p).double().mean()
    assert abs(kept - (1 - p)) < SIGMAS * (p * (1 - p) / SHAPE.numel()) ** 0.5


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_masks_of_other_keys_salts_and_experts_are_independent(p):
    masks = [mask(key, p) for key in KEYS]
    masks += [mask(KEYS[0], p, salt=salt) for salt in (1, 2)]
    masks += [mask(KEYS[0], p, expert=expert) for expert in (1, 2, 100)]
    masks += [mask(KEYS[0], p, salt=1, expert=1), mask(KEYS[0] ^ (1 << 32), p)]
    for a, b in itertools.permutations([m.flatten() for m in masks], 2):
        for lag in (0, 1, 2, 3):  # neither place by place, nor is one the other shifted
            assert_independent(a[lag:], b[: len(b) - lag], p)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_values_of_one_mask_are_independent(p):
    kept = mask(KEYS[0], p)
    for lag in (1, 2, 32):
        flat = kept.flatten()
        assert_independent(flat[lag:], flat[:-lag], p)  # neighbours
        assert_independent(kept[lag:], kept[:-lag], p)  # the same feature of other examples


@pytest.mark.parametrize("kind", [Dropout, Dropout2d])
def test_a_layer_that_is_used_again_draws_another_mask(kind):
    layer, x = kind(0.5), torch.ones(200, 50, 1)
    with ambient.dropout_key(KEYS[0]):
        first, second = layer(x) != 0, layer(x) != 0
        third = kind(0.5, salt=1 << 16)(x) != 0  # the salt of crops
    with ambient.dropout_key(KEYS[0]):
        assert torch.equal(layer(x) != 0, first)
    assert_independent(first, second, 0.5)
    assert_independent(second, third, 0.5)


@pytest.mark.parametrize("layer", [Dropout(0.5), CropFlip()])
def test_a_random_layer_outside_a_batch_says_what_is_missing(layer):
    with pytest.raises(RuntimeError, match="random layers need the batch's key: call the model th"):
        layer(torch.ones(3, 1, 2, 2))


# -- normal numbers -----------------------------------------------------------------------


def test_gaussian_numbers_are_normal():
    values = torch.stack([gaussian(key, SHAPE, torch.device("cpu")) for key in KEYS])
    count = values.numel()
    for bound in (-2.0, -1.0, 0.0, 0.5, 1.5, 2.5):
        share = (1 + math.erf(bound / math.sqrt(2))) / 2
        deviation = (share * (1 - share) / count) ** 0.5
        assert abs((values < bound).double().mean() - share) < SIGMAS * deviation
    flat = values.flatten()
    for lag in (1, 2, 50):  # the product of two has mean 0 and variance 1
        assert abs((flat[lag:] * flat[:-lag]).mean()) < SIGMAS / (count - lag) ** 0.5


# -- random crops and flips ---------------------------------------------------------------

PAD = 2


def pictures(count, channels=3, height=5, width=7):
    """Images in which no two pixels are the same and none is 0."""
    numbers = torch.arange(1, 1 + count * channels * height * width, dtype=torch.float64)
    return numbers.reshape(count, channels, height, width)


def augmented(x, key=KEYS[0], expert=0, pad=PAD):
    with ambient.dropout_key(key), ambient.expert(expert):
        return CropFlip(pad)(x)


def choices(x, found, pad=PAD):
    """(rows skipped, columns skipped, mirrored) of every image; an error if there are none."""
    where = []
    for image, seen in zip(x.numpy(), found.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
        _, height, width = image.shape
        fits = []
        for top, left in itertools.product(range(2 * pad + 1), repeat=2):
            cut = padded[:, top : top + height, left : left + width]
            fits += [(top, left, 0)] if np.array_equal(seen, cut) else []
            fits += [(top, left, 1)] if np.array_equal(seen, cut[:, :, ::-1]) else []
        assert len(fits) == 1
        where += fits
    return np.array(where)


@pytest.mark.parametrize("pad", [0, 1, PAD])
def test_an_augmented_image_is_a_crop_of_the_padded_one_that_may_be_mirrored(pad):
    count, shifts = 600, 2 * pad + 1
    x = pictures(count)
    where = choices(x, augmented(x, pad=pad), pad)
    # Binomial counts: every shift of either direction, every pair of shifts, and flips.
    for column, ways in ((0, shifts), (1, shifts), (2, 2)):
        for value in range(ways):
            deviation = (count / ways * (1 - 1 / ways)) ** 0.5
            assert abs(np.sum(where[:, column] == value) - count / ways) <= SIGMAS * deviation
    # Of 600 images the chance that some pair of 25 has none is 25 * 0.96^600 = 6e-10.
    assert len(np.unique(where[:, :2], axis=0)) == shifts**2


def test_all_experts_see_the_same_pictures():
    x = pictures(20)
    assert torch.equal(augmented(x, expert=1), augmented(x))
    scales = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    expected = augmented(x).unsqueeze(1) * scales[:, None, None, None]
    for stacked in (False, True):
        with ambient.dropout_key(KEYS[0]), ambient.stack_experts(stacked):
            seen = each_expert(lambda scale: CropFlip(PAD)(scale * x), scales)
        assert torch.equal(seen, expected)


# -- convolutions -------------------------------------------------------------------------


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def twins(layer):
    """(ours, torch's) with the same weights."""
    if layer == "pointwise":
        theirs = nn.Conv2d(4, 6, 1, bias=False).double()
        return Pointwise(theirs.weight), theirs
    stride = int(layer[-1])
    theirs = nn.Conv2d(4, 4, 3, stride, padding=1, groups=4, bias=False).double()
    return Depthwise(theirs.weight, stride), theirs


LAYERS = ["pointwise", "depthwise 1", "depthwise 2"]
SIDES = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 3), (4, 4), (5, 2)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("side", SIDES)
def test_a_convolution_is_torchs_with_its_first_and_second_gradients(layer, side):
    ours, theirs = twins(layer)
    x = normal(3, 4, *side).requires_grad_()
    found = []
    for module in (ours, theirs):
        inputs = (x, module.weight)
        y = module(x)
        first = torch.autograd.grad(y.pow(3).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        found.append((y, *first, *second))
    # Sums of some hundred products of float64 numbers of size 1e3.
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-9)
