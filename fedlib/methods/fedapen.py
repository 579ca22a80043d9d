"""FedAPEN: private and shared model predict together, with a weight learned on a hold-out.

    client  lam <- SGD on CE(lam private + (1 - lam) shared) over the hold-out, kept in [0, 1]
            L_private = CE(private) + KL(shared || private) + CE(lam private + (1 - lam) shared)
            L_shared  = CE(shared)  + KL(private || shared) + CE(lam private + (1 - lam) shared)
            trains both on the rest of its shard; returns the shared model
    server  averages the shared models with equal weights

lam is learned before each local training, with the private model and the received one fixed. In a
model's own loss the other model is a constant, also in the ensemble. The hold-out is 5 % of a
client's training examples, the same in all rounds; the models are never trained on them.

Source: Qin et al., "FedAPEN: Personalized Cross-silo Federated Learning with Adaptability to
Statistical Heterogeneity", KDD 2023, as a baseline of Yi et al., pFedMoE, 2024 (arXiv:2402.01350),
where the shared model is a CNN-5; section 8 of fedlib/papers/pfedmoe/README.md.
Official code: zhenqincn/FedAPEN. As there, the ensemble is of logits, the other model's
probabilities are the target, and lam starts at 0.5 and is kept for the whole run. The official code
learns lam after the server's average, trains with it in the next round, and starts at 0.5.
Deviation: clients predict with the lam of their last training, learned on the models before it; the
official ones with one learned on the models that predict. The first training has a lam learned on
new models, the official one has 0.5. A client predicts with the shared model that it trained last;
in "aggregated", with the server's. A client that never took part has the server's; an unseen client
predicts with the server's alone. Absent clients have no weight, whatever the run's `aggregation`
is. The recorded training loss is the sum of both losses; examples of the hold-out do not count as
trained on.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.journal import Journal
from fedlib.engine.solvers import SGD, Memory
from fedlib.engine.task import Batch, Params, Task, log_probs, nll
from fedlib.methods.base import LogUniform, Method, Range
from fedlib.methods.mutual_learning import MutualLearning, kl_divergence, plain_mean
from fedlib.methods.parts import holdout
from fedlib.methods.parts.own_models import is_untrained, place_in_turn, put_parts
from fedlib.tree import Rows

FIRST_LAM = 0.5


class State(NamedTuple):
    """The server's model, the clients' models and weights, and the solvers' memory."""

    small: Params
    models: dict[str, Rows]  # of all clients: "large", and "small" after its last training
    lam: Tensor  # [num_clients]
    memory: Memory


class Ensemble(NamedTuple):
    """The clients' predictors: an ensemble of two models each."""

    models: dict[str, Rows | Params]  # "large", "small"
    lam: Tensor  # [C]
    task: Rows  # the architecture of each private model


