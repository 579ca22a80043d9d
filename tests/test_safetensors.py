"""The weight files of BERT and GPT-2 as they are published: safetensors, by name."""

import math

import pytest
import torch
from safetensors.torch import save
from test_transformer import LAYOUTS, official, tiny  # noqa: F401

from fedlib.data import downloads
from fedlib.engine.task import Task
from fedlib.errors import DataError
from fedlib.models import transformer

CUT = save({"a": torch.ones(9)})[:-1]


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04" + bytes(20), CUT], ids=["empty", "zip", "cut"]
)
def test_a_file_that_is_damaged_or_another_is_refused(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="a.safetensors is damaged, or not a safetensors file"):
        transformer.pretrained(tmp_path / "a.safetensors")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_file_has_all_of_the_body_and_nothing_of_the_head(layout, tmp_path):
    weights = {name: x.float() for name, x in official(layout).items()}
    (tmp_path / "model.safetensors").write_bytes(save(weights))
    found = transformer.pretrained(tmp_path / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
    pickled = transformer.pretrained(tmp_path / "pytorch_model.bin")
    assert found.keys() == pickled.keys()
    assert all(torch.equal(x, pickled[name]) for name, x in found.items())
    task = Task(lambda: transformer.build(3, f"tiny-{layout}"), pretrained=found)
    body, head = task.split(task.init(0))
    assert body.keys() == found.keys() and not head.keys() & found.keys()
    assert all(torch.equal(body[name], x) for name, x in found.items())


# -- the published files -----------------------------------------------------------------------


def block_of(layout: str, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the published weights of one block; a bias has the last number of its weight."""
    wide = 4 * width
    if layout == "gpt2":  # matrices multiply from the right, so it is [inputs, outputs]
        linear = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
        linear |= {"mlp.c_fc": (width, wide), "mlp.c_proj": (wide, width)}
        norms, ends = ("ln_1", "ln_2"), ("weight", "bias")
        biases = {f"{name}.bias": shape[1:] for name, shape in linear.items()}
    else:
        linear = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        linear |= {"attention.output.dense": (width, width)}
        linear |= {"intermediate.dense": (wide, width), "output.dense": (width, wide)}
        norms, ends = ("attention.output.LayerNorm", "output.LayerNorm"), ("gamma", "beta")
        biases = {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    weights = {f"{name}.weight": shape for name, shape in linear.items()}
    return weights | biases | {f"{name}.{end}": (width,) for name in norms for end in ends}


def published(size: transformer.Size) -> tuple[dict, dict]:
    """Shapes in the published file: what the model consists of, and what is for training alone."""
    width, words, longest = size.width, size.vocabulary, size.max_length
    body = {}
    if size.layout == "gpt2":
        own = {"wte.weight": (words, width), "wpe.weight": (longest, width)}
        own |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
        at, masks = "h.", {f"h.{i}.attn.bias" for i in range(size.num_layers)}
        more = {name: (1, 1, longest, longest) for name in masks}
    else:
        norm = "bert.embeddings.LayerNorm"
        own = {f"{norm}.gamma": (width,), f"{norm}.beta": (width,)}
        for name, rows in (("word", words), ("position", longest), ("token_type", 2)):
            own[f"bert.embeddings.{name}_embeddings.weight"] = (rows, width)
        own |= {"bert.pooler.dense.weight": (width, width), "bert.pooler.dense.bias": (width,)}
        guess, order = "cls.predictions", "cls.seq_relationship"
        more = {f"{guess}.bias": (words,), f"{guess}.transform.dense.weight": (width, width)}
        for name in ("dense.bias", "LayerNorm.gamma", "LayerNorm.beta"):
            more[f"{guess}.transform.{name}"] = (width,)
        more |= {f"{order}.weight": (2, width), f"{order}.bias": (2,)}
        at = "bert.encoder.layer."
    for i in range(size.num_layers):
        body |= {f"{at}{i}.{name}": s for name, s in block_of(size.layout, width).items()}
    return own | body, more


PUBLISHED = {
    "bert-base": "bert_base_weights",
    "gpt2": "gpt2_weights",
    "gpt2-medium": "gpt2_medium_weights",
}


@pytest.mark.slow  # the first draw on the meta device imports half of torch
@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_names_and_shapes_are_those_of_the_whole_model(size, monkeypatch, tmp_path):
    body, more = published(transformer.SIZES[size])
    with torch.device("meta"):
        weights = {name: torch.empty(shape) for name, shape in (body | more).items()}
        module = transformer.build(5, size)
    monkeypatch.setattr(transformer, "_safe", lambda file: weights)
    found = transformer.pretrained(tmp_path / "model.safetensors")
    ours = {f"body.{name}": x.shape for name, x in module.body.named_parameters()}
    assert {name: x.shape for name, x in found.items()} == ours


@pytest.mark.parametrize("size", PUBLISHED)
def test_a_published_file_is_as_large_as_its_tensors_and_their_header(size):
    (file,) = downloads.files(PUBLISHED[size]).values()
    body, more = published(transformer.SIZES[size])
    tensors = 4 * sum(map(math.prod, [*body.values(), *more.values()]))  # of float32
    # A name, a kind, a shape and a place take some hundred bytes.
    assert 50 < (file.size - tensors) / len(body | more) < 150
    assert len(file.sha256) == 64 and file.path == f"{PUBLISHED[size]}/model.safetensors"
