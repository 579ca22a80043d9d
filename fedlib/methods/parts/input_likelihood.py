"""p(x|s), the probability of an input at client s, from a variational autoencoder per client.

    log p(x|s) >= E_{e(z|x)} log p(x|z) - KL( e(z|x) || p(z) )

The encoder e(z|x) and the prior p(z) are normal; pixels are independent Bernoulli variables. The
encoder takes inputs scaled as for every model; p(x|z) is over pixels in [0, 1]. The noise of the
codes depends on the batch's key in training, and on the run's seed elsewhere. There it is the same
for all inputs and autoencoders, so differences between autoencoders have less noise.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix F; section 7.6 of fedlib/papers/fedmix/README.md.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.device import upload
from fedlib.engine.solvers import Solver
from fedlib.engine.task import Batch, Params, Task
from fedlib.federation import Federation
from fedlib.methods.parts.early_stopping import EarlyStopping, fit
from fedlib.models.layers.random import gaussian

AT_ONCE = 20  # autoencoders trained together; each takes 12 times its size in memory


class Given(NamedTuple):
    """Constants of the bound, the same for every input and autoencoder."""

    noise: Tensor  # [1 or B, latent] standard normal numbers
    mean: Tensor  # [channels, 1, 1], or [] for inputs other than images: pixel = std x + mean
    std: Tensor


def given(task: Task, federation: Federation, seed: int) -> Given:
    """Noise for predictions, and the scale that turns inputs into pixels.

    Inputs other than images are taken as pixels in [0, 1].
    """
    drawn = streams.generator(seed, "vae", "noise").standard_normal((1, latent_of(task)))
    mean, std = np.zeros(()), np.ones(())
    if federation.mean:
        mean, std = (np.reshape(v, (-1, 1, 1)) for v in (federation.mean, federation.std))
    elif federation.x.dtype == np.uint8:
        std = np.full((), 1 / 255)
    return Given(*(_tensor(x, task) for x in (drawn, mean, std)))


def elbo(task: Task, params: Params, given: Given, batch: Batch) -> Tensor:
    """The lower bound of log p(x|s) of each input -> [B]

    Args:
      task: of the autoencoder, see `fedlib.models.vae`.
      params: of one client's autoencoder.
      given: from `given`.
      batch: inputs.
    """
    body, head = task.split(params)
    mean, log_variance = task.features(body, batch).chunk(2, dim=-1)
    code = mean + (log_variance / 2).exp() * given.noise
    pixels = (batch.x * given.std + given.mean).flatten(1)
    seen = bernoulli(task.head_logits(head, code, batch), pixels)
    return seen - divergence(mean, log_variance)


def bernoulli(logits: Tensor, x: Tensor) -> Tensor:
    """log p(x|z) of pixels x [B, D] in [0, 1], from logits [B, D] -> [B]"""
    return -binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL divergence of a diagonal normal distribution [B, latent] from the standard one -> [B]"""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1) / 2


def latent_of(task: Task) -> int:
    """Length of a code: half the encoder's outputs, which are a mean and a log-variance.

    Raises:
      ValueError: if the encoder has an odd number of outputs, or none.
    """
    body, _ = task.split(task.init(0))
    outputs = len(list(body.values())[-1]) if body else 0
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

    def losses(params: Params, given: Given, batch: Batch) -> Tensor:
        if batch.train:
            shape = torch.Size((len(batch.y), given.noise.shape[-1]))
            noise = gaussian(batch.key, shape, task.device).to(task.dtype)
            given = given._replace(noise=noise)
        return -elbo(task, params, given, batch)

    start = task.init(cohort.seed)
    constants = given(task, cohort.data.federation, cohort.seed)
    cohort = replace(cohort, task=task)
    trained = []
    for first in range(0, cohort.size, AT_ONCE):
        part = cohort.some(np.arange(first, min(first + AT_ONCE, cohort.size)))
        args = part, losses, part.held(start), part.held(constants)
        trained.append(fit(*args, local=local, stopping=stopping, stream="vae").models["best"])
    return tree.concatenate(trained)


def _tensor(values: np.ndarray, task: Task) -> Tensor:
    return upload(torch.from_numpy(values).to(task.dtype), task.device)