@dataclass(frozen=True, kw_only=True)
class FedAPEN(MutualLearning):
    """Mutual learning of a private model, the shared `task` and their ensemble.

    Attributes:
      holdout: share of a client's training examples that lam is learned on, in (0, 1), but at least
        one example.
      lam_lr: learning rate of plain SGD on lam; 0 leaves lam at 0.5. Batches have the size of the
        models' batches.
      lam_epochs: passes over the hold-out before each local training.
    """

    holdout: float = 0.05
    lam_lr: float = 1e-3
    lam_epochs: int = 10

    look = "FedAPEN", "#8C510A", (7, 1, 0), "long"
    ranges: ClassVar = {"holdout": Range(0, 1, "()")}
    SPACE: ClassVar = {"lam_lr": LogUniform(1e-4, 1e-1)}
    protocols: ClassVar = {
        "seen": {"default": "personalise", "aggregated": "with_average"},
        "unseen": {"default": "serve"},
    }

    def __post_init__(self):
        """Raises ValueError for invalid settings, of lam's solver too."""
        Method.__post_init__(self)
        _ = self.lam_solver

    @cached_property
    def lam_solver(self) -> SGD:
        """The solver of lam."""
        return SGD(lr=self.lam_lr, epochs=self.lam_epochs, batch_size=self.local.batch_size)

    def init(self, num_clients: int, seed: int) -> State:
        """New models: the shared one, and for clients one draw of each architecture."""
        small = self.draw_small(seed)
        models = {
            "large": self.own.init(num_clients, seed),
            "small": place_in_turn([small], num_clients),
        }
        memory = self.local.memory(self.joint.trainable(models), num_clients)
        like = next(iter(small.values()))
        return State(small, models, like.new_full((num_clients,), FIRST_LAM), memory)

    # -- a round ----------------------------------------------------------------------

    def round(self, state: State, cohort: Cohort) -> State:
        """Learn lam, train both models together, average the shared one."""
        rest, held_out = holdout.apart(cohort, self.holdout)
        models = {
            "large": tree.take(state.models["large"], cohort.host_ids),
            "small": cohort.broadcast(state.small),
        }
        lam = self.learn_lam(state.lam[cohort.ids], models, held_out)
        trained, memory = self.fit(rest, models, state.memory, lam)
        small = cohort.collect(trained["small"])
        trained["small"] = Rows(map(tree.clone, tree.unstack(small)))
        models = cohort.put(state.models, trained)
        return State(plain_mean(small), models, cohort.put(state.lam, lam), memory)

    def learn_lam(self, lam: Tensor, models: dict, held_out: Cohort) -> Tensor:
        """lam [C] after SGD on the hold-outs; the models are fixed, so they run only once."""
        held_out = replace(held_out, journal=Journal())
        own = self.own.of(held_out)
        logits = replace(held_out, task=self.joint).score(self.outputs, models, own)

        def step(lam: Tensor, logits: Tensor, batch: Batch) -> Tensor:
            def loss(lam: Tensor) -> Tensor:
                mixed = self.mix(lam, *logits[batch.index].unbind(1))
                return batch.mean(nll(mixed, batch.y, self.task.class_weights))

            return (lam - self.lam_lr * grad(loss)(lam)).clamp(0, 1)

        weighing = replace(held_out, task=self.weighing)
        return weighing.scan(step, lam, logits, local=self.lam_solver, stream="lam")

    @cached_property
    def weighing(self) -> Task:
        """The task of a cohort that trains no model: batches may be padded or of one example."""
        return self.task.for_module(nn.Identity)

    def outputs(self, models: dict[str, Params], task: Task, batch: Batch) -> Tensor:
        """Logits of both models -> [B, 2, L]"""
        return torch.stack(self.logits(models, task, batch), dim=1)

    def mix(self, lam: Tensor, own: Tensor, small: Tensor) -> Tensor:
        """Log-probabilities of the ensemble, from both models' logits -> [B, L]"""
        return log_probs(lam * own + (1 - lam) * small)

    def loss(self, models: dict[str, Params], task: Task, lam: Tensor, batch: Batch) -> Tensor:
        """L_private + L_shared; each model's gradient is that of its own loss -> []"""

        def labels(ours: Tensor) -> Tensor:
            return nll(ours, batch.y, self.task.class_weights)

        own, small = self.logits(models, task, batch)
        alone = log_probs(own), log_probs(small)
        together = self.mix(lam, own, small.detach()), self.mix(lam, own.detach(), small)
        kl = kl_divergence(alone[1], alone[0]) + kl_divergence(alone[0], alone[1])
        return batch.mean(sum(map(labels, (*alone, *together))) + kl)

    # -- evaluation -------------------------------------------------------------------

    def personalise(self, state: State, cohort: Cohort) -> Ensemble:
        """Each client's models after its last training; before that, the server's shared one."""
        latest = tree.take(state.models["small"], cohort.host_ids)
        absent = is_untrained(state.memory, cohort)
        return self.ensemble(state, put_parts(latest, cohort.held(state.small), absent), cohort)

    def with_average(self, state: State, cohort: Cohort) -> Ensemble:
        """Each client's private model with the server's model."""
        return self.ensemble(state, cohort.held(state.small), cohort)

    def ensemble(self, state: State, small: Rows | Params, cohort: Cohort) -> Ensemble:
        """The clients' private models with the models `small`."""
        own = self.own.predictors(state.models["large"], cohort)
        return Ensemble({"large": own.model, "small": small}, state.lam[cohort.ids], own.task)

    def predict(self, personal: Ensemble | Params, batch: Batch) -> Tensor:
        """Log-probabilities of ONE client's batch -> [B, L]"""
        match personal:
            case Ensemble(models, lam, task):
                return self.mix(lam, *self.logits(models, task, batch))
        return self.task.log_probs(personal, batch)

    def diagnostics(self, state: State) -> dict[str, Tensor]:
        """Every client's weight of its private model [num_clients]."""
        return {"lam": state.lam}
