"""Transformers that classify texts: BERT's encoder and GPT-2's decoder.

    bert  words + positions + type 0, normalised; blocks that normalise after each sum; pooler
    gpt2  words + positions; blocks that normalise before each branch, and once at the end; causal

Attention is computed by matrix products, which can be batched over clients and counted. Dropout
draws from the batch's key. Padding is recognised by its token, and no query attends to it.

All texts of a batch have one length, and may be padded on either side. Positions count from the
first token of the row, padding included, as in the published models.

Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
  Understanding", NAACL 2019; A. Radford et al., "Language Models are Unsupervised Multitask
  Learners", 2019.
Official code: google-research/bert, modeling.py; openai/gpt-2, src/model.py. Names and layouts of
  the published files, which `pretrained` reads, are those of huggingface/transformers.
Deviation: only the first token type is used. GPT-2's classes come from a linear layer with a bias.
  Random weights of both are normal with deviation 0.02; in the code, BERT's are truncated at two
  deviations and GPT-2's positions have 0.01. That GPT-2's branches start smaller is of its paper.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.models.layers.random import Dropout

POOLS = {"bert": ("first", "mean"), "gpt2": ("mean",)}  # no token of GPT-2 sees those after it
TOKEN_TYPES = 2
STD = 0.02  # of initial weights


class Size(NamedTuple):
    """The size of a model, and its inputs."""

    layout: str  # "bert" or "gpt2"
    num_layers: int
    width: int
    num_heads: int
    vocabulary: int
    max_length: int  # tokens of a text, padding included
    pad: int  # GPT-2 has no padding token: texts are filled up with its end of text


SIZES = {
    "bert-base": Size("bert", 12, 768, 12, 30_522, 512, 0),
    "bert-lite": Size("bert", 2, 64, 4, 1000, 64, 0),
    "gpt2": Size("gpt2", 12, 768, 12, 50_257, 1024, 50_256),
    "gpt2-medium": Size("gpt2", 24, 1024, 16, 50_257, 1024, 50_256),
    "gpt2-lite": Size("gpt2", 2, 64, 4, 1000, 64, 0),
}


class Transformer(nn.Module):
    """Embedding, blocks and pooling | Dropout, Linear.

    Attributes:
      tokens: (size of the vocabulary, padding token) of its texts.
    """

    def __init__(self, num_classes: int, size: Size, pool: str, dropout: float):
        super().__init__()
        self.tokens = size.vocabulary, size.pad
        self.body = Body(size, pool, dropout)
        self.head = nn.Sequential(Dropout(dropout, salt=1), nn.Linear(size.width, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits: tokens [B, T] -> [B, L]"""
        return self.head(self.body(x))


