"""Transformers: torch's layers as an oracle, published files, padding, executors."""

import math

import pytest
import safetensors.torch
import torch
from safetensors.torch import save_file
from support import batch_of
from torch import nn

from fedlib.engine.task import Task
from fedlib.errors import ConfigError
from fedlib.models import transformer
from fedlib.models.layers.random import Dropout

LAYOUTS = ("bert", "gpt2")
WIDTH, HEADS, LAYERS, WORDS, LONGEST, PAD = 8, 2, 2, 30, 7, 0
TINY = {
    f"tiny-{layout}": transformer.Size(layout, LAYERS, WIDTH, HEADS, WORDS, LONGEST, PAD)
    for layout in LAYOUTS
}
# Float64 keeps 16 digits; a few thousand operations in another order cost four.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}
POOLED = [(layout, pool) for layout, pools in transformer.POOLS.items() for pool in pools]
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Two more sizes."""
    for name, size in TINY.items():
        monkeypatch.setitem(transformer.SIZES, name, size)


def task_of(layout, classes=3, dropout=0.0, pretrained=None, **options) -> Task:
    def build():
        return transformer.build(classes, f"tiny-{layout}", dropout=dropout, **options)

    return Task(build, dtype=torch.float64, pretrained=pretrained or {})


TEXTS = torch.tensor([[5, 3, 9, 2, 0, 0], [7, 1, 29, 4, 4, 8], [6, 0, 0, 0, 0, 0]])


# -- published files, and torch's layers ---------------------------------------------------------


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


def official(layout, seed=0) -> dict[str, torch.Tensor]:
    """A weight file of the published names and layouts, as small as the tiny size."""
    draw = torch.Generator().manual_seed(seed)

    def normal(name, shape):
        numbers = torch.randn(*shape, generator=draw, dtype=torch.float64) / math.sqrt(shape[-1])
        return numbers + name.endswith(SCALES)

    body, more = published(TINY[f"tiny-{layout}"])
    return {name: normal(name, shape) for name, shape in (body | more).items()}


# Of normalisations, which are near 1.
SCALES = (".gamma", "ln_1.weight", "ln_2.weight", "ln_f.weight")


def oracle(layout, weights, x) -> torch.Tensor:
    """The last hidden states by `torch.nn.TransformerEncoderLayer` -> [B, T, width]"""
    gpt2 = layout == "gpt2"
    w = {n.removeprefix("bert.").replace("gamma", "weight"): v for n, v in weights.items()}
    w = {n.replace("beta", "bias"): v for n, v in w.items()}
    if gpt2:
        hidden = w["wte.weight"][x] + w["wpe.weight"][: x.shape[1]]
    else:
        hidden = w["embeddings.word_embeddings.weight"][x]
        hidden = hidden + w["embeddings.position_embeddings.weight"][: x.shape[1]]
        hidden = hidden + w["embeddings.token_type_embeddings.weight"][0]
        hidden = norm(hidden, w, "embeddings.LayerNorm", 1e-12)
    for i in range(LAYERS):
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            4 * WIDTH,
            dropout=0.0,
            activation=(lambda a: nn.functional.gelu(a, approximate="tanh")) if gpt2 else "gelu",
            layer_norm_eps=1e-5 if gpt2 else 1e-12,
            batch_first=True,
            norm_first=gpt2,
        ).double()
        layer.load_state_dict(torch_names(layout, w, i))
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool() if gpt2 else None
        # Training mode, because evaluation takes a path that returns zeros for padding.
        hidden = layer.train()(hidden, src_mask=future, src_key_padding_mask=x == PAD)
    return norm(hidden, w, "ln_f", 1e-5) if gpt2 else hidden


def norm(x, w, name, eps):
    return nn.functional.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], eps)


def transposed(layout, x):
    """GPT-2's matrices multiply from the right."""
    return x.T if layout == "gpt2" and x.dim() == 2 else x


def torch_names(layout, w, i) -> dict[str, torch.Tensor]:
    """Parameters of one block under the names of torch's layer."""
    names = ("self_attn.out_proj", "linear1", "linear2", "norm1", "norm2")
    if layout == "gpt2":
        at, inputs = f"h.{i}.", ["attn.c_attn"]
        theirs = ("attn.c_proj", "mlp.c_fc", "mlp.c_proj", "ln_1", "ln_2")
    else:
        at = f"encoder.layer.{i}."
        inputs = [f"attention.self.{name}" for name in ("query", "key", "value")]
        theirs = ("attention.output.dense", "intermediate.dense", "output.dense")
        theirs += ("attention.output.LayerNorm", "output.LayerNorm")
    own = {}
    for kind in ("weight", "bias"):
        values = [transposed(layout, w[f"{at}{name}.{kind}"]) for name in inputs]
        own[f"self_attn.in_proj_{kind}"] = torch.cat(values)
        for to, name in zip(names, theirs, strict=True):
            own[f"{to}.{kind}"] = transposed(layout, w[f"{at}{name}.{kind}"])
    return own


@pytest.fixture
def files(tmp_path):
    """A published file of each layout."""
    for layout in LAYOUTS:
        save_file(official(layout), tmp_path / layout)
    return {layout: tmp_path / layout for layout in LAYOUTS}


