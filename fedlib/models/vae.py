"""The variational autoencoder of FedMix for MNIST (1,091,920 parameters).

The body is the encoder: mean and log-variance of a code, side by side, [B, 2 * latent]. The head is
the decoder: logits of the pixels, [B, in_features], as independent Bernoulli variables. From the
body's output the head draws a code, with noise that is a function of the batch's key, so that
`head(body(x))` is the autoencoder; a code [B, latent] is decoded directly.

Source: M. Reisser et al., "Federated Mixture of Experts", 2020 (arXiv:2107.06724), appendix F;
  FedMix's README, section 7.6.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from fedlib.engine import ambient
from fedlib.models.layers.network import Network
from fedlib.models.layers.random import gaussian
from fedlib.models.mlp import dense_relu


class Code(nn.Module):
    """Input of the decoder: a random code in training mode, otherwise its mean.

    Attributes:
      latent: length of a code.
    """

    def __init__(self, latent: int):
        super().__init__()
        self.latent = latent

    def forward(self, x: Tensor) -> Tensor:
        """[B, 2 * latent] mean and log-variance, or [B, latent] a code -> [B, latent]"""
        if x.shape[-1] == self.latent:
            return x
        mean, log_variance = x.chunk(2, dim=-1)
        if not self.training:
            return mean
        noise = gaussian(ambient.current_key(), mean.shape, x.device).to(x.dtype)
        return mean + (log_variance / 2).exp() * noise


def build(
    in_features: int = 784, hidden: Sequence[int] = (512, 256), latent: int = 32
) -> nn.Module:
    """Encoder | decoder, with the same hidden layers in reverse, initialised as in torch.

    Args:
      in_features: pixels of an image, in [0, 1].
      hidden: units of the encoder's hidden layers, one or more.
      latent: length of a code.
    """
    encoder = [nn.Flatten(), *dense_relu(in_features, hidden), nn.Linear(hidden[-1], 2 * latent)]
    decoder = dense_relu(latent, hidden[::-1])
    head = nn.Sequential(Code(latent), *decoder, nn.Linear(hidden[0], in_features))
    return Network(encoder, head)
