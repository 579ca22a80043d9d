"""FedMix with autoencoders: for an input of unknown origin, p(s|x) takes the place of p(s).

    p(e|x) = sum_s p_s(e|x) p(s|x),   p(s|x) ~ p(x|s) p(s)

After training, every client fits a variational autoencoder to its inputs;
`fedlib.methods.parts.input_likelihood` gives its bound of p(x|s). The protocol "new_shard_vae" uses
it, to compare with FedMix's "new_shard"; everything else is FedMix.

Source: Reisser et al., "Federated Mixture of Experts", ICLR 2021 submission (arXiv:2107.06724),
appendix F; sections 3 and 7.6 of fedlib/papers/fedmix/README.md.
Deviation: the paper does not specify the following. Pixels are Bernoulli variables. All
autoencoders start from the same draw and are kept at their best check on the client's validation
split. Their traffic is not counted.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.solvers import Adam
from fedlib.engine.task import Batch, Params, Task
from fedlib.methods.fedmix import FedMix, State
from fedlib.methods.parts.early_stopping import EarlyStopping
from fedlib.methods.parts.gating import Anybody, Known
from fedlib.methods.parts.input_likelihood import Given, elbo, given, latent_of, train


class Experienced(NamedTuple):
    """A predictor for a shard of unknown origin, with the seen clients' autoencoders."""

    anybody: Anybody
    autoencoders: Params  # leaves [S, ...]
    given: Given


@dataclass(frozen=True, kw_only=True)
class FedMixVAE(FedMix):
    """FedMix with autoencoders.

    Attributes:
      vae: architecture of an autoencoder, see `fedlib.models.vae`.
      vae_lr: learning rate of its Adam; 1e-3, Adam's default, in the paper (appendix F).
      vae_batch_size: examples in a step; 10 in the paper.
      vae_epochs: most epochs, at least 1.
      vae_patience: epochs without a better bound on validation data after which a client stops, at
        least 1; 3 in the paper.
    """

    vae: Task
    vae_lr: float = 1e-3
    vae_batch_size: int = 10
    vae_epochs: int = 200
    vae_patience: int = 3

    ways: ClassVar = {
        group: {**known, "new_shard_vae": "experienced"} for group, known in FedMix.ways.items()
    }

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        FedMix.__post_init__(self)
        _ = self.vae_solver, self.vae_stopping  # each is checked when it is made
        latent_of(self.vae)

    @cached_property
    def vae_solver(self) -> Adam:
        """The solver of the autoencoders."""
        return Adam(lr=self.vae_lr, batch_size=self.vae_batch_size)

    @cached_property
    def vae_stopping(self) -> EarlyStopping:
        """Early stopping of the autoencoders, with a check after every epoch."""
        return EarlyStopping(
            max_epochs=self.vae_epochs,
            check_every=1,
            patience=self.vae_patience,
            split="val",
        )

    def experienced(self, state: State, cohort: Cohort) -> Experienced:
        """As `anybody`, with autoencoders that all seen clients train now."""
        local, stopping = self.vae_solver, self.vae_stopping
        autoencoders = train(cohort.seen(), self.vae, local=local, stopping=stopping)
        constants = given(self.vae, cohort.data.federation, cohort.seed)
        known = cohort.broadcast((autoencoders, constants))
        return Experienced(self.anybody(state, cohort), *known)

    def briefly(self) -> "FedMixVAE":
        """This method, with one epoch of training of the autoencoders."""
        return replace(self, vae_epochs=1)

    def predict(self, personal: Known | Anybody | Experienced, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        if isinstance(personal, Experienced):
            anybody = personal.anybody
            evidence = self.evidence(personal, batch) + anybody.log_prior
            personal = anybody._replace(log_prior=evidence.log_softmax(-1))
        return FedMix.predict(self, personal, batch)

    def evidence(self, personal: Experienced, batch: Batch) -> Tensor:
        """The bound of log p(x|s) of every seen client -> [B, S]"""
        bounds = [
            elbo(self.vae, autoencoder, personal.given, batch)
            for autoencoder in tree.unstack(personal.autoencoders)
        ]
        return torch.stack(bounds, dim=1)
