"""The form of most models: a body, and a head on its features."""

from torch import Tensor, nn


class Network(nn.Module):
    """`head(body(x))`; the body is a sequence of layers."""

    def __init__(self, body: list[nn.Module], head: nn.Module):
        super().__init__()
        self.body, self.head = nn.Sequential(*body), head

    def forward(self, x: Tensor) -> Tensor:
        """Logits: [B, ...] -> [B, L]"""
        return self.head(self.body(x))
