"""Dropout masks: a pure function of the batch's key that looks like chance."""

import itertools

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedlib import context, streams
from fedlib.mixture import each_expert
from fedlib.models.layers import Depthwise, Dropout, Pointwise, ReLU6, uniform_bits

SHAPE = torch.Size([200, 50])
SIGMAS = 5  # true chance goes beyond in one of two million comparisons
KEYS = torch.from_numpy(streams.keys(3, 0, "test") >> 1)


def mask(key, p=0.5, salt=0, expert=0, shape=SHAPE):
    """Which values are kept."""
    with context.dropout_key(torch.as_tensor(key)), context.expert(expert):
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


def test_what_is_kept_is_scaled_so_that_the_mean_stays():
    x = torch.linspace(-1, 2, 1000, dtype=torch.float64)
    with context.dropout_key(KEYS[0]):
        dropped = Dropout(0.2)(x)
    kept = dropped != 0
    assert torch.equal(dropped[kept], x[kept] / (1 - 0.2))


def test_a_mask_is_the_same_for_the_same_key_whatever_the_global_generator():
    first = mask(KEYS[0])
    torch.manual_seed(1)
    assert torch.equal(mask(KEYS[0]), first)
    before = torch.get_rng_state()
    mask(KEYS[1])
    assert torch.equal(torch.get_rng_state(), before)


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


def test_every_bit_is_set_half_the_time():
    bits = uniform_bits(KEYS[0], SHAPE, torch.device("cpu"))
    assert 0 <= int(bits.min()) and int(bits.max()) < 2**32
    shares = torch.stack([(bits >> bit & 1).double().mean() for bit in range(32)])
    assert (shares - 0.5).abs().max() < SIGMAS * 0.5 / SHAPE.numel() ** 0.5


def test_expert_0_has_the_masks_of_a_single_model():
    assert torch.equal(mask(KEYS[0], expert=0), mask(KEYS[0]))


@pytest.mark.parametrize("layer", [Dropout(0.5).eval(), Dropout(0.0)])
def test_evaluation_and_a_share_of_zero_change_nothing_and_need_no_key(layer):
    x = torch.randn(3, 4)
    assert layer(x) is x


def test_batched_keys_give_the_masks_of_each_key():
    def drop(key, x):
        with context.dropout_key(key):
            return Dropout(0.5)(x)

    x = torch.ones(len(KEYS), *SHAPE)
    batched = vmap(drop)(KEYS, x)
    assert torch.equal(batched, torch.stack([drop(*pair) for pair in zip(KEYS, x, strict=True)]))


def test_stacked_experts_get_the_masks_of_each_expert():
    scales = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def drop(scale):
        return scale * Dropout(0.5)(torch.ones(SHAPE, dtype=torch.float64))

    with context.dropout_key(KEYS[0]):
        one_by_one = each_expert(drop, scales)
        with context.stacked_experts(True):
            stacked = each_expert(drop, scales)
    assert torch.equal(stacked, one_by_one)
    for expert, scale in enumerate(scales):
        assert torch.equal(one_by_one[:, expert] != 0, mask(KEYS[0], expert=expert))
        assert one_by_one[:, expert].max() == 2 * scale


def test_a_model_with_dropout_outside_a_batch_says_what_is_missing():
    with pytest.raises(RuntimeError, match="dropout needs the batch's key: call the model through"):
        Dropout(0.5)(torch.ones(3))


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_a_share_outside_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match=rf"p must be in \[0, 1\), got {p}"):
        Dropout(p)


# -- convolutions -------------------------------------------------------------------------


def normal(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64)


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


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("side", SIDES)
def test_a_convolution_scales_and_shifts_its_channels(layer, side):
    ours, theirs = twins(layer)
    x, channels = normal(3, 4, *side), len(theirs.weight)
    scale, shift = normal(channels, seed=1), normal(channels, seed=2)
    expected = theirs(x) * scale[:, None, None] + shift[:, None, None]
    torch.testing.assert_close(ours(x, scale, shift), expected)


def test_relu6_is_torchs_also_where_it_bends():
    x = torch.tensor([-1.0, 0.0, 1e-300, 3.0, 6.0, 6.1], dtype=torch.float64, requires_grad=True)
    ours, theirs = ReLU6()(1 * x), nn.functional.relu6(x)
    assert torch.equal(ours, theirs)
    factors = torch.arange(1.0, 7.0, dtype=torch.float64)
    grads = [torch.autograd.grad((y * factors).sum(), x)[0] for y in (ours, theirs)]
    assert torch.equal(*grads)