class Body(nn.Module):
    """From the tokens of a text to a vector."""

    def __init__(self, size: Size, pool: str, dropout: float):
        super().__init__()
        self.pad, self.pool, self.causal = size.pad, pool, size.layout == "gpt2"
        eps = 1e-5 if self.causal else 1e-12
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.max_length, size.width)
        self.types = None if self.causal else nn.Embedding(TOKEN_TYPES, size.width)
        self.norm = nn.LayerNorm(size.width, eps)  # BERT: of the embedding; GPT-2: of the output
        self.dropout = Dropout(dropout, salt=2)
        self.blocks = nn.ModuleList(
            Block(size, dropout, eps, salt=3 + 3 * number) for number in range(size.num_layers)
        )
        self.pooler = None if self.causal else nn.Linear(size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, T] -> [B, width]"""
        real = x != self.pad
        visible = real[:, None, None, :]  # [B, 1, 1, T]: the keys to which a query may attend
        if self.causal:
            order = torch.arange(x.shape[1], device=x.device)
            visible = visible & (order <= order[:, None])
        hidden = self.embed(x)
        for block in self.blocks:
            hidden = block(hidden, visible)
        return self.pool_tokens(self.norm(hidden) if self.causal else hidden, real)

    def embed(self, x: Tensor) -> Tensor:
        """Input of the first block: [B, T] -> [B, T, width]

        Raises:
          ConfigError: for texts longer than the model's number of positions.
        """
        if x.shape[1] > self.positions.num_embeddings:
            raise ConfigError(
                f"texts have {x.shape[1]} tokens, the model takes {self.positions.num_embeddings}; "
                "raise its max_length or cut them"
            )
        hidden = self.words(x) + self.positions.weight[: x.shape[1]]
        if not self.causal:
            hidden = self.norm(hidden + self.types.weight[0])
        return self.dropout(hidden)

    def pool_tokens(self, hidden: Tensor, real: Tensor) -> Tensor:
        """A vector for each text, from its tokens [B, T, width] and a mask of the real ones."""
        if self.pool == "mean":
            mask = real[..., None].to(hidden.dtype)
            return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        place = real.byte().argmax(1)  # works with padding on either side
        hidden = hidden.gather(1, place[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]
        return self.pooler(hidden).tanh()


class Block(nn.Module):
    """Attention, then two layers; each is added to its input, and both have dropout."""

    def __init__(self, size: Size, dropout: float, eps: float, salt: int):
        super().__init__()
        width = size.width
        self.first = size.layout == "gpt2"  # normalise the input, not the sum
        self.attention = Attention(width, size.num_heads, dropout, salt)
        self.attention_norm = nn.LayerNorm(width, eps)
        gelu = nn.GELU(approximate="tanh" if self.first else "none")
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))
        self.mlp_norm = nn.LayerNorm(width, eps)
        self.attention_dropout = Dropout(dropout, salt + 1)
        self.mlp_dropout = Dropout(dropout, salt + 2)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """[B, T, width] -> [B, T, width]"""
        if self.first:
            x = x + self.attention_dropout(self.attention(self.attention_norm(x), visible))
            return x + self.mlp_dropout(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x + self.attention_dropout(self.attention(x, visible)))
        return self.mlp_norm(x + self.mlp_dropout(self.mlp(x)))


class Attention(nn.Module):
    """Scaled dot products of several heads.

    Attributes:
      project: queries, keys and values of all heads, in this order.
      combine: the heads' results.
    """

    def __init__(self, width: int, num_heads: int, dropout: float, salt: int):
        super().__init__()
        self.num_heads = num_heads
        self.project = nn.Linear(width, 3 * width)
        self.combine = nn.Linear(width, width)
        self.dropout = Dropout(dropout, salt)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """[B, T, width]; `visible` [B, 1, T or 1, T] says which keys each query may attend to"""
        heads = self.project(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind()  # [B, heads, T, width / heads] each
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        # Not minus infinity, which would give NaN for a query without keys (all padding).
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        mixed = self.dropout(scores.softmax(-1)) @ v
        return self.combine(mixed.transpose(1, 2).flatten(2))


def build(
    num_classes: int,
    size: str = "bert-base",
    *,
    vocabulary: int | None = None,
    max_length: int | None = None,
    pad: int | None = None,
    pool: str = "mean",
    dropout: float = 0.1,
) -> nn.Module:
    """The architecture with random weights, see the module.

    Args:
      num_classes: L.
      size: one of `SIZES`.
      vocabulary, max_length, pad: in place of the size's.
      pool: the vector of a text: the "mean" of its real tokens; or, of BERT alone, its "first" one,
        through the pooler. GPT-2's first token sees no other, so a text would be its first word.
      dropout: of the embedding, attention, sums and the last layer.

    Raises:
      ConfigError: for an unknown size, or a way of pooling that its layout has not.
    """
    if size not in SIZES:
        raise ConfigError(f"no size {size!r}; choose one of {', '.join(SIZES)}")
    given = {"vocabulary": vocabulary, "max_length": max_length, "pad": pad}
    full = SIZES[size]._replace(**{name: v for name, v in given.items() if v is not None})
    if pool not in POOLS[full.layout]:
        choices = ", ".join(POOLS[full.layout])
        raise ConfigError(f"no pool {pool!r} of {full.layout}; choose one of {choices}")
    if not 0 <= full.pad < full.vocabulary:
        raise ConfigError(f"pad must be in [0, {full.vocabulary}), got {full.pad}")
    return _draw_weights(Transformer(num_classes, full, pool, dropout), full)


def _draw_weights(module: Transformer, size: Size) -> Transformer:
    """`module` with normal weights and zero biases; the weights of GPT-2's branches are smaller."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=STD)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    if size.layout == "gpt2":
        for block in module.body.blocks:
            for layer in (block.attention.combine, block.mlp[2]):
                nn.init.normal_(layer.weight, std=STD / math.sqrt(2 * size.num_layers))
    return module


