"""Models of torchvision, timm and transformers, small and without weights, beside a plain loop."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from reference import fedavg
from torch import nn

import fedlib

SGD = fedlib.SGD(lr=1e-3, batch_size=4)
IMAGES = (3, 32, 32)


class Classifier(nn.Module):
    """A model of transformers, which returns several things."""

    def __init__(self, model: nn.Module, is_text: bool):
        super().__init__()
        self.model, self.is_text = model, is_text

    def forward(self, x):
        return self.model(x.long() if self.is_text else x).logits


def of_torchvision() -> dict[str, Callable]:
    from torchvision import models
    from torchvision.models import convnext, resnet

    block = convnext.CNBlockConfig
    still = {"num_classes": 3, "dropout": 0.0}
    swin = {"stochastic_depth_prob": 0.0, "num_classes": 3}
    tiny = {"image_size": 32, "patch_size": 8, "num_layers": 1, "num_heads": 2}
    return {
        "resnet": lambda: models.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3),
        "resnet with bottlenecks": lambda: models.ResNet(
            resnet.Bottleneck, [1, 1, 1, 1], num_classes=3, width_per_group=8
        ),
        "mobilenet_v3": lambda: models.mobilenet_v3_small(**still),
        "shufflenet": lambda: models.ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], num_classes=3),
        "densenet": lambda: models.DenseNet(4, (2, 2, 2, 2), 8, num_classes=3),
        "vit": lambda: models.VisionTransformer(**tiny, hidden_dim=8, mlp_dim=8, num_classes=3),
        "swin": lambda: models.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [2, 2], **swin),
        "convnext": lambda: models.ConvNeXt([block(8, 16, 1), block(16, None, 1)], **swin),
    }


def of_timm() -> dict[str, Callable]:
    timm = pytest.importorskip("timm")
    sized = {"img_size": 32}
    names = {
        **{f"test_{x}": {} for x in ("byobnet", "efficientnet", "efficientnet_gn", "resnet")},
        **{f"test_{x}": {} for x in ("convnext", "convnext2", "efficientnet_ln", "nfnet")},
        "test_mambaout": {},
        **{f"test_{x}": sized for x in ("vit", "vit2", "vit3", "vit4")},
    }
    return {
        name: lambda name=name, more=more: timm.create_model(name, num_classes=3, **more)
        for name, more in names.items()
    }


def of_transformers() -> dict[str, Callable]:
    transformers = pytest.importorskip("transformers")
    common = {"num_labels": 3, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    text = {**common, **still, "num_hidden_layers": 1, "vocab_size": 20}
    image = {**common, **still, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8}
    small = {"num_labels": 3, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    settings = {
        "Bert": text,
        "Roberta": {**text, "pad_token_id": 0},
        "Electra": {**text, "embedding_size": 8},
        "Albert": {**text, "embedding_size": 8},
        "ViT": image,
        "DeiT": image,
        "Dinov2": image,
        "ConvNext": small,
        "ResNet": {**small, "embedding_size": 8, "layer_type": "basic"},
    }

    def make(name: str) -> nn.Module:
        config = getattr(transformers, f"{name}Config")(**settings[name])
        kind = "Sequence" if "vocab_size" in settings[name] else "Image"
        model = getattr(transformers, f"{name}For{kind}Classification")(config)
        return Classifier(model, kind == "Sequence")

    return {name: lambda name=name: make(name) for name in settings}


LIBRARIES = {"torchvision": of_torchvision, "timm": of_timm, "transformers": of_transformers}


def inputs(make: Callable) -> np.ndarray:
    """Images, or tokens, with padding at the end."""
    draw = np.random.default_rng(0)
    if getattr(make(), "is_text", False):
        return draw.integers(1, 20, (32, 6)) * np.array([1, 1, 1, 1, 1, 0])
    return draw.normal(size=(32, *IMAGES)).astype(np.float32)


def compared(make: Callable) -> str:
    """ "" if a round gives the weights of a plain loop, or what is different."""

    def build() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return make()

    x, y = inputs(build), np.arange(32) % 3
    pairs = [(x[:12], y[:12]), (x[12:20], y[12:20])], [(x[20:26], y[20:26]), (x[26:], y[26:])]
    federation = fedlib.Federation.from_arrays(*pairs, num_classes=3)
    found = fedlib.simulate(federation, build, local=SGD, rounds=1, progress=None)
    expected, network = fedavg(build, federation, SGD, 1), found.client_model(0).network
    trained = dict(network.named_parameters()) | dict(network.named_buffers())
    start = build().state_dict()
    for name, value in expected.state_dict().items():
        step = (value - start[name]).abs().max()
        if value.is_floating_point() and (trained[name] - value).abs().max() > 1e-2 * step + 1e-4:
            return name
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_models_of_other_libraries_are_trained_as_in_a_plain_loop(library):
    models = LIBRARIES[library]()
    assert {name: compared(make) for name, make in models.items()} == dict.fromkeys(models, "")
