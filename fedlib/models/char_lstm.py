"""The next-character LSTM of FedEM for Shakespeare (825,220 parameters for 100 characters).

Source: omarfoq/FedEM, models.py (NextCharacterLSTM), with the sizes of utils.py;
pFedMM's README, section 7. Logits are [B, T, L] here and [B, L, T] there.
"""

import math

import torch
from torch import Tensor, nn

from fedlib.engine import ambient
from fedlib.models.layers.network import Network


class Embedding(nn.Embedding):
    """torch's, for characters as whole numbers of any type, floats too."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, T] -> [B, T, embedding]"""
        return super().forward(x.long())


class LSTM(nn.Module):
    """`torch.nn.LSTM` with batch_first: the same parameters, names, initial values and outputs.

    Torch's fused kernel cannot be batched over clients. It is used if the engine visits the clients
    one by one; otherwise the recurrence is computed step by step.

    Attributes:
      num_layers: number of stacked layers.
    """

    def __init__(self, inputs: int, hidden: int, num_layers: int):
        super().__init__()
        self.hidden, self.num_layers = hidden, num_layers
        bound = 1 / math.sqrt(hidden)
        for layer in range(num_layers):
            for name, shape in (
                ("weight_ih", (4 * hidden, hidden if layer else inputs)),
                ("weight_hh", (4 * hidden, hidden)),
                ("bias_ih", (4 * hidden,)),
                ("bias_hh", (4 * hidden,)),
            ):
                drawn = nn.init.uniform_(torch.empty(shape), -bound, bound)
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(drawn))

    def forward(self, x: Tensor) -> Tensor:
        """Output of the last layer at every step: [B, T, F] -> [B, T, hidden]"""
        names, numbers = ("weight_ih", "weight_hh", "bias_ih", "bias_hh"), range(self.num_layers)
        layers = [[getattr(self, f"{name}_l{number}") for name in names] for number in numbers]
        return recurrence(x, layers) if ambient.experts_are_stacked() else torch_lstm(x, layers)


Layer = list[Tensor]  # weights [4H, F] and [4H, H], biases [4H] and [4H]


def torch_lstm(x: Tensor, layers: list[Layer]) -> Tensor:
    """Torch's kernel: x [B, T, F] -> [B, T, H]"""
    start = x.new_zeros(len(layers), len(x), layers[0][1].shape[1])
    weights = [weight for layer in layers for weight in layer]
    options = {"dropout": 0.0, "train": True, "bidirectional": False, "batch_first": True}
    return torch.lstm(x, (start, start), weights, True, len(layers), **options)[0]


def recurrence(x: Tensor, layers: list[Layer]) -> Tensor:
    """The same in operations that can be batched over clients: x [B, T, F] -> [B, T, H]"""
    for weight_ih, weight_hh, bias_ih, bias_hh in layers:
        given = nn.functional.linear(x, weight_ih, bias_ih + bias_hh)  # [B, T, 4H]
        h = c = given.new_zeros(given.shape[0], weight_hh.shape[1])
        outputs = []
        for step in given.unbind(1):
            i, f, g, o = (step + nn.functional.linear(h, weight_hh)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        x = torch.stack(outputs, dim=1)
    return x


def build(
    num_classes: int = 100, embedding: int = 8, hidden: int = 256, num_layers: int = 2
) -> nn.Module:
    """Embedding, LSTM | Linear, initialised as in torch; a character is a class.

    It maps characters [B, T] to logits of every next character, [B, T, L].
    """
    body = [
        Embedding(num_classes, embedding),  # [B, T, embedding]
        LSTM(embedding, hidden, num_layers),  # [B, T, hidden]
    ]
    return Network(body, nn.Linear(hidden, num_classes))