@pytest.mark.parametrize(("layout", "pool"), POOLED)
def test_a_published_file_computes_what_torchs_layers_do(layout, pool, files):
    task = task_of(layout, pretrained=transformer.pretrained(files[layout]), pool=pool)
    body, head = task.split(task.init(0))
    found = task.features(body, batch_of(TEXTS))
    hidden, real = oracle(layout, official(layout), TEXTS), [4, 6, 1]
    for row, count, ours in zip(hidden, real, found, strict=True):
        expected = {"first": row[0], "mean": row[:count].mean(0)}[pool]
        if pool == "first":
            w = official(layout)
            dense = expected @ w["bert.pooler.dense.weight"].T + w["bert.pooler.dense.bias"]
            expected = dense.tanh()
        torch.testing.assert_close(ours, expected, **CLOSE)


def test_a_file_of_something_else_is_refused(tmp_path):
    save_file({"conv1.weight": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(ConfigError, match=r"neither BERT's nor GPT-2's .* \['conv1.weight'\]"):
        transformer.pretrained(tmp_path / "other")


def test_a_file_of_another_size_is_refused(files):
    with pytest.raises(ValueError, match="parameters .*body.words.weight.* not in the model"):
        task_of("bert", pretrained=transformer.pretrained(files["bert"]), vocabulary=WORDS + 1)


# -- padding and order -----------------------------------------------------------------------


@every_layout
def test_padding_tells_the_model_nothing(layout):
    short, padded = torch.tensor([[5, 3, 9]]), torch.tensor([[5, 3, 9, 0, 0, 0]])
    for pool in transformer.POOLS[layout]:
        task = task_of(layout, pool=pool)
        params = task.init(0)
        found = [task.logits(params, batch_of(texts)) for texts in (padded, short)]
        torch.testing.assert_close(*found, **CLOSE)


def test_padding_may_be_on_the_left():
    # What is first is so of the real tokens; positions count from the left all the same.
    first, mean = (task_of("bert", pool=pool) for pool in transformer.POOLS["bert"])
    body, _ = mean.split(mean.init(0))
    one = [task.features(body, batch_of(torch.tensor([[0, 0, 5]]))) for task in (first, mean)]
    weight, bias = body["body.pooler.weight"], body["body.pooler.bias"]
    torch.testing.assert_close(one[0], (one[1] @ weight.T + bias).tanh(), **CLOSE)


@every_layout
def test_a_text_of_nothing_but_padding_still_has_numbers(layout):
    task = task_of(layout)
    assert task.logits(task.init(0), batch_of(torch.tensor([[0, 0, 0]]))).isfinite().all()


# -- dropout, drawing, cost -------------------------------------------------------------------


@every_layout
def test_no_two_dropout_layers_draw_the_same_mask(layout):
    layers = [m for m in transformer.build(3, f"tiny-{layout}").modules() if isinstance(m, Dropout)]
    # The head's, the embedding's; of each block those of attention, and of both sums.
    assert len({layer.salt for layer in layers}) == len(layers) == 2 + 3 * LAYERS


def test_gpt2_begins_with_smaller_branches():
    module = transformer.build(3, "gpt2-lite")
    # Deviation of a deviation of n numbers: 1 / sqrt(2 n); of 64 x 64 that is 1.1 percent.
    for layer, expected in (
        (module.body.blocks[0].mlp[0], 0.02),
        (module.body.blocks[1].attention.combine, 0.02 / math.sqrt(2 * 2)),
        (module.body.blocks[1].mlp[2], 0.02 / math.sqrt(2 * 2)),
    ):
        assert layer.weight.std().item() == pytest.approx(expected, rel=0.06)
        assert not layer.bias.any()


# -- executors --------------------------------------------------------------------------------


def test_a_text_longer_than_the_positions_is_refused():
    task = task_of("bert", max_length=4)
    with pytest.raises(ConfigError, match="texts have 6 tokens, the model takes 4; raise its max_"):
        task.logits(task.init(0), batch_of(TEXTS))


@every_layout
def test_a_published_file_has_all_of_the_body_and_nothing_of_the_head(layout, files):
    found = transformer.pretrained(files[layout])
    task = task_of(layout, pretrained=found)
    body, head = task.split(task.init(0))
    assert body.keys() == found.keys() and not head.keys() & found.keys()
    assert all(torch.equal(body[name], x) for name, x in found.items())


# -- the published files -----------------------------------------------------------------------


SIZES = ("bert-base", "gpt2", "gpt2-medium")
PUBLISHED = {size: f"{size.replace('-', '_')}_weights" for size in SIZES}


@pytest.mark.slow  # the first draw on the meta device imports half of torch
@pytest.mark.parametrize("size", PUBLISHED)
def test_the_published_names_and_shapes_are_those_of_the_whole_model(size, monkeypatch, tmp_path):
    body, more = published(transformer.SIZES[size])
    with torch.device("meta"):
        weights = {name: torch.empty(shape) for name, shape in (body | more).items()}
        module = transformer.build(5, size)
    monkeypatch.setattr(safetensors.torch, "load_file", lambda file: weights)
    found = transformer.pretrained(tmp_path)
    ours = {f"body.{name}": x.shape for name, x in module.body.named_parameters()}
    assert {name: x.shape for name, x in found.items()} == ours