# -- published weights --------------------------------------------------------------------

# Our names and the published ones; for a part of a block, its number comes in between.
BERT = {
    "words.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "types.weight": "embeddings.token_type_embeddings.weight",
    "norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
BERT_BLOCK = {
    "attention.combine": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp.0": "intermediate.dense",
    "mlp.2": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
BERT_PROJECTIONS = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
GPT2 = {"words.weight": "wte.weight", "positions.weight": "wpe.weight", "norm": "ln_f"}
GPT2_BLOCK = {
    "attention.project": "attn.c_attn",
    "attention.combine": "attn.c_proj",
    "attention_norm": "ln_1",
    "mlp.0": "mlp.c_fc",
    "mlp.2": "mlp.c_proj",
    "mlp_norm": "ln_2",
}
BOTH = ("weight", "bias")


def pretrained(file: Path) -> dict[str, Tensor]:
    """Parameters of the body in a published weight file of BERT or GPT-2, by this model's names.

    The caller has verified the file's checksum. Weights for pre-training alone are left out.

    Raises:
      ConfigError: if the file is of neither model.
    """
    # Imported here, because only published weights need it.
    from safetensors.torch import load_file

    weights = load_file(file)
    plain = {_plain(name): value for name, value in weights.items()}
    if BERT["words.weight"] in plain:
        return _of_bert(plain)
    if GPT2["words.weight"] in plain:
        return _of_gpt2(plain)
    raise ConfigError(f"{file} holds neither BERT's nor GPT-2's weights; it has {[*weights][:3]}")


def _plain(name: str) -> str:
    """A published name without the model's prefix, and with today's names for normalisation."""
    name = name.removeprefix("bert.").replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def _of_bert(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    found = _rename(weights, BERT, "", "body.")
    for number in range(_num_layers(weights, "encoder.layer.")):
        theirs, ours = f"encoder.layer.{number}.", f"body.blocks.{number}."
        found |= _rename(weights, BERT_BLOCK, theirs, ours)
        for kind in BOTH:
            parts = [weights[f"{theirs}{name}.{kind}"] for name in BERT_PROJECTIONS]
            found[f"{ours}attention.project.{kind}"] = torch.cat(parts)
    return found


def _of_gpt2(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    found = _rename(weights, GPT2, "", "body.")
    for number in range(_num_layers(weights, "h.")):
        own = _rename(weights, GPT2_BLOCK, f"h.{number}.", f"body.blocks.{number}.")
        # GPT-2's layers multiply from the right: their matrices are [inputs, outputs].
        found |= {n: v.T.contiguous() if v.dim() == 2 else v for n, v in own.items()}
    return found


def _rename(weights: dict, names: dict[str, str], theirs: str, ours: str) -> dict[str, Tensor]:
    """Entries of `weights` by our names; a name without "weight" means a weight and a bias."""
    ends = {name: ("",) if name.endswith(".weight") else (".weight", ".bias") for name in names}
    return {
        f"{ours}{name}{end}": weights[f"{theirs}{names[name]}{end}"]
        for name in names
        for end in ends[name]
    }


def _num_layers(weights: dict[str, Tensor], prefix: str) -> int:
    """Number of blocks in a file, which are numbered after `prefix`."""
    below = [name.removeprefix(prefix) for name in weights if name.startswith(prefix)]
    return len({name.partition(".")[0] for name in below})
