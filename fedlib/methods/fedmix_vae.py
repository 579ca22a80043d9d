"""FedMix with autoencoders: for an input of unknown origin, p(s|x) takes the place of p(s).

    p(e|x) = sum_s p_s(e|x) p(s|x),   p(s|x) ~ p(x|s) p(s)

After training, every client fits a variational autoencoder to its inputs, with a bound of p(x|s):

    log p(x|s) >= E_{e(z|x)} log p(x|z) - KL( e(z|x) || p(z) )

The encoder e(z|x) and the prior p(z) are normal. The encoder takes inputs scaled as for every
model; p(x|z) is over pixels in [0, 1]. The noise of the codes depends on the batch's key in
training, and on the run's seed elsewhere. There it is the same for all inputs and autoencoders, so
differences between autoencoders have less noise. The protocol "new_shard_vae" predicts with p(s|x),
to compare with FedMix's "new_shard", which has p(s); everything else is FedMix.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix F; sections 3 and 7.6 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not specify the following. Pixels are Bernoulli variables. All
autoencoders start from the same draw and are kept at their best check on the client's validation
split. Their traffic is not counted.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Adam, Solver
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.base import Range
from fedlib.methods.fedmix import FedMix, State
from fedlib.methods.parts.early_stopping import EarlyStopping, fit
from fedlib.methods.parts.gating import Predictor, UnknownClient
from fedlib.models.layers.random import gaussian

# Of the autoencoders; rate, batches and patience are the paper's (appendix F).
SOLVER = Adam(lr=1e-3, batch_size=10)
STOPPING = EarlyStopping(check_every=1, patience=3, split="val")
AT_ONCE = 20  # autoencoders trained together; each takes 12 times its size in memory


class Constants(NamedTuple):
    """Constants of the bound, the same for every input and autoencoder."""

    noise: Tensor  # [1 or B, latent] standard normal numbers
    mean: Tensor  # [channels, 1, 1] or [features], or a 1 for them: pixel = std x + mean
    std: Tensor


class VAEClient(NamedTuple):
    """A predictor for a shard of unknown origin, with the seen clients' autoencoders."""

    anybody: UnknownClient
    autoencoders: Params  # leaves [S, ...]
    constants: Constants


@dataclass(frozen=True, kw_only=True)
class FedMixVAE(FedMix):
    """FedMix with autoencoders.

    Attributes:
      vae: architecture of an autoencoder, see `fedlib.models.vae`.
      vae_epochs: most epochs, at least 1.
    """

    vae: Task
    vae_epochs: int = 200

    look = "FedMix with VAEs", "#EE7733", (6, 0, 0), "dashed"
    ranges: ClassVar = FedMix.ranges | {"vae_epochs": Range(1)}
    ways: ClassVar = {
        group: {**own, "new_shard_vae": "with_autoencoders"} for group, own in FedMix.ways.items()
    }

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        FedMix.__post_init__(self)
        latent_of(self.vae)

    def with_autoencoders(self, state: State, cohort: Cohort) -> VAEClient:
        """As `anybody`, with autoencoders that all seen clients train now."""
        stopping = replace(STOPPING, max_epochs=self.vae_epochs)
        autoencoders = train(cohort.seen(), self.vae, local=SOLVER, stopping=stopping)
        known = cohort.broadcast((autoencoders, draw_constants(self.vae, cohort)))
        return VAEClient(self.anybody(state, cohort), *known)

    def briefly(self) -> "FedMixVAE":
        """This method, with one epoch of training of the autoencoders."""
        return replace(self, vae_epochs=1)

    def predict(self, personal: Predictor | VAEClient, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        if isinstance(personal, VAEClient):
            anybody = personal.anybody
            evidence = self.evidence(personal, batch) + anybody.log_prior
            personal = anybody._replace(log_prior=evidence.log_softmax(-1))
        return FedMix.predict(self, personal, batch)

    def evidence(self, personal: VAEClient, batch: Batch) -> Tensor:
        """The bound of log p(x|s) of every seen client -> [B, S]"""
        own = tree.unstack(personal.autoencoders)
        return torch.stack([elbo(self.vae, each, personal.constants, batch) for each in own], dim=1)


# -- autoencoders ---------------------------------------------------------------------------


def draw_constants(task: Task, cohort: Cohort) -> Constants:
    """Noise for predictions, and the scale that turns inputs into pixels.

    Numbers that were not scaled are taken as pixels in [0, 1].
    """
    drawn = streams.generator(cohort.seed, "vae", "noise").standard_normal((1, latent_of(task)))
    federation = cohort.data.federation
    shape = -1, *[1] * (federation.x.ndim - 2)
    unit = 1 / 255 if federation.x.dtype == np.uint8 else 1.0
    mean, std = (np.reshape(v, shape) for v in (federation.mean or 0.0, federation.std or unit))
    return Constants(*(cohort.tensor(x).to(task.dtype) for x in (drawn, mean, std)))


def elbo(task: Task, params: Params, constants: Constants, batch: Batch) -> Tensor:
    """The lower bound of log p(x|s) of each input -> [B]

    Args:
      task: of the autoencoder, see `fedlib.models.vae`.
      params: of one client's autoencoder.
      constants: from `draw_constants`.
      batch: inputs.
    """
    body, head = task.split(params)
    mean, log_variance = task.features(body, batch).chunk(2, dim=-1)
    code = mean + (log_variance / 2).exp() * constants.noise
    pixels = (batch.x * constants.std + constants.mean).flatten(1)
    return bernoulli(task.head_logits(head, code, batch), pixels) - gaussian_kl(mean, log_variance)


def bernoulli(logits: Tensor, x: Tensor) -> Tensor:
    """log p(x|z) of pixels x [B, D] in [0, 1], from logits [B, D] -> [B]"""
    return -binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL divergence of a diagonal normal distribution [B, latent] from the standard one -> [B]"""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1) / 2


def latent_of(task: Task) -> int:
    """Length of a code: half the encoder's outputs, which are a mean and a log-variance.

    Raises:
      ValueError: if the encoder has an odd number of outputs, or none.
    """
    body, _ = task.split(task.shapes)
    outputs = list(body.values())[-1][0] if body else 0
    if outputs == 0 or outputs % 2:
        raise ValueError(f"an encoder needs an even number of outputs, got {outputs}")
    return outputs // 2


def train(cohort: Cohort, task: Task, *, local: Solver, stopping: EarlyStopping) -> Params:
    """Autoencoders of the clients of `cohort`, each at its best check -> leaves [C, ...]

    All start with the same draw. A client's result does not depend on the rest of the cohort.

    Args:
      task: of an autoencoder.
      local, stopping: see `fedlib.methods.parts.early_stopping.fit`.

    Raises:
      DataError: if a client has no examples for early stopping.
    """

    def losses(params: Params, constants: Constants, batch: Batch) -> Tensor:
        if batch.train:
            shape = torch.Size((len(batch.y), constants.noise.shape[-1]))
            noise = gaussian(batch.key, shape, task.device)
            constants = constants._replace(noise=noise.to(task.dtype))
        return -elbo(task, params, constants, batch)

    start, constants = task.init(cohort.seed), draw_constants(task, cohort)
    cohort = replace(cohort, task=task)
    trained = []
    for first in range(0, cohort.size, AT_ONCE):
        part = cohort.some(slice(first, first + AT_ONCE))
        args = part, losses, part.held(start), part.held(constants)
        trained.append(fit(*args, local=local, stopping=stopping, stream="vae").models["best"])
    return tree.concatenate(trained)
