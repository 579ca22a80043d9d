"""Models of torchvision, small and without weights, beside a plain loop."""

import numpy as np
import pytest
import torch
from reference import fedavg
from support import EVERYTHING, seeded
from torchvision import models
from torchvision.models import convnext, resnet

import fedlib

SGD = fedlib.SGD(lr=1e-3, batch_size=4)
STILL = {"num_classes": 3, "dropout": 0.0}
SWIN = {"stochastic_depth_prob": 0.0, "num_classes": 3}
TINY = {"image_size": 32, "patch_size": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
BLOCK = convnext.CNBlockConfig
MODELS = {
    "resnet": lambda: models.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3),
    "mobilenet_v3": lambda: models.mobilenet_v3_small(**STILL),
    "vit": lambda: models.VisionTransformer(**TINY, mlp_dim=8, num_classes=3),
    "swin": lambda: models.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [2, 2], **SWIN),
    "convnext": lambda: models.ConvNeXt([BLOCK(8, 16, 1), BLOCK(16, None, 1)], **SWIN),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS if EVERYTHING else ("resnet", "vit", "swin"))
def test_a_model_of_torchvision_is_trained_as_in_a_plain_loop(name):
    build = seeded(MODELS[name])
    x, y = np.random.default_rng(0).normal(size=(32, 3, 32, 32)), np.arange(32) % 3
    x = x.astype(np.float32)
    pairs = [(x[:12], y[:12]), (x[12:20], y[12:20])], [(x[20:26], y[20:26]), (x[26:], y[26:])]
    federation = fedlib.Federation.from_arrays(*pairs, num_classes=3)
    found = fedlib.simulate(federation, build, local=SGD, rounds=1, progress=None)
    expected, network = fedavg(build, federation, SGD, 1), found.client_model(0).network
    trained = dict(network.named_parameters()) | dict(network.named_buffers())
    # Batch normalisation of maps of a pixel or four makes much of rounding.
    start, rounding = build().state_dict(), 1e-4 if name == "resnet" else 3e-6
    for entry, value in expected.state_dict().items():
        if value.is_floating_point():
            step = float((value - start[entry]).abs().max())
            torch.testing.assert_close(trained[entry], value, rtol=0, atol=1e-2 * step + rounding)
