"""A gate: weights of the experts of a mixture that depend on the input.

Source: Archipes/pFedMM, the gate of its mixture of experts (100,998 parameters for two experts and
28 x 28 pixels, 393,862 for 3 x 32 x 32).
Deviation: the official code skips batch normalisation for every batch of one example. Here it is
skipped only in training, where there is nothing to average over, so that a prediction does not
depend on the size of its batch.
"""

from torch import Tensor, nn

from fedlib.models.layers.batch_norm import SinglesBatchNorm1d


class Gate(nn.Module):
    """Flatten, Linear, BatchNorm, sigmoid, Linear, BatchNorm; a softmax gives the weights."""

    def __init__(self, in_features: int, num_experts: int, hidden: int = 128):
        super().__init__()
        self.hidden = nn.Linear(in_features, hidden)
        self.hidden_norm = SinglesBatchNorm1d(hidden)
        self.output = nn.Linear(hidden, num_experts)
        self.output_norm = SinglesBatchNorm1d(num_experts)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the experts: [B, ...] -> [B, E]"""
        hidden = self.hidden_norm(self.hidden(x.flatten(1))).sigmoid()
        return self.output_norm(self.output(hidden))
