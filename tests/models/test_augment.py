"""Layers that change images in training."""

from functools import partial

import pytest
import torch
from torchvision.transforms import functional as vision

from fedlib import streams
from fedlib.engine import ambient
from fedlib.errors import ConfigError
from fedlib.models.layers import augment
from fedlib.models.layers.augment import CropFlip
from fedlib.models.layers.resized_crop import ResizedCrop

KEYS = torch.from_numpy(streams.keys(4, 0, "test") >> 1)


def images(count, channels=3, side=32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, side, side, dtype=torch.float64, generator=draw)


def changed(layer, x, key=KEYS[0]):
    with ambient.dropout_key(key):
        return layer(x)


# Single layers


def test_a_crop_without_mirrors_is_a_window_of_the_image():
    x = images(200, side=12)
    crops = changed(CropFlip(pad=2, flip=False), x)[:, :, 2:10, 2:10]  # without padding
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
    mirror, erase, crop = augment.distortions(True)
    assert (mirror.pad, mirror.flip) == (0, True)
    assert isinstance(erase, augment.Erase)
    assert (crop.pad, crop.flip) == (4, False)
    assert augment.distortions(False) == []


def test_a_cutout_is_a_square_that_a_border_may_cut():
    gone = (changed(augment.Cutout(), 1 + images(2000)) == 0)[:, 0]
    rows, columns = gone.any(2), gone.any(1)
    assert torch.equal(gone, rows[:, :, None] & columns[:, None])
    for hits in (rows, columns):
        # A centre among 32 places; the square reaches 8 pixels back and 7 ahead of it.
        whole = {(max(c - 8, 0), min(c + 8, 32)) for c in range(32)}
        first, last = hits.int().argmax(1), 32 - hits.flip(1).int().argmax(1)
        assert set(zip(first.tolist(), last.tolist(), strict=True)) == whole
    with pytest.raises(ConfigError, match=r"hides all of \[8, 8\] pixels; take"):
        changed(augment.Cutout(), images(1, side=8))


@pytest.mark.parametrize("layer", [augment.Erase(), augment.Cutout()])
def test_all_experts_see_the_same_and_another_batch_sees_something_else(layer):
    x = images(5)
    with ambient.expert(3):
        assert torch.equal(changed(layer, x), changed(layer, x))
        other = changed(layer, x)
    assert torch.equal(changed(layer, x), other)
    assert not torch.allclose(changed(layer, x, KEYS[1]), other)


# Crops of random size


def test_a_resized_crop_is_torchvisions_of_a_rectangle_of_an_allowed_size():
    image = images(1, 1, 28)
    # Sides before rounding are at most half a pixel longer, so these alone can have 90 % of 28^2.
    sizes = [
        (h, w) for h in range(1, 29) for w in range(1, 29) if (h + 0.5) * (w + 0.5) > 0.9 * 28**2
    ]
    resize = partial(vision.resized_crop, size=[28, 28], antialias=False)
    boxes = [(t, s, h, w) for h, w in sizes for t in range(29 - h) for s in range(29 - w)]
    windows = torch.cat([resize(image, *box) for box in boxes]).flatten(1)
    found = changed(ResizedCrop(), image.expand(2000, -1, -1, -1)).flatten(1)
    gaps, which = torch.cdist(found, windows, p=float("inf")).min(1)
    assert gaps.max() < 1e-12  # float64
    seen = [boxes[i] for i in which]
    assert {box[2:] for box in seen} == set(sizes)
    assert {box for box in seen if box[2:] in ((27, 27), (26, 28))} == {
        box for box in boxes if box[2:] in ((27, 27), (26, 28))
    }


def test_where_no_rectangle_fits_the_whole_image_is_seen():
    x = images(4, side=12)
    layer = ResizedCrop()
    layer.area = 1.5, 2.0
    torch.testing.assert_close(changed(layer, x), x)
    assert ResizedCrop().eval()(x) is x
